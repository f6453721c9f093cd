"""Collect the evidence on every target of a suite, so that rules and thresholds can be tried and left out afterwards.

Each source has a file of its own, ``evidence/SOURCE.json.xz``: for every target the numbers of
:func:`graphmend.lab.beyond.evidence.evidence` and the score of every candidate; under natural shift also the
predictions of the candidates at the scored nodes, for asking. What exists is skipped.
"""

from __future__ import annotations

import json
import lzma
import os
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

import torch

from graphmend.files.files import parse_json, write_bytes
from graphmend.files.provenance import provenance
from graphmend.files.tars import plain_of
from graphmend.lab.beyond.baselines import hidden
from graphmend.lab.beyond.evidence import evidence, numbers_of
from graphmend.lab.beyond.methods import card_of
from graphmend.lab.beyond.sources import Source, model_of
from graphmend.lab.beyond.targets import Target, targets_of
from graphmend.outputs import predictions
from graphmend.results.scores import score
from graphmend.workers.local import processes

__all__ = ["collect", "read"]

NATURAL = ("half", "ood", "citation")
GROUP = 5  # sources of one data set that a process handles one after the other, so that data are loaded once


def collect(
    sources: Sequence[Source], store: Path, out: Path, *, suite: str, device: str, jobs: int, seconds: float
) -> None:
    """All sources that ``out`` lacks, until the time is over.

    Args:
        sources: The sources, the most important first.
        store: The folder of models and attacked graphs.
        out: Where the evidence goes.
        suite: Which targets a source has.
        device: Where to compute.
        jobs: Processes.
        seconds: After that long, no further source is begun.
    """
    end = time.time() + seconds
    groups: dict[tuple[str, int], list[Source]] = defaultdict(list)
    for source in sources:
        groups[source.name, source.seed].append(source)
    parts = [group[i : i + GROUP] for group in groups.values() for i in range(0, len(group), GROUP)]
    with processes(jobs, 1) as pool:
        futures = {pool.submit(_group, part, store, out, suite, device, end): part for part in parts}
        for future in as_completed(futures):
            if (error := future.exception()) is not None:
                print(f"{futures[future][0]} and others failed: {type(error).__name__}: {error}", flush=True)


def _group(part: Sequence[Source], store: Path, out: Path, suite: str, device: str, end: float) -> None:
    for source in part:
        path = out / "evidence" / f"{source}.json.xz"
        if path.exists() or time.time() > end:
            continue
        start = time.perf_counter()
        try:
            record = {"about": provenance(device), "targets": list(_targets(source, store, suite, device))}
        except Exception as error:
            print(f"{source} failed: {type(error).__name__}: {error}", flush=True)
            continue
        write_bytes(path, lzma.compress(json.dumps(record).encode(), preset=1))
        print(f"{source}: {len(record['targets'])} targets, {time.perf_counter() - start:.1f} s", flush=True)


def _targets(source: Source, store: Path, suite: str, device: str) -> Any:
    model = model_of(source, store, device)
    made = card_of(source, model)
    if made is None:
        return
    for target in targets_of(source, model, store, suite):
        if target.kind == "missing":  # what is missing is filled first, whatever the rule
            continue
        begin = time.perf_counter()
        try:
            numbers, outputs = evidence(model, hidden(target.data).to(device), made, source.seed)
        except Exception as error:
            yield {"target": target.name, "kind": target.kind, "error": f"{type(error).__name__}: {error}"}
            continue
        yield {**_row(target, numbers, outputs), "seconds": round(time.perf_counter() - begin, 3)}


def _row(target: Target, numbers: dict[str, float], outputs: dict[str, Any]) -> dict[str, Any]:
    y, mask = target.data.y, target.data.get("mask")
    cpu = {name: logits.cpu() for name, logits in outputs.items()}
    row: dict[str, Any] = {
        "target": target.name,
        "kind": target.kind,
        "numbers": numbers_of(numbers),
        "scores": {name: round(100 * score(target.metric, logits, y, mask), 3) for name, logits in cpu.items()},
    }
    if target.kind in NATURAL:
        scored = torch.ones(len(y), dtype=torch.bool) if mask is None else mask
        row["y"] = y[scored].tolist()
        before = predictions(cpu["leave"])[scored]
        row["leave"] = before.tolist()
        flips = {}
        for name, logits in cpu.items():
            other = predictions(logits)[scored]
            nodes = (other != before).nonzero().view(-1)
            flips[name] = [nodes.tolist(), other[nodes].tolist()]
        row["flips"] = flips
    return row


def read(out: Path) -> list[dict[str, Any]]:
    """All rows below a folder, each with the name of its source."""
    rows = []
    for path in sorted((out / "evidence").glob("*.json.xz")):
        record = parse_json(path, plain_of(path, path.read_bytes(), "collect it again"))
        source = path.name.removesuffix(".json.xz")
        commit = record["about"].get("commit")
        rows += [{"source": source, "commit": commit, **row} for row in record["targets"]]
    return rows


def main() -> None:
    """Parse and collect."""
    import argparse

    from graphmend.lab.beyond.suites import chosen

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--suite", default="trust")
    parser.add_argument("--sources", type=lambda text: text.split(","))
    parser.add_argument("--backbones", type=lambda text: text.split(","))
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=1e9)
    given = parser.parse_args()
    sources = list(chosen(given.suite, names=given.sources, backbones=given.backbones, seeds=given.seeds))
    collect(
        sources,
        given.store,
        given.out,
        suite=given.suite,
        device=given.device,
        jobs=given.jobs,
        seconds=given.seconds,
    )


if __name__ == "__main__":
    main()
