"""What an adapter returns, and the adapter that changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.frozen import FrozenGNN
from graphmend.graph.checks import check_graph
from graphmend.graph.limits import Limits
from graphmend.results.patch import Patch


@dataclass(frozen=True)
class Step:
    """One step of an adapter: what was updated and what it cost."""

    index: int
    kind: str  #: "feature" or "edge"
    loss: float
    terms: dict[str, float]
    gradient_norm: float
    flipped: float  #: sum of the flip probabilities after the step
    seconds: float  #: since the start; if nobody watches the steps, a GPU may be behind


@dataclass(frozen=True)
class Candidate:
    """One discrete graph that was scored at the end."""

    name: str
    loss: float
    flips: int


@dataclass(frozen=True, eq=False)
class Adaptation:
    """A model and a graph that go together, and how they came about.

    Args:
        model: The model to predict with (for GTrans the caller's own).
        data: The graph to predict on, a new object.
        logits: The model's output on that graph.
        patch: The reversible change from the caller's graph to ``data``.
        history: One entry per step.
        candidates: The discrete graphs that were scored, in order; the one with the lowest loss was taken.
        reason: Why the graph was left as it was, or ``None``.
        seconds: Wall time.
    """

    model: nn.Module
    data: Data
    logits: Tensor
    patch: Patch
    history: list[Step] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    reason: str | None = None
    seconds: float = 0.0

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


@dataclass(frozen=True)
class Identity:
    """The adapter that changes nothing: plain prediction, the baseline of every comparison."""

    def __call__(
        self,
        model: nn.Module,
        data: Data,
        *,
        limits: Limits | None = None,
        seed: int = 0,
        progress: bool = False,
        callback: Callable[[Step], None] | None = None,
    ) -> Adaptation:
        """Predict on the graph as it is; the arguments are those of every adapter."""
        check_graph(data)
        with FrozenGNN(model, data, seed=seed) as frozen:
            return unchanged(frozen, data)


def unchanged(frozen: FrozenGNN, data: Data, **details: Any) -> Adaptation:
    """An adaptation that leaves the graph as it is."""
    nothing = data.edge_index[:, :0]
    patch, same = Patch.make(data, data.x.clone(), nothing[0], nothing)
    with torch.no_grad():
        return Adaptation(frozen.model, same, frozen.predict(same), patch, **details)
