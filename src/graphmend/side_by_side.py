"""Embedding several views of one graph in one pass: a GPU is busy with all of them at once, and is told so once.

The three views of the contrastive loss have the same edge list and the same feature rows. Where a model takes them,
features ``(N, views, F)`` and edge weights ``(views, E)`` go through it side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map_only
from torch_geometric.data import Data

from graphmend.rows import PRODUCTS, PROPERTIES, Rows, materialised

__all__ = ["embeddings"]


def embeddings(model: Any, graphs: Sequence[Data]) -> Sequence[Tensor]:
    """The model's embedding of every graph."""
    if getattr(model, "takes_views", False) and _are_views(graphs):
        x = SideBySide.of([graph.x for graph in graphs])
        weight = torch.stack([graph.edge_weight for graph in graphs])
        z: Tensor = model.embed(x, graphs[0].edge_index, weight)
        return z.unbind(1)
    return [model.embed(graph.x, graph.edge_index, graph.get("edge_weight")) for graph in graphs]


def _are_views(graphs: Sequence[Data]) -> bool:
    return len(graphs) <= 3 and all(
        isinstance(graph.x, Rows) and graph.edge_index is graphs[0].edge_index and graph.get("edge_weight") is not None
        for graph in graphs
    )


class SideBySide(Tensor):
    """Several :class:`Rows` of one shape as ``(N, views, F)``; linear maps are looked up in each."""

    _rows: list[Rows]

    @classmethod
    def of(cls, rows: list[Rows]) -> SideBySide:
        """Put them side by side; nothing is copied."""
        nodes, width = rows[0].shape
        make: Any = Tensor._make_wrapper_subclass
        self: SideBySide = make(cls, (nodes, len(rows), width), dtype=rows[0].dtype, device=rows[0].device)
        self._rows = rows
        return self

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Linear maps of each; everything else works on a copy."""
        me = args[0] if args else None
        if isinstance(me, SideBySide):
            if func in PROPERTIES:
                with torch._C.DisableTorchFunctionSubclass():
                    return func(*args, **(kwargs or {}))
            if not kwargs and (func is F.linear or (func in PRODUCTS and args[1].dim() == 2)):
                return torch.stack([func(rows, *args[1:]) for rows in me._rows], dim=1)
            if func is F.dropout and not (kwargs or {}).get("training", args[2] if len(args) > 2 else True):
                return me
        return func(*tree_map_only(SideBySide, _stacked, args), **tree_map_only(SideBySide, _stacked, kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Nobody gets here but what would lose the gradient."""
        raise TypeError(f"{func} does not go with views side by side")


def _stacked(x: SideBySide) -> Tensor:
    return torch.stack([materialised(rows) for rows in x._rows], dim=1)
