"""Runs, carried out: what is finished is skipped, what fails is recorded, what is needed comes first."""

from __future__ import annotations

import resource
import statistics
import time
import traceback
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from graphmend.errors import MissingDataError, choose
from graphmend.files.provenance import provenance
from graphmend.lab.bench.store import Result, Run, Store
from graphmend.lab.bench.tasks import TASKS
from graphmend.lab.bench.workspace import Workspace
from graphmend.progress import track
from graphmend.workers.folders import in_folder
from graphmend.workers.local import Local, Lost, Workers

__all__ = ["Status", "Summary", "Watch", "carry_out", "execute", "ordered", "with_needs"]


@dataclass(frozen=True)
class Summary:
    """How many runs were asked for, were finished before, were done now, and failed."""

    total: int
    skipped: int
    done: int
    failed: int


def execute(
    runs: Iterable[Run],
    store: Store,
    *,
    device: str = "cpu",
    data_dir: str | Path | None = None,
    workers: Workers | None = None,
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
    work = _Work(device, None if data_dir is None else Path(data_dir).absolute())
    levels = ordered(runs)
    records = [store.read(run) for level in levels for run in level]
    finished = sum(not _is_open(record, retry) for record in records)
    done = failed = 0
    for level in levels:
        open_runs = [run for run in level if _is_open(store.read(run), retry)]
        results = in_folder(workers, work, store.folder, open_runs, lambda run: _needed(run, store))
        with closing(results), closing(track(range(len(open_runs)), _label(level), progress)) as bar:
            for _ in bar:
                is_done = _kept(next(results), store) == "done"
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


def with_needs(runs: Iterable[Run]) -> list[Run]:
    """Runs and all that they need, without repetition, in an order in which they can be carried out."""
    return [run for level in ordered(runs) for run in level]


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
        if isinstance(error, MissingDataError):
            record["missing_data"] = True  # which may be there the next time
    record["seconds"] = round(time.perf_counter() - start, 3)
    record["peak_memory_gb"] = _peak_memory(where)
    record["provenance"] = provenance(where)
    store.write(run, record)
    return str(record["status"])


@dataclass(frozen=True)
class _Work:
    """:func:`carry_out` as something that can be sent to another process."""

    device: str
    data_dir: Path | None

    def __call__(self, run: Run, folder: Path) -> str:
        return carry_out(run, Store(folder), self.device, self.data_dir)


def _needed(run: Run, store: Store) -> list[Path]:
    """The files that a run reads."""
    records = [store.path(need) for need in run.needs]
    artefacts = [path for need in run.needs for path in store.artefact(need, "").parent.glob(f"{need.key}.*")]
    return [path for path in (*records, *artefacts) if path.exists()]


def _kept(answer: str | Lost[Run], store: Store) -> str:
    """``"done"`` or ``"failed"``; a run whose process died has left no record, so that is written here."""
    if not isinstance(answer, Lost):
        return answer
    error = f"the process died: {answer.reason}"
    store.write(answer.item, {"status": "failed", "error": error, "out_of_memory": answer.out_of_memory})
    return "failed"


def _is_open(record: dict[str, Any] | None, retry: bool) -> bool:
    return record is None or (record["status"] != "done" and (retry or record.get("missing_data", False)))


def _label(level: list[Run]) -> str:
    return " and ".join(sorted({run.task for run in level}))


def _peak_memory(device: torch.device) -> float:
    """Of the GPU during the run; on a CPU, of the process since it began."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**30, 3)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3)


@dataclass(frozen=True)
class Status:
    """How many runs there are, are done, and failed.

    Args:
        total: All, with the runs that they need.
        done: Those that have a result.
        failed: Those that were tried without one.
        seconds_left: For the others one after another; ``None`` if no run of the same task has been finished.
    """

    total: int
    done: int
    failed: int
    seconds_left: float | None


class Watch:
    """Reads the records of runs once, and knows how long those took that are finished.

    Args:
        runs: All runs that may be asked for.
        store: Where their results are.
    """

    def __init__(self, runs: Iterable[Run], store: Store) -> None:
        self.records = {run: store.read(run) for run in with_needs(runs)}
        times: dict[tuple[str, str | None], list[float]] = {}
        for run, record in self.records.items():
            if record is not None and record["status"] == "done":
                for kind in _kinds(run):
                    times.setdefault(kind, []).append(record["seconds"])
        self.means = {kind: statistics.fmean(seconds) for kind, seconds in times.items()}

    def __call__(self, runs: Iterable[Run]) -> Status:
        """The status of some of the runs."""
        records = {run: self.records[run] for run in with_needs(runs)}
        estimates = [self._estimate(run) for run, record in records.items() if record is None]
        known = [seconds for seconds in estimates if seconds is not None]
        left = sum(known) if len(known) == len(estimates) else None
        return Status(len(records), _count(records.values(), "done"), _count(records.values(), "failed"), left)

    def _estimate(self, run: Run) -> float | None:
        """The mean over finished runs of the same task on the same data set, or else on any."""
        return next((self.means[kind] for kind in _kinds(run) if kind in self.means), None)


def _kinds(run: Run) -> tuple[tuple[str, str | None], ...]:
    settings = run.settings.get("train", run.settings)  # an attack has those of the training inside
    return (run.task, settings.get("dataset")), (run.task, None)


def _count(records: Iterable[Result | None], status: str) -> int:
    return sum(record is not None and record["status"] == status for record in records)
