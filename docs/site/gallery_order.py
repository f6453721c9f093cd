"""In which order the gallery shows its pages: what most people need first."""

from __future__ import annotations

from typing import Any

FIRST = ("quick_start", "own_model", "no_labels_no_card", "ask", "attack", "many_graphs", "stream", "scale")


class Order:
    """A key for sorting; pages that are not named follow by name."""

    def __init__(self, folder: Any) -> None:
        self.folder = folder

    def __call__(self, file: str) -> tuple[int, str]:
        """Where the page of a file stands."""
        name = file.removesuffix(".py")
        return FIRST.index(name) if name in FIRST else len(FIRST), name
