"""Runs, carried out: what is finished is skipped, what fails is recorded, what is needed comes first."""

from __future__ import annotations

import resource
import statistics
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from graphmend.errors import MissingDataError, choose
from graphmend.files.provenance import provenance
from graphmend.lab.bench.board import Board
from graphmend.lab.bench.store import Result, Run, Store
from graphmend.lab.bench.tasks import TASKS
from graphmend.lab.bench.workspace import Workspace
from graphmend.workers.folders import in_folder
from graphmend.workers.local import Local, Lost, Workers

__all__ = ["Status", "Summary", "Times", "Watch", "carry_out", "execute", "ordered", "with_needs"]


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
    finished: Callable[[Run], str] = lambda run: "",
) -> Summary:
    """Carry out all runs that have no result yet, and before each the runs that it needs.

    Args:
        runs: What is wanted, the first first.
        store: Where results are kept.
        device: Where to compute.
        data_dir: Where data sets are looked for first.
        workers: Who computes; this process by default.
        retry: Whether runs that failed before are tried again.
        progress: Show what runs, and the time left for all.
        finished: What to say about a run that has ended, if anything.
    """
    workers = Local() if workers is None else workers
    work = _Work(device, None if data_dir is None else Path(data_dir).absolute())
    levels = ordered(runs)
    records = {run: store.read(run) for level in levels for run in level}
    open_runs = {run: None for level in levels for run in level if _is_open(records[run], retry)}
    times = Times(records)
    done = failed = 0
    with Board(len(open_runs), progress) as board:

        def ended(run: Run) -> None:
            del open_runs[run]
            times.add(run, store.read(run))
            board.ended(run, times.left(open_runs, getattr(workers, "jobs", 1)), finished(run))

        if isinstance(workers, Local):
            statuses = _as_they_can(
                workers, work, store, list(dict.fromkeys(_needs_first(runs))), open_runs, board, ended
            )
        else:
            statuses = _by_level(workers, work, store, levels, open_runs, ended)
        with closing(statuses):
            for status in statuses:
                done, failed = done + (status == "done"), failed + (status != "done")
    return Summary(len(records), len(records) - done - failed, done, failed)


def _as_they_can(
    workers: Local,
    work: _Work,
    store: Store,
    order: Sequence[Run],
    open_runs: Mapping[Run, None],
    board: Board,
    ended: Callable[[Run], None],
) -> Generator[str, None, None]:
    """Each run as soon as what it needs is there; what a finished run makes possible comes next."""
    missing = {run: {need for need in run.needs if need in open_runs} for run in order if run in open_runs}
    followers: dict[Run, list[Run]] = {}
    for run, needs in missing.items():
        for need in needs:
            followers.setdefault(need, []).append(run)

    def then(run: Run) -> list[Run]:
        ended(run)
        for follower in followers.get(run, []):
            missing[follower].discard(run)
        return [follower for follower in followers.get(run, []) if not missing[follower]]

    folder = store.folder.absolute()
    here = _InFolder(work, folder)
    yield from workers.growing(here, [run for run, needs in missing.items() if not needs], then, board.began)


def _by_level(
    workers: Workers,
    work: _Work,
    store: Store,
    levels: list[list[Run]],
    open_runs: Mapping[Run, None],
    ended: Callable[[Run], None],
) -> Generator[str, None, None]:
    """On other machines: all runs that need nothing, then those that need only these, and so on."""
    for level in levels:
        wanted = [run for run in level if run in open_runs]
        with closing(in_folder(workers, work, store.folder, wanted, lambda run: _needed(run, store))) as results:
            for answer in results:
                status = _kept(answer, store)
                yield status
        for run in wanted:
            ended(run)


def _needs_first(runs: Iterable[Run]) -> Iterator[Run]:
    """Each run after what it needs, one after another."""
    for run in runs:
        yield from _needs_first(run.needs)
        yield run


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


@dataclass(frozen=True)
class _InFolder:
    """Work in one folder."""

    work: _Work
    folder: Path

    def __call__(self, run: Run) -> str:
        return self.work(run, self.folder)


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
        self.times = Times(self.records)

    def __call__(self, runs: Iterable[Run]) -> Status:
        """The status of some of the runs."""
        records = {run: self.records[run] for run in with_needs(runs)}
        left = self.times.left((run for run, record in records.items() if record is None), 1)
        return Status(len(records), _count(records.values(), "done"), _count(records.values(), "failed"), left)


class Times:
    """How long runs take, from finished ones that are like them.

    Args:
        records: Runs with their records, if they have any.
    """

    def __init__(self, records: Mapping[Run, Result | None]) -> None:
        self.seconds: dict[tuple[str, ...], list[float]] = {}
        for run, record in records.items():
            self.add(run, record)

    def add(self, run: Run, record: Result | None) -> None:
        """Learn from a finished run."""
        if record is not None and record["status"] == "done":
            for kind in _kinds(run):
                self.seconds.setdefault(kind, []).append(record["seconds"])

    def left(self, runs: Iterable[Run], jobs: int) -> float | None:
        """Estimated seconds for some runs with several at a time; ``None`` if a task among them has no finished run."""
        estimates = [self._estimate(run) for run in runs]
        known = [seconds for seconds in estimates if seconds is not None]
        return sum(known) / max(jobs, 1) if len(known) == len(estimates) else None

    def _estimate(self, run: Run) -> float | None:
        """The mean over finished runs of the same method on the same data set, or else of the same task."""
        return next((statistics.fmean(self.seconds[kind]) for kind in _kinds(run) if kind in self.seconds), None)


def _kinds(run: Run) -> tuple[tuple[str, ...], ...]:
    settings = run.settings.get("train", run.settings)  # an attack has those of the training inside
    names = (settings.get("trainer", {}).get("name"), settings.get("backbone"))
    method = ",".join(map(str, (*names, run.settings.get("adapter", {}).get("name"))))
    dataset = str(settings.get("dataset"))
    return (run.task, dataset, method), (run.task, dataset), (run.task,)


def _count(records: Iterable[Result | None], status: str) -> int:
    return sum(record is not None and record["status"] == status for record in records)
