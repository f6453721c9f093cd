r"""Sums over neighbours of a graph whose edges stay on the disk.

The edges of a mapped graph are sorted by target, so they are compressed rows as they lie there. A hop
:math:`Y = L A R X + \mathrm{diag}(\ell) X` with diagonal :math:`L` and :math:`R` reads them once, a range of targets at
a time; no value per edge is kept. Every range is a pure function of the features, for whoever works on the graph.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmend.engine.adjacency import _CACHE, Adjacency
from graphmend.engine.autograd import apply
from graphmend.engine.ops import Pattern, at_least_single
from graphmend.scratch import ROWS, large_empty

__all__ = ["StreamedAdjacency", "StreamedHops", "target_ranges"]


class Source(Protocol):
    """A graph whose edges are sorted by target."""

    edge_index: Tensor

    def offsets(self) -> Tensor | None:
        """Where the edges of each target begin, and where the last ones end."""
        ...

    def over(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """``function(item)`` for every item, in any order."""
        ...


class StreamedAdjacency(Adjacency):
    """The adjacency of a mapped graph: nothing is sorted or copied.

    Args:
        source: The graph.
        num_nodes: Its nodes.
        is_symmetric: Whether every edge is there in both directions.
    """

    def __init__(self, source: Source, num_nodes: int, is_symmetric: bool) -> None:
        offsets = source.offsets()
        assert offsets is not None
        self.source, self.num_nodes, self.is_symmetric = source, num_nodes, is_symmetric
        self.perm, self.crow = None, offsets
        self.col, self.row = source.edge_index
        self.pattern = Pattern(self.crow, self.col, self.row, self.crow[:0])
        self._derived = {}

    @classmethod
    def register(cls, source: Source, edge_index: Tensor, num_nodes: int, is_symmetric: bool) -> None:
        """Let :meth:`Adjacency.of` know the adjacency of an edge list.

        Args:
            source: A graph with another tensor of the same edges, so that nothing here keeps ``edge_index`` alive.
            edge_index: The edges.
            num_nodes: The nodes.
            is_symmetric: Whether every edge is there in both directions.
        """
        entry = _CACHE.get(id(edge_index))
        if entry is None or entry[0]() is not edge_index or not isinstance(entry[2], cls):
            cls(source, num_nodes, is_symmetric)._keep_for(edge_index)

    @functools.cached_property
    def has_loops(self) -> bool:  # type: ignore[override]
        """Whether there are self-loops."""
        blocks = zip(torch.split(self.col, ROWS), torch.split(self.row, ROWS), strict=True)
        return any(bool((col == row).any()) for col, row in blocks)

    @functools.cached_property
    def loops(self) -> Tensor:
        """How many self-loops each node has."""
        out = torch.zeros(self.num_nodes, dtype=torch.long)
        for col, row in zip(torch.split(self.col, ROWS), torch.split(self.row, ROWS), strict=True):
            at = row[col == row]
            out.index_add_(0, at, torch.ones_like(at))
        return out

    @functools.cached_property
    def is_loop(self) -> Tensor:  # type: ignore[override]
        """Which edges are self-loops."""
        return self.row == self.col

    @functools.cached_property
    def tperm(self) -> Tensor:  # type: ignore[override]
        """The edges by source."""
        return torch.argsort(self.col, stable=True)

    @functools.cached_property
    def transpose(self) -> Pattern:  # type: ignore[override]
        """The compressed rows by source."""
        if self.is_symmetric:
            return self.pattern
        col, row = self.row[self.tperm], self.col[self.tperm]
        return Pattern(torch.searchsorted(row, torch.arange(self.num_nodes + 1)), col, row, self.crow[:0])


def target_ranges(offsets: Tensor, edges: int = ROWS) -> list[tuple[int, int]]:
    """Ranges of targets with about so many edges each, or a single target with more."""
    nodes, total = offsets.numel() - 1, int(offsets[-1])
    goals = torch.arange(1, max(1, -(-total // edges))) * edges
    cuts = torch.searchsorted(offsets[1:].contiguous(), goals).tolist()
    bounds = [0, *sorted({cut for cut in cuts if 0 < cut < nodes}), nodes]
    return [(start, end) for start, end in itertools.pairwise(bounds) if end > start]


@dataclass(frozen=True)
class HopOnRange:
    """The sums over neighbours of the targets in a range, a pure function of it."""

    source: Source
    x: Tensor
    left: Tensor | None
    right: Tensor | None

    def __call__(self, bounds: tuple[int, int]) -> tuple[int, Tensor]:
        start, end = bounds
        offsets = self.source.offsets()
        assert offsets is not None
        crow = offsets[start : end + 1]
        col = self.source.edge_index[0, crow[0] : crow[-1]]
        weight = None if self.right is None else self.right.index_select(0, col)
        if self.x.dtype == torch.float32:
            own = crow - crow[0]
            out = F.embedding_bag(col, self.x, own, mode="sum", per_sample_weights=weight, include_last_offset=True)
        else:
            row = torch.arange(end - start).repeat_interleave(crow.diff())
            part = self.x.index_select(0, col)
            part = part if weight is None else part * weight.unsqueeze(1)
            out = self.x.new_zeros(end - start, self.x.size(1)).index_add_(0, row, part)
        return start, out if self.left is None else out.mul_(self.left[start:end].unsqueeze(1))


class StreamedHops:
    """A weighted adjacency to multiply with, as :class:`~graphmend.engine.propagation.Propagation` is.

    Args:
        adjacency: The pattern.
        left: A factor for each row.
        right: A factor for each column.
        loop: The diagonal.
    """

    def __init__(
        self, adjacency: StreamedAdjacency, left: Tensor | None, right: Tensor | None, loop: Tensor | None = None
    ) -> None:
        self.adjacency, self.left, self.right, self.loop = adjacency, left, right, loop

    def __call__(
        self,
        x: Tensor,
        *,
        add: Tensor | None = None,
        scale: Tensor | None = None,
        shift: Tensor | None = None,
        relu: bool = False,
    ) -> Tensor:
        """One hop and what a layer does around it."""
        dtype = at_least_single(x.dtype)
        if dtype != x.dtype:
            add = None if add is None else add.to(dtype)
            return self(x.to(dtype), add=add, scale=scale, shift=shift, relu=relu).to(x.dtype)
        out: Tensor = apply(_StreamedHop, self, x)
        for_gradient = out.requires_grad
        if add is not None:
            out = out + add if for_gradient or add.requires_grad else out.add_(add)
        if scale is not None:
            out = out * scale if for_gradient else out.mul_(scale)
        if shift is not None:
            out = out + shift if for_gradient else out.add_(shift)
        return out.relu() if relu else out

    def polynomial(self, x: Tensor, coefficients: Tensor) -> Tensor:
        """The sum of the powers of the matrix, times their coefficients, times ``x``."""
        out = x * coefficients[0]
        for coefficient in coefficients[1:]:
            x = self(x)
            out = out + x * coefficient
        return out

    def product(self, x: Tensor, *, back: bool = False) -> Tensor:
        """The product, or that of the transpose."""
        a, x = self.adjacency, x.detach().contiguous()
        left, right = (self.right, self.left) if back else (self.left, self.right)
        if back and not a.is_symmetric:
            out = large_empty(tuple(x.shape), x).zero_()
            for start, end in target_ranges(a.crow, ROWS // max(1, x.size(1))):
                at = slice(int(a.crow[start]), int(a.crow[end]))
                rows = x[a.row[at]] if right is None else x[a.row[at]] * right[a.row[at]].unsqueeze(1)
                out.index_add_(0, a.col[at], rows)
            if left is not None:
                out.mul_(left.unsqueeze(1))
        else:
            out = large_empty((a.num_nodes, x.size(1)), x)
            for start, rows in a.source.over(HopOnRange(a.source, x, left, right), target_ranges(a.crow)):
                out[start : start + rows.size(0)] = rows
        if self.loop is not None:
            out.addcmul_(self.loop.unsqueeze(1), x)
        return out


class _StreamedHop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hops: StreamedHops, x: Tensor) -> Tensor:
        ctx.hops = hops
        return hops.product(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, ctx.hops.product(grad, back=True)
