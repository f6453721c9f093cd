"""Embedding several views of one graph in one pass: what a device is told, it is told once for all of them.

The three views of the contrastive loss have the same edge list and the same feature rows. Where a model takes them and
all have edge weights, they go through it together: on a GPU side by side, as features ``(N, views, F)`` and weights
``(views, E)``, so that a neighbour is looked up once for all; on a CPU, if they are small, one after the other as a
graph of ``views * N`` nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map_only
from torch_geometric.data import Data

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.cache import remembered, sharing
from graphmend.engine.shared_features import PRODUCTS, PROPERTIES, Rows, materialised

__all__ = ["embeddings"]

SMALL = 50_000  # nodes and edges of a graph of which a CPU takes all views at once: each operation is over soon


def embeddings(model: Any, graphs: Sequence[Data]) -> Sequence[Tensor]:
    """The model's embedding of every graph; ``model.views_along`` says how it takes several, if it does."""
    along = getattr(model, "views_along", None)
    if along is None or not _are_views(graphs) or (along == 0 and not _is_small(graphs[0])):
        with sharing():
            return [model.embed(graph.x, graph.edge_index, graph.get("edge_weight")) for graph in graphs]
    x, edge_index = SideBySide.of([graph.x for graph in graphs], along), graphs[0].edge_index
    weight = torch.stack([graph.edge_weight for graph in graphs])
    if along == 1:
        return model.embed(x, edge_index, weight).unbind(1)  # type: ignore[no-any-return]
    nodes = graphs[0].x.size(0)
    number, adjacency = len(graphs), Adjacency.of(edge_index, nodes)
    copies = remembered(("copies", number), (edge_index,), lambda: adjacency.copies(edge_index, number))
    return model.embed(x, copies, weight.view(-1)).split(nodes)  # type: ignore[no-any-return]


def _is_small(graph: Data) -> bool:
    return max(graph.x.size(0), graph.edge_index.size(1)) < SMALL  # type: ignore[no-any-return]


def _are_views(graphs: Sequence[Data]) -> bool:
    return len(graphs) <= 3 and all(
        isinstance(graph.x, Rows) and graph.edge_index is graphs[0].edge_index and graph.get("edge_weight") is not None
        for graph in graphs
    )


class SideBySide(Tensor):
    """Several :class:`Rows` of one shape as one tensor; linear maps are looked up in each."""

    _rows: list[Rows]
    _along: int

    @classmethod
    def of(cls, rows: list[Rows], along: int) -> SideBySide:
        """Put them side by side, ``(N, views, F)``, or along dimension 0 ``(views * N, F)``; nothing is copied."""
        nodes, width = rows[0].shape
        shape = (nodes, len(rows), width) if along == 1 else (len(rows) * nodes, width)
        make: Any = Tensor._make_wrapper_subclass
        self: SideBySide = make(cls, shape, dtype=rows[0].dtype, device=rows[0].device)
        self._rows, self._along = rows, along
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
                return me._joined([func(rows, *args[1:]) for rows in me._rows])
            if func is F.dropout and not (kwargs or {}).get("training", args[2] if len(args) > 2 else True):
                return me
        return func(*tree_map_only(SideBySide, _copied, args), **tree_map_only(SideBySide, _copied, kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Nobody gets here but what would lose the gradient."""
        raise TypeError(f"{func} does not go with views side by side")

    def _joined(self, views: list[Tensor]) -> Tensor:
        return torch.stack(views, dim=1) if self._along == 1 else torch.cat(views)


def _copied(x: SideBySide) -> Tensor:
    return x._joined([materialised(rows) for rows in x._rows])
