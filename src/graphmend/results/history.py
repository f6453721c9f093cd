"""What steps and discrete graphs have found: numbers of a device, read at once or several together.

To read a number is to wait for the device. A GPU that replays recorded steps may go on ahead and be asked later.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from graphmend.results.adaptation import Candidate, Step

__all__ = ["Candidates", "Steps", "Stopped"]

AHEAD = 50  # steps that may be taken before somebody looks at their numbers

_LOG = logging.getLogger(__name__)


class Stopped(Exception):
    """The surrogate cannot be followed any further."""


class _Taken(NamedTuple):
    number: int
    kind: str
    terms: list[str]
    found: Tensor
    seconds: float


class Steps:
    """The history of an adaptation.

    Args:
        callback: Called with every step.
    """

    def __init__(self, callback: Callable[[Step], None] | None = None) -> None:
        self.callback = callback
        self.read_so_far: list[Step] = []
        self._taken: list[_Taken] = []

    def note(
        self, index: int, kind: str, terms: Iterable[str], found: Tensor, seconds: float, *, ahead: bool = False
    ) -> None:
        """Note a step.

        Args:
            index: Its number.
            kind: ``"feature"`` or ``"edge"``.
            terms: Names of the loss's terms.
            found: Their values, the norm of the gradient, and for edges how many flip; may be overwritten afterwards.
            seconds: When.
            ahead: There is no hurry to read them.
        """
        self._taken.append(_Taken(index, kind, list(terms), found.clone() if ahead else found, seconds))
        if not ahead or len(self._taken) == AHEAD:
            self.read()

    def read(self) -> list[Step]:
        """All steps so far; raises :class:`Stopped` at one with a loss or a gradient that is not finite."""
        taken, self._taken = self._taken, []
        numbers = iter(torch.cat([step.found for step in taken]).tolist() if taken else [])
        for index, kind, terms, _, seconds in taken:
            values, norm = {name: next(numbers) for name in terms}, next(numbers)
            before = self.read_so_far[-1].flipped if self.read_so_far else 0.0
            flipped = next(numbers) if kind == "edge" else before
            if not all(map(math.isfinite, values.values())):
                raise Stopped(f"the surrogate loss is not finite ({values}) at step {index}")
            if not math.isfinite(norm):
                raise Stopped(f"the gradient is not finite at step {index}")
            step = Step(index, kind, sum(values.values()), values, norm, flipped, seconds)
            self.read_so_far.append(step)
            _LOG.debug("%s", step)
            if self.callback is not None:
                self.callback(step)
        return self.read_so_far


class Candidates:
    """Discrete graphs, and which of them is the best."""

    def __init__(self) -> None:
        self._read: list[Candidate] = []
        self.best: tuple[float, Tensor] | None = None  #: the lowest loss and the flips it belongs to
        self._tried: list[tuple[str, Tensor, Tensor]] = []

    def note(self, name: str, flips: Tensor, found: Tensor, *, ahead: bool = False) -> None:
        """Note one with its loss and the number of its flips; only the best one's flips are kept once it is read."""
        self._tried.append((name, flips, found))
        if not ahead:
            self.read()

    def read(self) -> list[Candidate]:
        """All so far."""
        tried, self._tried = self._tried, []
        numbers = torch.stack([found for *_, found in tried]).tolist() if tried else []
        for (name, flips, _), (loss, number) in zip(tried, numbers, strict=True):
            self._read.append(Candidate(name, loss, int(number)))
            if math.isfinite(loss) and (self.best is None or loss < self.best[0]):
                self.best = loss, flips
        return self._read
