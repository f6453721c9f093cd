"""Views drop edges by giving them the weight 0."""

from __future__ import annotations

import copy

from torch import Tensor
from torch_geometric.data import Data

from graphmend.contracts import View

__all__ = ["View", "with_edges"]


def with_edges(data: Data, keep: Tensor) -> Data:
    """A copy of ``data`` in which only the edges marked in ``keep`` are left, the others having weight 0."""
    out = copy.copy(data)
    weight = data.get("edge_weight")
    out.edge_weight = keep.to(data.x.dtype) if weight is None else weight * keep
    return out
