"""Runs, carried out: what is finished is skipped, what fails is recorded, what is needed comes first."""

from __future__ import annotations

import resource
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import torch

from graphmend.bench.run import Run
from graphmend.bench.store import Store
from graphmend.bench.tasks import TASKS
from graphmend.bench.workspace import Workspace
from graphmend.errors import choose
from graphmend.io.provenance import provenance
from graphmend.progress import track

__all__ = ["Local", "Summary", "carry_out", "execute", "ordered"]

Mapper = Callable[[Callable[[Run], str], Sequence[Run]], Iterator[str]]
"""Calls a function for every run, some of them at the same time, and yields what it returns as it comes."""


@dataclass(frozen=True)
class Summary:
    """How many runs were asked for, were finished before, were done now, and failed."""

    total: int
    skipped: int
    done: int
    failed: int


@dataclass(frozen=True)
class Local:
    """Processes on this machine.

    Args:
        jobs: How many work at the same time; -1 for as many as there are cores.
    """

    jobs: int = 1

    def __call__(self, function: Callable[[Run], str], runs: Sequence[Run]) -> Iterator[str]:
        """Call a function for every run."""
        if self.jobs == 1:
            return map(function, runs)
        done: Iterator[str] = joblib.Parallel(n_jobs=self.jobs, return_as="generator_unordered")(
            joblib.delayed(function)(run) for run in runs
        )
        return done


def execute(
    runs: Iterable[Run],
    store: Store,
    *,
    device: str = "cpu",
    data_dir: str | Path | None = None,
    workers: Mapper | None = None,
    retry: bool = False,
    progress: bool = False,
) -> Summary:
    """Carry out all runs that have no result yet, and before them the runs that they need.

    Args:
        runs: What is wanted.
        store: Where results are kept.
        device: Where to compute.
        data_dir: Where data sets are looked for first.
        workers: Who computes; this process by default.
        retry: Whether runs that failed before are tried again.
        progress: Show a progress bar with the time left.
    """
    workers = Local() if workers is None else workers
    levels = ordered(runs)
    records = [store.read(run) for level in levels for run in level]
    finished = sum(record is not None and (record["status"] == "done" or not retry) for record in records)
    done = failed = 0
    for level in levels:
        open_runs = [run for run in level if _is_open(store.read(run), retry)]
        task = _Task(store.folder, device, None if data_dir is None else Path(data_dir))
        results = iter(workers(task, open_runs))
        for _ in track(range(len(open_runs)), _label(level), progress):
            is_done = next(results) == "done"
            done, failed = done + is_done, failed + (not is_done)
    return Summary(len(records), finished, done, failed)


def ordered(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs and all that they need, without repetition, in levels: a run needs only runs of earlier levels."""
    depth: dict[Run, int] = {}

    def visit(run: Run) -> int:
        if run not in depth:
            depth[run] = 1 + max((visit(need) for need in run.needs), default=-1)
        return depth[run]

    for run in runs:
        visit(run)
    return [[run for run in depth if depth[run] == level] for level in range(1 + max(depth.values(), default=-1))]


def carry_out(run: Run, store: Store, device: str = "cpu", data_dir: Path | None = None) -> str:
    """Carry out one run and keep its record; ``"done"`` or ``"failed"``."""
    task = choose("task", run.task, TASKS)
    where = torch.device(device)
    if where.type == "cuda":
        torch.cuda.reset_peak_memory_stats(where)
    start = time.perf_counter()
    record: dict[str, Any]
    try:
        record = {"status": "done", "result": task(run, Workspace(store, where, data_dir))}
    except Exception as error:  # the suite goes on, and the table says that this cell failed
        is_oom = isinstance(error, (MemoryError, torch.OutOfMemoryError))
        text = f"{type(error).__name__}: {error}".strip()
        trace = traceback.format_exc(limit=-5)
        record = {"status": "failed", "error": text, "out_of_memory": is_oom, "trace": trace}
    record["seconds"] = round(time.perf_counter() - start, 3)
    record["peak_memory_gb"] = _peak_memory(where)
    record["provenance"] = provenance(where)
    store.write(run, record)
    return str(record["status"])


@dataclass(frozen=True)
class _Task:
    """:func:`carry_out` as something that can be sent to another process."""

    folder: Path
    device: str
    data_dir: Path | None

    def __call__(self, run: Run) -> str:
        return carry_out(run, Store(self.folder), self.device, self.data_dir)


def _is_open(record: dict[str, Any] | None, retry: bool) -> bool:
    return record is None or (retry and record["status"] != "done")


def _label(level: list[Run]) -> str:
    return " and ".join(sorted({run.task for run in level}))


def _peak_memory(device: torch.device) -> float:
    """Of the GPU during the run; on a CPU, of the process since it began."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**30, 3)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3)
