"""Identity."""

from __future__ import annotations

from dataclasses import dataclass

from graphmend.adapters.base import Adapter, Change, Task

__all__ = ["Identity"]


@dataclass(frozen=True)
class Identity(Adapter):
    """The adapter that changes nothing: plain prediction, the baseline of every comparison."""

    def adapt(self, task: Task) -> Change:
        """Nothing."""
        return Change()
