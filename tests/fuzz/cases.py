"""One input of the fuzzer: made from a family and a seed, run once under limits, and judged.

Every input must end in a result or in a :class:`~graphmend.GraphMendError` whose message is one line, soon and in
little memory, and must leave the random number generators as they were. Anything else is a violation.
``(family, seed)`` stands for the input: the same two make it again.
"""

from __future__ import annotations

import contextlib
import logging
import random
import resource
import signal
import tempfile
import time
import traceback
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import numpy as np
import torch

from graphmend import GraphMendError
from support.untouched import generator_states

RESULT, REFUSAL, VIOLATION = "result", "refusal", "violation"


@dataclass(frozen=True)
class Case:
    """What is tried.

    Args:
        name: What it is, for a person.
        run: Tries it; returns, or raises :class:`GraphMendError` or whatever else goes wrong.
        may_seed: Whether it may set the global random number generators, as a command of its own process may.
    """

    name: str
    run: Callable[[], object]
    may_seed: bool = False


Family = Callable[[random.Random, Path], Case]
"""Makes a case from a seeded source of random choices, and a folder of its own that is empty."""


@dataclass(frozen=True)
class Outcome:
    """What became of one input; ``problem`` says in one line what was violated, if anything was."""

    family: str
    seed: int
    name: str
    kind: str
    seconds: float
    peak: int  #: bytes of memory that the process had at most
    problem: str = ""
    details: str = ""


class Violation(Exception):
    """A promise that was not kept, although no error was raised."""


class TooSlow(BaseException):
    """Raised by the timer; no ``except Exception`` catches it."""


def attempt(family: str, make: Family, seed: int, time_limit: float, memory_limit: int) -> Outcome:
    """Make an input, run it and judge it.

    Args:
        family: The name of the family.
        make: The family.
        seed: Which of its inputs.
        time_limit: Seconds it may take.
        memory_limit: Bytes the process may have in all.
    """
    name, problem, details, kind = "", "", "", VIOLATION
    with tempfile.TemporaryDirectory(prefix="fuzz") as folder, _quietly():
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            case = make(random.Random(f"{family} {seed}"), Path(folder))
        except Exception as error:
            problem = f"the input could not be made: {error!r}"
            return Outcome(family, seed, name, kind, 0.0, 0, problem, traceback.format_exc())
        name, before = case.name, generator_states()
        _forget_peak()
        start = time.perf_counter()
        try:
            with _timer(time_limit):
                case.run()
            kind = RESULT
        except GraphMendError as error:
            kind, problem = REFUSAL, _fault_of_message(str(error))
        except TooSlow as error:
            problem, details = f"longer than {time_limit:g} s {_place(error)}", traceback.format_exc()
        except Violation as error:
            problem, details = str(error), traceback.format_exc()
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            problem, details = f"{type(error).__name__} {_place(error)}: {_first_line(error)}", traceback.format_exc()
        seconds, peak = time.perf_counter() - start, peak_memory()
        if not problem and peak > memory_limit:
            problem = f"{peak / 2**30:.1f} GiB of memory"
        if not problem and not case.may_seed and not _same_states(before, generator_states()):
            problem = "the random number generators were changed"
    return Outcome(family, seed, name, VIOLATION if problem else kind, seconds, peak, problem, details)


def _fault_of_message(message: str) -> str:
    """What is wrong with the message of a refusal."""
    if not message.strip():
        return "a refusal without a message"
    return f"a refusal with control characters: {message[:200]!r}" if has_control_characters(message) else ""


def has_control_characters(text: str, allowed: str = "") -> bool:
    """Whether a text from a file could do more to a terminal than to be printed."""
    return any(unicodedata.category(character) == "Cc" and character not in allowed for character in text)


def _place(error: BaseException) -> str:
    """The innermost line of the library that an error came through, except for ``errors.py``."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/graphmend/" in frame.filename]
    frames = [frame for frame in frames if not frame.filename.endswith("/errors.py")]
    if not frames:
        return "outside of the library"
    return f"in {frames[-1].filename.rpartition('/graphmend/')[2]}:{frames[-1].lineno}"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else ""


def _same_states(before: list[object], after: list[object]) -> bool:
    pairs = zip(before, after, strict=True)
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)  # type: ignore[arg-type]


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without warnings and log messages; commands set handlers of their own, which do not stay."""
    log = logging.getLogger("graphmend")
    handlers, log.handlers = log.handlers, [logging.NullHandler()]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.handlers = handlers


@contextlib.contextmanager
def _timer(seconds: float) -> Iterator[None]:
    """Raise :class:`TooSlow` in the main thread after so many seconds."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    previous = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _forget_peak() -> None:
    """Let Linux measure the peak anew; elsewhere the peak is that of the process so far."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """The most memory this process had, in bytes."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
