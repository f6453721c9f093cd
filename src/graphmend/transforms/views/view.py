"""The contract of views."""

from __future__ import annotations

import copy
from typing import Protocol

import torch
from torch import Tensor
from torch_geometric.data import Data


class View(Protocol):
    """A random augmentation of a graph that keeps its nodes in place."""

    def __call__(self, data: Data, generator: torch.Generator | None = None) -> Data:
        """An augmented copy of ``data``."""
        ...


def with_edges(data: Data, keep: Tensor) -> Data:
    """A copy of ``data`` in which only the edges marked in ``keep`` are left, the others having weight 0."""
    out = copy.copy(data)
    weight = data.get("edge_weight")
    out.edge_weight = keep.to(data.x.dtype) if weight is None else weight * keep
    return out
