"""DropEdge."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch_geometric.data import Data

from graphmend.errors import check_fields, real_number
from graphmend.graph.convert import with_edge_index
from graphmend.transforms.views.view import with_edges


@dataclass(frozen=True)
class DropEdge:
    """Drop every stored edge entry independently with probability ``p`` (Rong et al., ICLR 2020).

    The two directions of an undirected edge are dropped independently and the others are not rescaled.

    Example:
        >>> from torch_geometric.data import Data
        >>> data = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
        >>> DropEdge(1.0)(data).edge_weight
        tensor([0., 0.])
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        check_fields(self, real_number, "p", low=0, high=1)

    def __call__(self, data: Data, generator: torch.Generator | None = None) -> Data:
        """A copy with a fresh random set of edges."""
        data = with_edge_index(data)
        draw = torch.rand(data.edge_index.size(1), generator=generator, device=data.x.device)
        return with_edges(data, draw >= self.p)
