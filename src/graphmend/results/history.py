"""The history of an adaptation: every step, and every discrete graph that was scored.

Reading a number from a GPU means waiting for it. Unless there is a callback, a progress bar or a time limit, the
numbers of all steps are therefore read together at the end, and the GPU works ahead in the meantime; events on the
device keep the time of each step.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphmend.engine.report import Measured, NoEdgeGradient, Stopped
from graphmend.progress import track
from graphmend.results.tables import frame, html_table, step_columns

__all__ = ["Candidate", "History", "Step", "Steps"]

_LOG = logging.getLogger(__name__)
SHOWN = 5  # first and last steps in a notebook


@dataclass(frozen=True)
class Step:
    """One step of an adapter: what was updated and what it cost."""

    index: int
    kind: str  #: what took the step, such as "feature" or "edge"
    loss: float
    terms: dict[str, float]
    gradient_norm: float  #: of the variable that took the step; features in units of their columns, if steps are so
    flipped: float  #: sum of the flip probabilities after the step
    seconds: float  #: from the start to the end of the step


@dataclass(frozen=True)
class Candidate:
    """One discrete graph that was scored at the end."""

    name: str
    loss: float
    flips: int


class Steps(list[Step]):
    """The steps of an adaptation, a list that reads as one line."""

    def __repr__(self) -> str:
        if not self:
            return "no steps"
        kinds = ", ".join(f"{number} {kind}" for kind, number in Counter(step.kind for step in self).items())
        return f"{len(self)} steps ({kinds}), loss {self[0].loss:.4g} to {self[-1].loss:.4g}, {self[-1].seconds:.2g} s"

    def _repr_html_(self) -> str:
        rows = [(s.index, s.kind, f"{s.loss:.4g}", f"{s.gradient_norm:.3g}", f"{s.seconds:.3g}") for s in self]
        shown = rows if len(rows) <= 2 * SHOWN else [*rows[:SHOWN], ("...", "", "", "", ""), *rows[-SHOWN:]]
        return html_table("History", shown, ("step", "kind", "loss", "gradient norm", "seconds"), note=repr(self))

    def to_frame(self) -> Any:
        """A pandas ``DataFrame`` with one row per step, each part of the loss in a column of its own."""
        return frame(step_columns(self))


class _Unread(NamedTuple):
    number: int
    kind: str
    measured: Measured
    end: torch.cuda.Event | None  #: None if it is read at once


class History:
    """The steps and the discrete graphs of one adaptation.

    Args:
        device: Where the numbers come from.
        callback: Called with every step.
        progress: Whether to show a progress bar.
    """

    def __init__(
        self, device: torch.device, callback: Callable[[Step], None] | None = None, progress: bool = False
    ) -> None:
        self._device, self._callback, self._progress = device, callback, progress
        self._earlier_steps, self._earlier_seconds = 0, 0.0
        self._is_watched = device.type != "cuda" or callback is not None or progress
        self._start, self._start_event = time.perf_counter(), None if self._is_watched else _event()
        self._read = Steps()
        self._unread: list[_Unread] = []
        self._scored: list[tuple[str, Tensor, Tensor]] = []
        self._candidates: list[Candidate] = []
        self._best: tuple[float, Tensor] | None = None

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self._start

    def steps(self, number: int, time_limit: float | None = None, label: str = "mending") -> Iterator[int]:
        """Count steps, with a progress bar if that was asked for, until the time is up."""
        if time_limit is not None:
            self._is_watched = True
        with closing(track(range(number), label, self._progress)) as indices:
            for index in indices:
                if time_limit is not None and self.seconds > time_limit:
                    _LOG.info("stopped after %d of %d steps: time_limit is %s s", index, number, time_limit)
                    return
                yield index

    def add(self, index: int, kind: str, measured: Measured) -> None:
        """Note a step; raises :class:`Stopped` at one whose loss or gradient is not finite."""
        self._unread.append(_Unread(index, kind, measured, None if self._is_watched else _event()))
        if self._is_watched:
            self.read()

    def read(self) -> Steps:
        """All steps so far."""
        unread, self._unread = self._unread, []
        numbers = iter(torch.cat([step.measured.values for step in unread]).tolist() if unread else [])
        for index, kind, (terms, _), end in unread:
            values = {name: next(numbers) for name in terms}
            norm, flipped = next(numbers), next(numbers)
            if not all(map(math.isfinite, values.values())):
                raise Stopped(f"the surrogate loss is not finite ({values}) at step {index}")
            if not math.isfinite(norm):
                stopped = NoEdgeGradient if kind == "edge" else Stopped
                raise stopped(f"the gradient is not finite at step {index}")
            number, seconds = self._earlier_steps + index, self._earlier_seconds + self._seconds_until(end)
            step = Step(number, kind, sum(values.values()), values, norm, flipped, seconds)
            self._read.append(step)
            _LOG.debug("%s", step)
            if self._callback is not None:
                self._callback(step)
        return self._read

    @property
    def finished_steps(self) -> Steps:
        """The steps that have been read."""
        return self._read

    def part(self) -> History:
        """A history for the next adapter of a sequence; numbers and times continue from here."""
        part = History(self._device, self._callback, self._progress)
        part._earlier_steps = self._earlier_steps + len(self._read)
        part._earlier_seconds = self._earlier_seconds + self.seconds
        return part

    def include(self, part: History) -> None:
        """Append what a :meth:`part` has read; its discrete graphs do not compete with those of other parts."""
        self._read += part._read
        self._candidates += part._candidates

    def add_candidate(self, name: str, flips: Tensor, loss: Tensor) -> None:
        """Note a discrete graph with its loss."""
        self._scored.append((name, flips, torch.stack([loss.double(), flips.sum(dtype=torch.float64)])))
        if self._is_watched:
            self.candidates()  # so that only the best one's flips are kept

    def candidates(self) -> list[Candidate]:
        """All discrete graphs so far."""
        scored, self._scored = self._scored, []
        numbers = torch.stack([pair for *_, pair in scored]).tolist() if scored else []
        for (name, flips, _), (loss, number) in zip(scored, numbers, strict=True):
            self._candidates.append(Candidate(name, loss, int(number)))
            _LOG.debug("%s", self._candidates[-1])
            if math.isfinite(loss) and (self._best is None or loss < self._best[0]):
                self._best = loss, flips
        return self._candidates

    def best(self) -> Tensor | None:
        """The flips with the lowest loss; ``None`` if there was nothing to choose from."""
        if self.candidates() and self._best is None:
            raise Stopped("the surrogate loss of every discrete graph is not finite")
        return None if self._best is None else self._best[1]

    def _seconds_until(self, end: torch.cuda.Event | None) -> float:
        if end is None or self._start_event is None:  # its numbers have just been read, so it has ended
            return self.seconds
        return float(self._start_event.elapsed_time(end)) / 1000.0


def _event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
