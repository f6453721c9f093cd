"""How far experiments are, and how long the rest will take."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from graphmend.lab.bench.execute import with_needs
from graphmend.lab.bench.run import Run
from graphmend.lab.bench.store import Result, Store

__all__ = ["Status", "Watch"]


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
