"""Train all models and compute all attacked graphs, in several processes; what exists is skipped.

The sets come in the order of the suite. Attacked graphs come after the models of all sets but the large ones, which are
last. A process handles one set and seed at a time (of a large set: all seeds), so that data are loaded once. A model
that cannot be trained is named, and the others go on.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from functools import partial
from pathlib import Path
from statistics import mean

import torch
from torch import nn
from torch_geometric.data import Data

from graphmend.lab.beyond.attacks import ATTACKED, RATES, attack_path, attacked_graph
from graphmend.lab.beyond.sources import SETS, Source, model_of, model_path, splits_of
from graphmend.lab.data import Splits, node_mask
from graphmend.results.scores import score
from graphmend.workers.local import processes

__all__ = ["train"]

Task = Callable[[Path, str], list[str]]


def train(
    store: Path,
    sources: Sequence[Source],
    *,
    attacked: Sequence[str] = ("test", "val"),
    device: str = "cpu",
    jobs: int = 1,
) -> None:
    """Everything that ``store`` lacks.

    Args:
        store: The folder of models and attacked graphs.
        sources: The sources, the most important first.
        attacked: At which nodes the Planetoid graphs are attacked: ``"test"``, ``"val"``.
        device: Where to compute.
        jobs: Processes.
    """
    store.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    tasks = [partial(task, store, device) for task in _tasks(sources, attacked)]
    failed: list[str] = []
    if jobs == 1:
        for task in tasks:
            failed += task()
    else:
        threads = max(1, (os.cpu_count() or 1) // jobs)
        with processes(jobs, threads) as pool:
            futures = [pool.submit(task) for task in tasks]
            for future in as_completed(futures):
                error = future.exception()  # a process was killed
                failed += future.result() if error is None else [f"{type(error).__name__}: {error}"]
    for line in failed:
        print(f"failed: {line}", flush=True)
    print(f"all done after {time.perf_counter() - start:.0f} s, {len(failed)} failed", flush=True)


def _tasks(sources: Sequence[Source], attacked: Sequence[str]) -> list[Task]:
    tasks: list[Task] = []
    for large in (False, True):
        here = [source for source in sources if SETS[source.name].large is large]
        groups = itertools.groupby(here, _place)
        tasks += [partial(_models, list(group)) for _, group in groups]
        if not large:
            victims = dict.fromkeys(Source(s.name, "gcn", s.seed) for s in here if s.name in ATTACKED)
            tasks += [partial(_attack, s, rate, nodes) for nodes in attacked for s in victims for rate in RATES]
    return tasks


def _place(source: Source) -> tuple[str, int]:
    """What the sources of one task share."""
    return source.name, 0 if SETS[source.name].large else source.seed


def _models(wanted: Sequence[Source], store: Path, device: str) -> list[str]:
    """Train the models of one set; returns a line for each that failed."""
    failed = []
    for source in wanted:
        if model_path(source, store).exists():
            continue
        try:
            start = time.perf_counter()
            model = model_of(source, store, device)
            seconds = time.perf_counter() - start
            splits = splits_of(source)
            val, test = (_mean_score(model, part, splits, device) for part in (splits.val, splits.test))
            print(f"{source}: validation {val:.2f}, test {test:.2f}, {seconds:.1f} s", flush=True)
        except Exception as error:
            failed.append(f"{source}: {type(error).__name__}: {error}")
    return failed


def _attack(source: Source, rate: float, nodes: str, store: Path, device: str) -> list[str]:
    if attack_path(source, rate, store, nodes).exists():
        return []
    start = time.perf_counter()
    try:
        harmed = attacked_graph(source, rate, store, device, nodes)
    except Exception as error:
        return [f"{attack_path(source, rate, store, nodes).name}: {type(error).__name__}: {error}"]
    seconds = time.perf_counter() - start
    splits = splits_of(source)
    model = model_of(source, store, device)
    before, after = (_mean_score(model, [data], splits, device) for data in (splits.parts[nodes][0], harmed))
    label = f"{source.name}-{source.seed} attack {rate}"
    print(f"{label}: {nodes} {before:.2f} -> {after:.2f}, {seconds:.1f} s", flush=True)
    return []


@torch.no_grad()
def _mean_score(model: nn.Module, graphs: Sequence[Data], splits: Splits, device: str) -> float:
    """The mean of the metric over graphs, in percent."""
    values = []
    for data in graphs:
        logits = model(data.x.to(device), data.edge_index.to(device)).cpu()
        values.append(100 * score(splits.metric, logits, data.y, node_mask(data)))
    return mean(values)
