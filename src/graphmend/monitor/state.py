"""What a monitor remembers, in a file that is whole or not there, and that one monitor at a time may have."""

from __future__ import annotations

import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from graphmend.errors import GraphMendError, require
from graphmend.files.files import check_target, first_line, read_json, write_text
from graphmend.monitor.evidence import BETS, Bag, Detector
from graphmend.monitor.signs import CENTRED, KINDS, Signs

__all__ = ["CENTRE", "RECENT", "State", "alone", "append_line", "read_state", "write_state"]

FORMAT = "graphmend-monitor-1"
RECENT = 300  # entries that are kept for the page
CENTRE = 10  # graphs that say what is usual, for the kinds that need it
FILES = 100_000  # that may lie in a watched folder


@dataclass
class Watched:
    """One kind of trouble.

    Args:
        bag: The scores of all graphs so far.
        trusted: The scores of the graphs before the first bet.
        detector: The bets.
    """

    bag: Bag = field(default_factory=Bag)
    trusted: Bag = field(default_factory=Bag)
    detector: Detector = field(default_factory=Detector)


@dataclass
class State:
    """Everything that a monitor remembers of its stream. Its size does not grow with the stream.

    Args:
        card: Digest of the source card.
        rate: The false-alarm rate.
        seed: Seed of what breaks ties.
        graphs: How many graphs there were, bad ones included.
        decisions: How many of them came to which decision.
        centre: Sums of the signs of the first graphs, for the kinds that need to know what is usual.
        centre_graphs: How many graphs are in these sums.
        kinds: What is known of each kind of trouble.
        alarm: The alarm that stands, if one does.
        recent: The last entries.
        log_bytes: The length of the log when this was written.
        files: A mark of each file of a watched folder that was taken and still lies there.
    """

    card: str
    rate: float
    seed: int
    graphs: int = 0
    decisions: Counter[str] = field(default_factory=Counter)
    centre: Signs = field(default_factory=dict)
    centre_graphs: int = 0
    kinds: dict[str, Watched] = field(default_factory=lambda: {kind: Watched() for kind in KINDS})
    alarm: dict[str, Any] | None = None
    recent: list[dict[str, Any]] = field(default_factory=list)
    log_bytes: int = 0
    files: dict[str, str] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        kinds = {name: _kind_summary(kind) for name, kind in self.kinds.items()}
        return {"format": FORMAT, **vars(self), "decisions": dict(self.decisions), "kinds": kinds}

    @classmethod
    def of(cls, parts: dict[str, Any]) -> Self:
        """A state from its :meth:`summary`; raises where something in it cannot be right."""
        values = {name: value for name, value in parts.items() if name != "format"}
        state = cls(**{**values, "decisions": Counter(values["decisions"])})
        state.kinds = {name: _kind_of(state.kinds[name]) for name in KINDS}  # type: ignore[arg-type]
        state._check()
        return state

    def _check(self) -> None:
        whole = (self.graphs, self.centre_graphs, self.log_bytes, self.seed, *self.decisions.values())
        sums = [value for sign in self.centre.values() for value in sign]
        numbers = [self.rate, *sums]
        for kind in self.kinds.values():
            whole += (kind.detector.rounds, *kind.detector.starts, *kind.bag.counts.values(), *kind.bag.counts)
            numbers += kind.detector.gains
            lengths = {len(kind.detector.begun), len(kind.detector.gains), len(kind.detector.starts)}
            _must(lengths == {BETS} and not any(map(math.isnan, kind.detector.begun)))
        _must(all(type(value) is int and value >= 0 for value in whole))
        _must(all(isinstance(value, (int, float)) and math.isfinite(value) for value in numbers))
        _must(set(self.centre) in (set(), set(CENTRED)) and 0 < self.rate < 1 and self.centre_graphs <= CENTRE)
        _must(sum(self.decisions.values()) == self.graphs and isinstance(self.card, str))
        _must(all(isinstance(entry, dict) for entry in self.recent) and len(self.recent) <= RECENT)
        _must(all(isinstance(mark, str) for mark in self.files.values()))
        _must(self.alarm is None or isinstance(self.alarm, dict))


def _must(holds: bool) -> None:
    if not holds:
        raise ValueError("a number in it cannot be right")


def _kind_summary(kind: Watched) -> dict[str, Any]:
    bet = kind.detector
    begun = [None if value == -math.inf else value for value in bet.begun]
    bags = {name: sorted(bag.counts.items()) for name, bag in (("bag", kind.bag), ("trusted", kind.trusted))}
    return {**bags, "begun": begun, "gains": bet.gains, "starts": bet.starts, "rounds": bet.rounds}


def _kind_of(parts: dict[str, Any]) -> Watched:
    begun = [-math.inf if value is None else float(value) for value in parts["begun"]]
    detector = Detector(begun, [float(gain) for gain in parts["gains"]], list(parts["starts"]), parts["rounds"])
    bag, trusted = (Bag(Counter(dict(parts[name]))) for name in ("bag", "trusted"))
    return Watched(bag, trusted, detector)


def read_state(path: Path) -> State | None:
    """The state in a file; ``None`` if there is no such file."""
    if not path.exists():
        check_target(path)
        return None
    parts = read_json(path)
    form = parts.get("format") if isinstance(parts, dict) else None
    remedy = "give another file, or remove it to begin anew"
    require(form == FORMAT, f"{path} holds no state of a monitor in the format {FORMAT}; {remedy}")
    try:
        return State.of(parts)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise GraphMendError(f"the state {path} is damaged ({first_line(error)}); {remedy}") from error


def write_state(path: Path, state: State) -> None:
    """Write a state atomically."""
    write_text(path, json.dumps(state.summary(), separators=(",", ":"), allow_nan=False) + "\n")


def append_line(path: Path, entry: dict[str, Any], length: int) -> int:
    """Append an entry to a log of JSON lines; its new length returns.

    Args:
        path: The log.
        entry: What to append.
        length: How long the log was when the state was last written. What stands behind that is an entry of a process
            that was killed before it had written the state; the graph was taken again, and so the line is replaced. A
            log that is shorter was begun anew by somebody.
    """
    line = json.dumps(entry, allow_nan=False).encode() + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        start = min(length, file.seek(0, os.SEEK_END))
        file.truncate(start)
        file.write(line)
    return start + len(line)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold the lock of a state as long as the block runs; the system releases it when a process is killed."""
    check_target(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("ab") as file:
        try:
            _lock(file.fileno())
        except OSError as error:
            raise GraphMendError(
                f"another monitor has the state {path}; close that one, or give each a file of its own"
            ) from error
        yield


if sys.platform == "win32":

    def _lock(file: int) -> None:
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

else:

    def _lock(file: int) -> None:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
