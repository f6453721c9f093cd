"""Purify: cut the edges between nodes that have too little in common."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from graphmend.adapters.base import Adapter, Change, Task
from graphmend.cards.edges import LEVELS, similarity
from graphmend.errors import require

__all__ = ["Purify"]


@dataclass(frozen=True)
class Purify(Adapter):
    r"""Cut the edges whose ends are less similar than nearly all edges of the training graph.

    The similarity is the cosine in the coordinates :math:`XW` of the model's first layer, where attacks that connect
    dissimilar nodes show most clearly; the threshold is a quantile of the training graph's edges, from the source card.
    Self-loops and frozen edges stay.

    Args:
        level: The quantile of the training graph's edges below which edges are cut, one of
            :data:`graphmend.cards.edges.LEVELS`.
    """

    level: float = 0.2

    def __post_init__(self) -> None:
        require(self.level in LEVELS, f"level must be one of {', '.join(map(str, LEVELS))} (got {self.level})")

    def adapt(self, task: Task) -> Change:
        """Compare the ends of all edges."""
        card, data = task.require_card(self), task.data
        similar = similarity(data.x @ task.require_frozen().first_map, data.edge_index)
        return Change(removed=removable(similar < card.quantile(self.level), task))


def removable(cut: Tensor, task: Task) -> Tensor:
    """Positions of the edges to cut, except for self-loops and frozen edges in either direction."""
    return (cut & task.limits.free_edges(task.data.edge_index, task.data.x.size(0))).nonzero().view(-1)
