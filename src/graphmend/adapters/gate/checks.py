"""What a rule of the gate asks, as tables that can be read from top to bottom.

A rule is a list of :class:`Check`. Each names a *sign*, a number that an object of signs measures on demand, and says
what follows if the number is on the wrong side of its limit. So the whole argument is in the tables, and the same
tables can be applied to stored numbers when thresholds are judged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from graphmend.progress import track
from graphmend.results.verdict import Evidence

__all__ = ["Check", "Log", "at_least", "at_most", "first_doubt"]

_LOG = logging.getLogger(__name__)


class Log:
    """Everything that a rule has looked at, in order; a context manager that removes its progress bar.

    Args:
        progress: Whether to show a progress bar.
    """

    def __init__(self, progress: bool = False) -> None:
        self.evidence: list[Evidence] = []
        self._bar = track(("broken rows", "added edges", "shifted features"), "examining", progress)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def begin(self) -> None:
        """Go on to the next of the three kinds of trouble."""
        next(self._bar, None)

    def add(self, evidence: Evidence) -> None:
        """Note what was measured."""
        self.evidence.append(evidence)
        _LOG.debug("%s", evidence)


@dataclass(frozen=True)
class Check:
    """One question of a rule.

    Args:
        sign: The attribute of the signs that holds the number.
        limit: Its limit.
        above: Whether it has to be at least that, or at most.
        words: What is measured, for a person.
        otherwise: What follows if the check fails; ``{value}`` is the number, ``{limit}`` its limit. Empty if nothing
            follows.
    """

    sign: str
    limit: float
    above: bool
    words: str
    otherwise: str = ""


def at_least(sign: str, limit: float, words: str, otherwise: str = "") -> Check:
    """The sign has to be large."""
    return Check(sign, limit, True, words, otherwise)


def at_most(sign: str, limit: float, words: str, otherwise: str = "") -> Check:
    """The sign has to be small."""
    return Check(sign, limit, False, words, otherwise)


def first_doubt(checks: Iterable[Check], signs: object, log: Log) -> str | None:
    """What follows from the first check that does not hold; ``None`` if all do. No sign after it is measured."""
    for check in checks:
        evidence = Evidence(check.words, float(getattr(signs, check.sign)), check.limit, check.above)
        log.add(evidence)
        if not evidence.holds:
            return check.otherwise.format(value=evidence.value, limit=check.limit)
    return None
