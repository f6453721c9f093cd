"""What an adapter returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.engine.report import Report
from graphmend.results.history import Candidate, Step
from graphmend.results.patch import Patch

__all__ = ["Adaptation"]


@dataclass(frozen=True, eq=False)
class Adaptation:
    """A model and a graph that go together, and how they came about.

    Args:
        model: The model to predict with: the caller's own, or a changed copy of it.
        data: The graph to predict on, a new object.
        logits: The model's output on that graph.
        patch: The reversible change from the caller's graph to ``data``.
        history: One entry per step.
        candidates: The discrete graphs that were scored, in order; the one with the lowest loss was taken.
        reason: Why model and graph were left as they were, or ``None``.
        seconds: Wall time.
        engine: How it was computed: whether products of the features were shared, views stacked and steps recorded.
    """

    model: nn.Module
    data: Data
    logits: Tensor
    patch: Patch
    history: list[Step] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    reason: str | None = None
    seconds: float = 0.0
    engine: Report = field(default_factory=Report)

    def summary(self) -> dict[str, Any]:
        """The numbers people ask for, ready for JSON."""
        return {
            "steps": len(self.history),
            "loss_first": self.history[0].loss if self.history else None,
            "loss_last": self.history[-1].loss if self.history else None,
            "feature_rows_changed": self.patch.num_rows,
            "edge_entries_removed": self.patch.num_removed,
            "edge_entries_added": self.patch.num_added,
            "reason": self.reason,
            "seconds": round(self.seconds, 3),
        }
