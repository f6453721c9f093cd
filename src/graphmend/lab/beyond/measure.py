"""Measure every method on every target of every source; what was measured before is skipped.

The metric is computed here, from the caller's own model on the graph that a method returns, so a method can gain only
by the graph. Where features are NaN, there is no prediction: the model is asked about the graph with zeros in their
place, before mending and, where a method leaves any, after it. ``before`` and ``after`` are in percent; ``flips`` is
the share of scored nodes whose prediction changed, ``flips_all`` that of all nodes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import GraphMendError
from graphmend.files.provenance import provenance
from graphmend.lab.beyond.baselines import Case, hidden
from graphmend.lab.beyond.faults import without_nan
from graphmend.lab.beyond.methods import card_of, method_for, version_of
from graphmend.lab.beyond.rows import Row, RowFile, row_path
from graphmend.lab.beyond.sources import Source, model_of
from graphmend.lab.beyond.targets import Target, targets_of
from graphmend.outputs import predictions
from graphmend.results.scores import score
from graphmend.results.verdict import Verdict
from graphmend.workers.local import processes

__all__ = ["measure", "measure_source"]


def measure(
    sources: Sequence[Source],
    store: Path,
    out: Path,
    *,
    methods: Sequence[str],
    kinds: Sequence[str] | None = None,
    suite: str = "readme",
    device: str = "cpu",
    jobs: int = 1,
) -> None:
    """All sources, several at a time.

    Args:
        sources: The sources, the most important first.
        store: The folder of models and attacked graphs.
        out: The folder of the rows.
        methods: Names of methods.
        kinds: Kinds of targets; all when ``None``.
        suite: A key of :data:`graphmend.lab.beyond.suites.SUITES`, for the targets.
        device: Where to compute.
        jobs: Processes.
    """
    if jobs == 1:
        for source in sources:
            measure_source(source, store, out, methods=methods, kinds=kinds, suite=suite, device=device)
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with processes(jobs, threads) as pool:
        options: dict[str, Any] = {"methods": methods, "kinds": kinds, "suite": suite, "device": device}
        futures = {pool.submit(measure_source, source, store, out, **options): source for source in sources}
        for future in as_completed(futures):
            if (error := future.exception()) is not None:
                print(f"{futures[future]} failed: {type(error).__name__}: {error}", flush=True)


def measure_source(
    source: Source,
    store: Path,
    out: Path,
    *,
    methods: Sequence[str],
    kinds: Sequence[str] | None = None,
    suite: str = "readme",
    device: str = "cpu",
) -> int:
    """One source; returns the number of new rows."""
    start = time.perf_counter()
    file = RowFile(row_path(source, out), provenance(device, source=str(source)))
    model = model_of(source, store, device)
    memory: dict[str, Any] = {}
    card, has_card = None, False
    new = 0
    for target in targets_of(source, model, store, suite):
        missing = [name for name in methods if not file.has(target.name, name, version_of(name))]
        if not missing or (kinds is not None and target.kind not in kinds):
            continue
        if not has_card:
            card, has_card = card_of(source, model), True
        seen = hidden(target.data).to(device)
        before = _logits(model, seen)
        for name in missing:
            method = method_for(name, Case(source, target, device, memory))
            if method is None:
                continue
            row = {"target": target.name, "kind": target.kind, "method": name, "version": version_of(name)}
            begin = time.perf_counter()
            try:
                found = method(model, seen, card, source.seed)
                seconds = time.perf_counter() - begin
                after = _logits(model, found.data)
                result = {**_result(target, before, after), "seconds": round(seconds, 4), "reason": found.reason}
                if found.verdict is not None:
                    result["verdict"] = _compact(found.verdict)
            except Exception as error:  # a method that fails in any way has no result, and that is counted
                kind = "" if isinstance(error, GraphMendError) else f"{type(error).__name__}: "
                result = {"error": f"{kind}{error}"}
                print(f"{source} {target.name} {name}: {kind}{error}", flush=True)
            file.add({**row, **result})
            new += 1
    print(f"{source}: {new} new rows, {time.perf_counter() - start:.1f} s", flush=True)
    return new


@torch.no_grad()
def _logits(model: nn.Module, data: Data) -> Tensor:
    weights = () if data.get("edge_weight") is None else (data.edge_weight,)
    data = without_nan(data)
    logits: Tensor = model(data.x, data.edge_index, *weights).cpu()
    return logits


def _compact(verdict: Verdict) -> Row:
    """The verdict without repeating the thresholds in every row."""
    measured = {item.name: round(item.value, 5) for item in verdict.evidence}
    kept = {"decision": verdict.decision, "menders": list(verdict.menders)}
    return {**kept, "sentence": verdict.sentence, "measured": measured}


def _result(target: Target, before: Tensor, after: Tensor) -> Row:
    y, mask = target.data.y, target.data.get("mask")
    flipped = predictions(before) != predictions(after)
    old, new = (100 * score(target.metric, logits, y, mask) for logits in (before, after))
    return {
        "metric": target.metric,
        "before": round(old, 4),
        "after": round(new, 4),
        "flips": round(float((flipped if mask is None else flipped[mask]).double().mean()), 6),
        "flips_all": round(float(flipped.double().mean()), 6),
    }
