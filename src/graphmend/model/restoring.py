"""Ctrl-C never interrupts the restoring of a model or a random generator: it waits those microseconds.

Python raises ``KeyboardInterrupt`` between any two steps of the main thread, even those of a ``finally`` block. While a
:class:`Restoring` is open, the handler looks at what is interrupted: if that belongs to a function marked by
:func:`finishes`, the exception is raised when the function has returned, and at once everywhere else.
"""

from __future__ import annotations

import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType
from typing import Any, ParamSpec, Self, TypeVar

__all__ = ["Restoring", "finishes", "restoring"]

P = ParamSpec("P")
T = TypeVar("T")


class _Pending:
    """Whether Ctrl-C was pressed and waits."""

    pressed = False


def finishes(function: Callable[P, T]) -> Callable[P, T]:
    """Mark a function that Ctrl-C does not cut short while a :class:`Restoring` is open."""

    @functools.wraps(function)
    def finished(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return function(*arguments, **options)
        finally:
            _catch_up(sys._getframe().f_back)

    return finished


_MARKED = finishes(lambda: None).__code__
"""The code that all marked functions run in."""


def _is_finishing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code is not _MARKED:
        frame = frame.f_back
    return frame is not None


def _on_ctrl_c(otherwise: Callable[[int, FrameType | None], Any], number: int, frame: FrameType | None) -> None:
    if _is_finishing(frame):
        _Pending.pressed = True
    else:
        otherwise(number, frame)


def _catch_up(frame: FrameType | None) -> None:
    """Do what Ctrl-C should have done, unless a marked function is still running further up."""
    if not _Pending.pressed or not _is_main_thread() or _is_finishing(frame):
        return
    _Pending.pressed = False
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        handler(signal.SIGINT, frame)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class Restoring(ExitStack):
    """An ``ExitStack`` that is entered and left as a whole, whenever Ctrl-C is pressed.

    Args:
        managers: Context managers that are entered with it.
    """

    def __init__(self, *managers: AbstractContextManager[Any]) -> None:
        super().__init__()
        self._managers = managers

    def __enter__(self) -> Self:
        try:
            self._listen()
            for manager in self._managers:
                self.enter_context(manager)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    @finishes
    def _listen(self) -> None:
        before = signal.getsignal(signal.SIGINT)
        if _is_main_thread() and callable(before):  # no other thread is ever interrupted
            self.callback(signal.signal, signal.SIGINT, before)
            signal.signal(signal.SIGINT, functools.partial(_on_ctrl_c, before))

    @finishes
    def enter_context(self, cm: AbstractContextManager[T]) -> T:
        """Enter a context manager."""
        return super().enter_context(cm)

    @finishes
    def __exit__(self, *details: Any) -> bool | None:
        return super().__exit__(*details)


def restoring(function: Callable[P, Iterator[None]]) -> Callable[P, Restoring]:
    """As ``contextlib.contextmanager``, for a generator that changes something and puts it back."""
    make = contextmanager(function)

    @functools.wraps(function)
    def begin(*arguments: P.args, **options: P.kwargs) -> Restoring:
        return Restoring(make(*arguments, **options))

    return begin
