"""One measurement, named by its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FORMAT", "Run"]

FORMAT = 1
"""Part of every key, to be raised when a task measures something else for the same settings than before."""


@dataclass(frozen=True)
class Run:
    """A task with its settings: everything that decides the result, and nothing else.

    Two runs with the same content have the same key, so a finished one is never repeated, whichever experiment asks.

    Args:
        task: A key of :data:`graphmend.lab.bench.tasks.TASKS`.
        settings: Plain JSON values.
        needs: Runs whose results this one reads; they come first.

    Example:
        >>> Run("train", {"dataset": "cora", "seed": 0}).key == Run("train", {"seed": 0, "dataset": "cora"}).key
        True
    """

    task: str
    settings: Mapping[str, Any]
    needs: tuple[Run, ...] = field(default=(), compare=False, repr=False)

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def key(self) -> str:
        """A short hash of the content."""
        return hashlib.sha256(self.content().encode()).hexdigest()[:16]

    def content(self) -> str:
        """Task and settings as one line of text."""
        return json.dumps([FORMAT, self.task, self.settings], sort_keys=True)

    def __str__(self) -> str:
        words = (self.settings.get(name) for name in ("dataset", "backbone", "seed"))
        return " ".join([self.task, *(str(word) for word in words if word is not None)])
