"""Train all models and compute all attacked graphs, in several processes; what exists is skipped.

The sets come in the order of their importance. Attacked graphs come after the models of all sets but the large ones,
which are last. A process handles one set and seed at a time (of a large set: all seeds), so that data are loaded once.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from statistics import mean

import torch
from torch import nn
from torch_geometric.data import Data

from benchmarks.beyond.attacks import ATTACKED, RATES, attack_path, attacked_graph
from benchmarks.beyond.sources import SETS, Source, model_of, model_path, sources, splits_of
from graphmend.datasets import Splits, node_mask
from graphmend.metrics import score

__all__ = ["train"]


def train(
    store: Path, *, names: Sequence[str], seeds: int, backbones: Sequence[str], device: str = "cpu", jobs: int = 1
) -> None:
    """Everything that ``store`` lacks."""
    store.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    tasks = [partial(task, store, device) for task in _tasks(names, seeds, backbones)]
    if jobs == 1:
        for task in tasks:
            task()
    else:
        threads = max(1, (os.cpu_count() or 1) // jobs)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, context, initializer=torch.set_num_threads, initargs=(threads,)) as pool:
            futures = [pool.submit(task) for task in tasks]
            failed = [error for future in as_completed(futures) if (error := future.exception()) is not None]
        for error in failed:
            print(f"failed: {type(error).__name__}: {error}", flush=True)
    print(f"all done after {time.perf_counter() - start:.0f} s", flush=True)


def _tasks(names: Sequence[str], seeds: int, backbones: Sequence[str]) -> list[Callable[[Path, str], None]]:
    ordered = [name for name in SETS if name in names]
    tasks: list[Callable[[Path, str], None]] = []
    for large in (False, True):
        for name in ordered:
            if SETS[name].large is large:
                groups = [range(seeds)] if large else [range(seed, seed + 1) for seed in range(seeds)]
                tasks += [partial(_models, list(sources([name], group, backbones))) for group in groups]
        if not large:
            attacked = [Source(name, "gcn", seed) for name in ordered if name in ATTACKED for seed in range(seeds)]
            tasks += [partial(_attack, s, rate, nodes) for nodes in ("test", "val") for s in attacked for rate in RATES]
    return tasks


def _models(wanted: Sequence[Source], store: Path, device: str) -> None:
    for source in wanted:
        if model_path(source, store).exists():
            continue
        start = time.perf_counter()
        model = model_of(source, store, device)
        seconds = time.perf_counter() - start
        splits = splits_of(source)
        val, test = (_mean_score(model, part, splits, device) for part in (splits.val, splits.test))
        print(f"{source}: validation {val:.2f}, test {test:.2f}, {seconds:.1f} s", flush=True)


def _attack(source: Source, rate: float, nodes: str, store: Path, device: str) -> None:
    if attack_path(source, rate, store, nodes).exists():
        return
    start = time.perf_counter()
    harmed = attacked_graph(source, rate, store, device, nodes)
    seconds = time.perf_counter() - start
    splits = splits_of(source)
    model = model_of(source, store, device)
    before, after = (_mean_score(model, [data], splits, device) for data in (splits.parts[nodes][0], harmed))
    label = f"{source.name}-{source.seed} attack {rate}"
    print(f"{label}: {nodes} {before:.2f} -> {after:.2f}, {seconds:.1f} s", flush=True)


@torch.no_grad()
def _mean_score(model: nn.Module, graphs: Sequence[Data], splits: Splits, device: str) -> float:
    """The mean of the metric over graphs, in percent."""
    values = []
    for data in graphs:
        logits = model(data.x.to(device), data.edge_index.to(device)).cpu()
        values.append(100 * score(splits.metric, logits, data.y, node_mask(data)))
    return mean(values)
