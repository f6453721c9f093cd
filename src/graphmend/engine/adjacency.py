r"""An edge list as compressed rows whose *values* change.

An edge list is sorted once (:class:`Adjacency`). From then on dropping, down-weighting and flipping edges change
values, never index lists: no inner loop sorts or coalesces anything.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor

from graphmend.engine.autograd import inverse_permutation, permuted
from graphmend.engine.ops import Pattern, gathered

__all__ = ["Adjacency"]

T = TypeVar("T")


class Adjacency:
    """Compressed rows of one edge list, by target node, together with its transpose.

    ``order`` brings per-edge values from the order of ``edge_index`` into row order; all operations take values in row
    order. Repeated edges are kept apart and simply add up.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        source, target = edge_index.long()  # the sort keys exceed 32 bits
        index = torch.int32 if max(num_nodes, edge_index.size(1)) < 2**31 else torch.int64
        key = target * num_nodes + source
        is_sorted = bool((key[1:] >= key[:-1]).all())
        self.num_nodes = num_nodes
        self.perm: Tensor | None = None if is_sorted else torch.argsort(key, stable=True).to(index)
        self.row, self.col = self.order(target.to(index)), self.order(source.to(index))
        self.crow = _offsets(self.row, num_nodes)
        # Entry k of the transposed pattern is entry tperm[k] of the pattern.
        self.tperm = torch.argsort(self.col, stable=True).to(index)
        row_t, col_t = self.col.index_select(0, self.tperm), self.row.index_select(0, self.tperm)
        self.is_symmetric = torch.equal(row_t, self.row) and torch.equal(col_t, self.col)
        self.pattern = Pattern.of(self.crow, self.col, self.row)
        self.transpose = self.pattern if self.is_symmetric else Pattern.of(_offsets(row_t, num_nodes), col_t, row_t)
        self.is_loop = self.row == self.col
        self.has_loops = bool(self.is_loop.any())
        self._derived: dict[Any, Any] = {}

    @classmethod
    def of(cls, edge_index: Tensor, num_nodes: int) -> Adjacency:
        """The adjacency of ``edge_index``, built on first use and kept as long as that tensor lives unchanged."""
        if edge_index.is_inference() or torch.is_inference_mode_enabled():  # cannot be kept for a backward pass
            return cls(edge_index, num_nodes)
        entry = _CACHE.get(id(edge_index))
        if entry is not None:
            tensor, version, adjacency = entry
            if tensor() is edge_index and version == edge_index._version and adjacency.num_nodes == num_nodes:
                return adjacency
        adjacency = cls(edge_index, num_nodes)
        adjacency._keep_for(edge_index)
        return adjacency

    @staticmethod
    def known(edge_index: Tensor) -> Adjacency | None:
        """The adjacency of ``edge_index``, if it has been built."""
        entry = _CACHE.get(id(edge_index))
        is_same = entry is not None and entry[0]() is edge_index and entry[1] == edge_index._version
        return entry[2] if entry is not None and is_same else None

    def _keep_for(self, edge_index: Tensor) -> None:
        key, cache = id(edge_index), _CACHE  # the lambda may run when the process ends and modules are empty
        cache[key] = (weakref.ref(edge_index, lambda _: cache.pop(key, None)), edge_index._version, self)

    def derive(self, key: Hashable, compute: Callable[[], T]) -> T:
        """What another module computes from this pattern alone, once; it must not refer to the adjacency itself.

        Inside a recording nothing is kept: what is computed there is overwritten by the next replay.
        """
        if key in self._derived:
            return self._derived[key]  # type: ignore[no-any-return]
        value = compute()
        if not (self.row.is_cuda and torch.cuda.is_current_stream_capturing()):
            self._derived[key] = value
        return value

    def copies(self, edge_index: Tensor, number: int) -> Tensor:
        """The edge list of several disjoint copies of this graph; their adjacency is known without sorting."""
        return self.derive(("copies", number), lambda: self._make_copies(edge_index, number))

    def _make_copies(self, edge_index: Tensor, number: int) -> Tensor:
        out, entries = Adjacency.__new__(Adjacency), self.row.numel()
        times = torch.arange(number, dtype=self.row.dtype, device=self.row.device).unsqueeze(-1)

        def repeated(index: Tensor, step: int) -> Tensor:
            return (index + step * times).view(-1)

        def repeated_pattern(pattern: Pattern) -> Pattern:
            end = torch.full_like(pattern.crow[:1], number * entries)
            crow = torch.cat([repeated(pattern.crow[:-1], entries), end])
            return Pattern.of(crow, repeated(pattern.col, self.num_nodes), repeated(pattern.row, self.num_nodes))

        out.num_nodes, out._derived = number * self.num_nodes, {}
        out.perm = None if self.perm is None else repeated(self.perm, entries)
        out.tperm = repeated(self.tperm, entries)
        out.pattern = repeated_pattern(self.pattern)
        out.transpose = out.pattern if self.is_symmetric else repeated_pattern(self.transpose)
        out.crow, out.col, out.row, _ = out.pattern
        out.is_symmetric, out.has_loops = self.is_symmetric, self.has_loops
        out.is_loop = self.is_loop.repeat(number)
        made = torch.cat([edge_index + k * self.num_nodes for k in range(number)], dim=1)
        out._keep_for(made)
        return made

    @functools.cached_property
    def inverse_perm(self) -> Tensor | None:
        """Where each column of ``edge_index`` went."""
        return None if self.perm is None else inverse_permutation(self.perm)

    def order(self, values: Tensor) -> Tensor:
        """Per-edge values from the order of ``edge_index`` into row order (differentiable)."""
        if self.perm is None:
            return values
        return permuted(values, self.perm, self.inverse_perm if values.requires_grad else None)

    def transposed(self, values: Tensor) -> Tensor:
        """Values in row order, in the row order of the transpose."""
        return gathered(values, self.tperm)


_CACHE: dict[int, tuple[weakref.ref[Tensor], int, Adjacency]] = {}


def _offsets(row: Tensor, num_nodes: int) -> Tensor:
    """Where each of the sorted rows begins, and where the last one ends."""
    nodes = torch.arange(num_nodes + 1, dtype=row.dtype, device=row.device)
    return torch.searchsorted(row, nodes, out_int32=row.dtype == torch.int32)
