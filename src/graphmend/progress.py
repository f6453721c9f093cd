"""An optional progress bar with the remaining time, on standard error."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TypeVar

T = TypeVar("T")


def track(items: Iterable[T], label: str, show: bool, total: int | None = None) -> Generator[T, None, None]:
    """Iterate over ``items``, with a bar if ``show``; close the generator to remove the bar after an early exit."""
    if not show:
        yield from items
        return
    from rich import progress as bar  # when needed: on import it draws from Python's global random numbers
    from rich.console import Console

    columns = (
        bar.TextColumn("{task.description}"),
        bar.BarColumn(),
        bar.MofNCompleteColumn(),
        bar.TimeElapsedColumn(),
        bar.TextColumn("left"),
        bar.TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):  # a log file is no place for a bar
        yield from items
        return
    with bar.Progress(*columns, console=console, transient=True) as progress:
        yield from progress.track(items, total=total, description=label)
