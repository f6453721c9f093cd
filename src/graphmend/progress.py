"""An optional progress bar with the remaining time, on standard error."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeVar

T = TypeVar("T")


def track(items: Sequence[T], label: str, show: bool) -> Generator[T, None, None]:
    """Iterate over ``items``, with a bar if ``show``; close the generator to remove the bar after an early exit."""
    if not show:
        yield from items
        return
    # imported when needed: it draws from Python's global random numbers
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield from progress.track(items, description=label)
