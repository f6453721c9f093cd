"""What a person sees while runs are carried out: which are at work, how many are left, and for how long."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from graphmend.lab.bench.store import Run

__all__ = ["Board", "duration"]

NAMED = 3
"""So many of the runs at work are named."""


class Board:
    """A line on standard error that is renewed, if that is a terminal.

    Args:
        total: How many runs there are.
        shown: Whether to show anything.
    """

    def __init__(self, total: int, shown: bool) -> None:
        self.working: dict[Run, None] = {}
        self.bar: Any = None
        if shown and total:
            self.bar = _bar()
            self.task = self.bar.add_task("beginning", total=total, left="unknown")

    def __enter__(self) -> Board:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def began(self, run: Run) -> None:
        """A run is at work."""
        self.working[run] = None
        self._show()

    def ended(self, run: Run, left: float | None, said: str) -> None:
        """A run has ended; ``left`` is the time for the others in seconds, and ``said`` stays on the screen."""
        self.working.pop(run, None)
        if self.bar is not None:
            self.bar.update(self.task, advance=1, left=duration(left))
            if said:
                self.bar.console.print(said, soft_wrap=True, highlight=False, markup=False)
        self._show()

    def _show(self) -> None:
        if self.bar is not None and self.working:
            names = [str(run) for run in self.working]
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            self.bar.update(self.task, description=", ".join(names[:NAMED]) + more)


def _bar() -> Any:
    from rich import progress  # when needed: on import it draws from Python's global random numbers
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=20),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("left {task.fields[left]}"),
    )
    return progress.Progress(*columns, console=Console(stderr=True), transient=True)


def duration(seconds: float | None) -> str:
    """A time in words.

    Example:
        >>> duration(59), duration(7500), duration(None)
        ('59 s', '2 h 5 min', 'unknown')
    """
    if seconds is None:
        return "unknown"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
