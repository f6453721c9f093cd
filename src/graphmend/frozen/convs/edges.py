"""The edges as a convolution with presences sees them, shared by all convolutions of this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import Linear

from graphmend.engine.adjacency import Adjacency, row_sum
from graphmend.errors import require

__all__ = ["FLOOR", "Edges", "linear_around", "power"]

FLOOR = 1e-12
"""A degree up to this counts as 0: its inverse square would overflow single precision in a gradient."""


class Edges(NamedTuple):
    """An edge list with, per edge in row order, its presence ``r`` and the model's own weight ``w``, if it has one."""

    adjacency: Adjacency
    presence: Tensor
    own_weight: Tensor | None
    origin: tuple[Tensor, ...]  #: the tensors it was made from

    @property
    def weight(self) -> Tensor:
        """What an edge adds to a sum: ``r * w``."""
        return self.presence if self.own_weight is None else self.presence * self.own_weight

    @classmethod
    def of(
        cls,
        presence: Tensor,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        size: tuple[int, int] | None = None,
    ) -> Edges:
        """Check what a convolution was called with and bring its edges into row order."""
        got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        require(
            isinstance(x, Tensor) and x.dim() == 2,
            f"edges can be learned for one (num_nodes, channels) feature matrix, not for bipartite input (got {got})",
        )
        require(
            isinstance(edge_index, Tensor) and edge_index.layout == torch.strided,
            "edges can be learned for a (2, num_edges) edge_index tensor only, not for a sparse adjacency",
        )
        num_nodes, num_edges = x.size(0), edge_index.size(1)
        require(
            presence.shape == (num_edges,),
            f"the convolution was called with {num_edges} edges but there are presences for {presence.numel()}:"
            " the model must pass its edge_index on unchanged",
        )
        require(
            size is None or tuple(size) == (num_nodes, num_nodes),
            f"bipartite message passing is not supported (got size {size} for {num_nodes} nodes)",
        )
        adjacency = Adjacency.of(edge_index, num_nodes)
        origin = (presence, edge_index) if edge_weight is None else (presence, edge_index, edge_weight)
        dtype = torch.float32 if x.dtype == torch.bfloat16 else x.dtype  # degrees want more than eight bits
        presence = adjacency.order(presence.to(dtype))
        if edge_weight is None:
            return cls(adjacency, presence, None, origin)
        require(
            edge_weight.numel() == num_edges,
            f"edge_weight must have one value per edge (got {edge_weight.numel()} for {num_edges} edges)",
        )
        return cls(adjacency, presence, adjacency.order(edge_weight.reshape(-1).to(dtype)), origin)

    def without_loops(self) -> Edges:
        """The same edges with every self-loop absent."""
        return self._replace(presence=self.presence.masked_fill(self.adjacency.is_loop, 0.0))

    def degree(self) -> Tensor:
        """The number of incoming edges per node, fractions included."""
        return row_sum(self.adjacency, self.presence)


def linear_around(lin: Any, x: Tensor, hop: Callable[[Tensor], Tensor]) -> Tensor:
    """``lin(hop(x))`` for a linear hop; with the weights first where that is narrower and nobody listens in."""
    weight = getattr(lin, "weight", None)
    heard = lin._forward_hooks or lin._forward_pre_hooks
    if type(lin) not in (nn.Linear, Linear) or heard or weight is None or weight.size(0) >= weight.size(1):
        out: Tensor = lin(hop(x))
        return out
    out = hop(F.linear(x, weight))
    return out if lin.bias is None else out + lin.bias


def power(degree: Tensor, exponent: float) -> Tensor:
    """``degree ** exponent``, but 0 with gradient 0 where a node has no edges (degree 0)."""
    empty = degree.abs() <= FLOOR
    return degree.masked_fill(empty, 1.0).pow(exponent).masked_fill(empty, 0.0)
