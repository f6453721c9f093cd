"""The variables of Algorithm 1: the features X' and the flip probabilities p of one graph."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.engine.memory import empty_like
from graphmend.graph.edge_flips import EdgeFlips

__all__ = ["RelaxedGraph"]


class RelaxedGraph:
    """A graph whose features, and edges if they may flip, are leaves of an optimisation.

    Args:
        data: The graph; it is left as it was.
        flips: The edges that may flip, or ``None`` if all of them stay.
        weighted: Whether remaining edges have the weight 1, or no weight because the model takes none.
    """

    def __init__(self, data: Data, flips: EdgeFlips | None = None, *, weighted: bool = True) -> None:
        self.data, self.flips = data, flips
        self.x: Tensor = empty_like(data.x).copy_(data.x)
        self.edge_index: Tensor = data.edge_index if flips is None else flips.edge_index
        self._ones = self.x.new_ones(data.edge_index.size(1)) if flips is None and weighted else None

    def prepare(self) -> None:
        """Compute what is otherwise computed when first needed, because it cannot be computed inside a recording."""
        if self.flips is not None:
            _ = self.flips.places

    @property
    def p(self) -> Tensor | None:
        """The flip probabilities."""
        return None if self.flips is None else self.flips.p

    def presence(self, flips: Tensor | None = None) -> Tensor | None:
        """The weight of each edge for the current ``p``, or for a discrete choice."""
        return self._ones if self.flips is None else self.flips.presence(flips)

    def as_data(self, x: Tensor, presence: Tensor | None) -> Data:
        """The graph with these features and edge weights."""
        graph = copy.copy(self.data)
        graph.x, graph.edge_index, graph.edge_weight = x, self.edge_index, presence
        return graph

    def candidates(
        self, num_samples: int, generator: torch.Generator, kind: str = "sound"
    ) -> Iterator[tuple[str, Tensor]]:
        """Discrete choices of edges by name, one of the kinds of :data:`graphmend.graph.edge_flips.CANDIDATES`."""
        return iter(()) if self.flips is None else self.flips.discrete(num_samples, generator, kind)

    def changes(self, flips: Tensor | None) -> tuple[Tensor, Tensor]:
        """Positions of the removed edges, and the added edges."""
        none = self.data.edge_index[:, :0]
        return (none[0], none) if self.flips is None or flips is None else self.flips.changes(flips)
