r"""Message passing over a fixed edge list whose *values* change.

An edge list is sorted once into compressed rows (:class:`Adjacency`). From then on dropping, down-weighting
and flipping edges change values, never index lists: no sort and no coalesce in any inner loop. The product

.. math:: Y_i = \sum_{e = (j \to i)} v_e X_j

has hand-written gradients: the one for :math:`X` is the same product over the transposed pattern, the one for
:math:`v` a sampled dense-dense product, :math:`\partial v_e = \langle \partial Y_i, X_j \rangle`, computed only
when asked for. No ``E x hidden`` temporary is made.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmend.engine.autograd import apply, asked_for
from graphmend.engine.ops import Pattern, gathered, head_sums, hop, row_sums, sampled_product

__all__ = ["Adjacency", "at_columns", "at_rows", "column_sums", "edge_softmax", "head_sum", "row_sum", "spmm", "spread"]


class Adjacency:
    """Compressed rows of one edge list, by target node, together with its transpose.

    ``order`` brings per-edge values from the order of ``edge_index`` into row order; all kernels take values in row
    order. Repeated edges are kept apart and simply add up.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        source, target = edge_index.long()  # the keys below outgrow 32 bits
        index = torch.int32 if max(num_nodes, edge_index.size(1)) < 2**31 else torch.int64
        key = target * num_nodes + source
        is_sorted = bool((key[1:] >= key[:-1]).all())
        self.num_nodes = num_nodes
        self.perm: Tensor | None = None if is_sorted else torch.argsort(key, stable=True).to(index)
        self.row, self.col = self.order(target.to(index)), self.order(source.to(index))
        self.crow = _offsets(self.row, num_nodes)
        # The transposed pattern: entry k of the transpose is entry tperm[k] of the pattern.
        self.tperm = torch.argsort(self.col, stable=True).to(index)
        row_t, col_t = self.col.index_select(0, self.tperm), self.row.index_select(0, self.tperm)
        self.is_symmetric = torch.equal(row_t, self.row) and torch.equal(col_t, self.col)
        self.pattern = Pattern.of(self.crow, self.col, self.row)
        self.transpose = self.pattern if self.is_symmetric else Pattern.of(_offsets(row_t, num_nodes), col_t, row_t)
        self.is_loop = self.row == self.col
        self.has_loops = bool(self.is_loop.any())
        self.known: dict[Any, Any] = {}  # what others have worked out about this very pattern

    @classmethod
    def of(cls, edge_index: Tensor, num_nodes: int) -> Adjacency:
        """The adjacency of ``edge_index``, built on first use and kept as long as that tensor lives unchanged."""
        if edge_index.is_inference() or torch.is_inference_mode_enabled():  # not to be kept for a backward pass
            return cls(edge_index, num_nodes)
        found = _CACHE.get(id(edge_index))
        if found is not None:
            tensor, version, adjacency = found
            if tensor() is edge_index and version == edge_index._version and adjacency.num_nodes == num_nodes:
                return adjacency
        adjacency = cls(edge_index, num_nodes)
        adjacency._keep_for(edge_index)
        return adjacency

    def _keep_for(self, edge_index: Tensor) -> None:
        key = id(edge_index)
        _CACHE[key] = (weakref.ref(edge_index, lambda _: _CACHE.pop(key, None)), edge_index._version, self)

    def copies(self, edge_index: Tensor, number: int) -> Tensor:
        """The edge list of a graph of so many copies of this one, whose adjacency then is there without sorting."""
        out, entries = Adjacency.__new__(Adjacency), self.row.numel()
        times = torch.arange(number, dtype=self.row.dtype, device=self.row.device).unsqueeze(-1)

        def repeated(index: Tensor, step: int) -> Tensor:
            return (index + step * times).view(-1)

        def repeated_pattern(pattern: Pattern) -> Pattern:
            crow = torch.cat([repeated(pattern.crow[:-1], entries), pattern.crow.new_tensor([number * entries])])
            return Pattern.of(crow, repeated(pattern.col, self.num_nodes), repeated(pattern.row, self.num_nodes))

        out.num_nodes, out.known = number * self.num_nodes, {}
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
        if self.perm is None:
            return None
        places = torch.arange(self.perm.numel(), dtype=self.perm.dtype, device=self.perm.device)
        return torch.empty_like(self.perm).index_copy_(0, self.perm.long(), places)

    def order(self, values: Tensor) -> Tensor:
        """Per-edge values from the order of ``edge_index`` into row order (differentiable), edges first."""
        if self.perm is None:
            return values
        if values.requires_grad and torch.is_grad_enabled():
            out: Tensor = apply(_Order, self, values)
            return out
        return values.index_select(0, self.perm)

    def order_views(self, values: Tensor) -> Tensor:
        """The same for values ``(E,)`` or ``(views, E)``."""
        if self.perm is None or values.dim() == 1:
            return self.order(values)
        return torch.stack([self.order(view) for view in values])

    def transposed(self, values: Tensor) -> Tensor:
        """Values in row order, ``(E,)`` or ``(views, E)``, in the row order of the transpose."""
        return gathered(values, self.tperm)


def column_sums(adjacency: Adjacency, values: Tensor) -> Tensor:
    """The sum of the values of each column, for values in row order."""
    if values.device.type == "cpu" and values.dtype != torch.bfloat16:
        return values.new_zeros((*values.shape[:-1], adjacency.num_nodes)).index_add_(-1, adjacency.col, values)
    return row_sums(adjacency.transpose, adjacency.transposed(values))


_CACHE: dict[int, tuple[weakref.ref[Tensor], int, Adjacency]] = {}


def _offsets(row: Tensor, num_nodes: int) -> Tensor:
    """Where each of the sorted rows begins, and the last one ends."""
    nodes = torch.arange(num_nodes + 1, dtype=row.dtype, device=row.device)
    return torch.searchsorted(row, nodes, out_int32=row.dtype == torch.int32)


class _Order(torch.autograd.Function):
    """A permutation, whose gradient is a gather too; that of ``index_select`` scatters."""

    @staticmethod
    def forward(ctx: Any, adjacency: Adjacency, values: Tensor) -> Tensor:
        ctx.adjacency = adjacency
        assert adjacency.perm is not None
        return values.index_select(0, adjacency.perm)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, grad.index_select(0, ctx.adjacency.inverse_perm)


class _SpMM(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, adjacency: Adjacency, values: Tensor, x: Tensor) -> Tensor:
        ctx.adjacency = adjacency
        ctx.save_for_backward(values, x if ctx.needs_input_grad[1] else None)
        return hop(adjacency.pattern, values, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        a: Adjacency = ctx.adjacency
        values, x = ctx.saved_tensors
        _, for_values, for_x = asked_for(ctx)
        grad_values = sampled_product(a.pattern, grad, x) if for_values else None
        grad_x = hop(a.transpose, a.transposed(values), grad) if for_x else None
        return None, grad_values, grad_x


def spmm(adjacency: Adjacency, values: Tensor, x: Tensor) -> Tensor:
    r"""Weighted neighbour sum :math:`Y_i = \sum_{e=(j \to i)} v_e X_j`, differentiable in ``values`` and ``x``.

    Args:
        adjacency: The pattern.
        values: One value per edge, in row order (``adjacency.order``), of shape ``(E,)``.
        x: Node features of shape ``(N, F)``.
    """
    values = values if x.dtype == torch.bfloat16 else values.to(x.dtype)
    out: Tensor = apply(_SpMM, adjacency, values, x)
    return out


class _RowSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, adjacency: Adjacency, values: Tensor) -> Tensor:
        ctx.adjacency = adjacency
        return row_sums(adjacency.pattern, values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, gathered(grad, ctx.adjacency.row)


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, adjacency: Adjacency, values: Tensor) -> Tensor:
        ctx.adjacency = adjacency
        return gathered(values, adjacency.row)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, row_sums(ctx.adjacency.pattern, grad)


class _HeadSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, adjacency: Adjacency, values: Tensor) -> Tensor:
        ctx.adjacency = adjacency
        return head_sums(adjacency.pattern, values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, grad.index_select(0, ctx.adjacency.row)


class _AtEntries(torch.autograd.Function):
    """What nodes have, at the entries of their row or column; the gradient adds up rows, in a fixed order."""

    @staticmethod
    def forward(ctx: Any, adjacency: Adjacency, values: Tensor, at_rows: bool) -> Tensor:
        ctx.adjacency, ctx.at_rows = adjacency, at_rows
        return values.index_select(0, adjacency.row if at_rows else adjacency.col)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        a: Adjacency = ctx.adjacency
        if ctx.at_rows:
            return None, head_sums(a.pattern, grad), None
        return None, head_sums(a.transpose, grad.index_select(0, a.tperm)), None


def at_rows(adjacency: Adjacency, values: Tensor) -> Tensor:
    """``values[target]`` for every edge in row order."""
    out: Tensor = apply(_AtEntries, adjacency, values, True)
    return out


def at_columns(adjacency: Adjacency, values: Tensor) -> Tensor:
    """``values[source]`` for every edge in row order."""
    out: Tensor = apply(_AtEntries, adjacency, values, False)
    return out


def row_sum(adjacency: Adjacency, values: Tensor) -> Tensor:
    """Sum of the values of each row: weighted in-degrees, for values of shape ``(E,)`` or ``(views, E)``."""
    out: Tensor = apply(_RowSum, adjacency, values)
    return out


def spread(adjacency: Adjacency, values: Tensor) -> Tensor:
    """What nodes have, ``(N,)`` or ``(views, N)``, at the entries of their row: the adjoint of :func:`row_sum`."""
    out: Tensor = apply(_Spread, adjacency, values)
    return out


def head_sum(adjacency: Adjacency, values: Tensor) -> Tensor:
    """Sum of the values of each row, for several values per edge, ``(E, heads)``."""
    out: Tensor = apply(_HeadSum, adjacency, values)
    return out


def edge_softmax(
    adjacency: Adjacency, score: Tensor, weight: Tensor, loop_score: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    r"""Softmax over the incoming edges of each node in which an edge of weight 0 does not exist.

    .. math:: \alpha_e = \frac{w_e \exp(s_e - m_i)}{\sum_{e' \to i} w_{e'} \exp(s_{e'} - m_i) + 10^{-16}},
              \qquad m_i = \max_{e \to i,\; w_e > 0} s_e

    The maximum runs over edges that exist, so a vanished edge cannot push the others to underflow, and there is no
    logarithm of a weight, so the gradient at :math:`w_e = 0` is finite.

    Args:
        adjacency: The pattern.
        score: Attention scores in row order, of shape ``(E, heads)``.
        weight: Edge weights in row order, of shape ``(E,)``.
        loop_score: Scores of one self-loop of weight 1 per node, of shape ``(N, heads)``, or ``None``.

    Returns:
        The attention of the edges, ``(E, heads)``, and of the self-loops.
    """
    with torch.no_grad():
        top = highest_score(adjacency, score, weight, loop_score)
    # Only an absent edge can lie above the maximum; its bound keeps exp and its gradient finite.
    exponent = (score - top.index_select(0, adjacency.row)).clamp_(max=40.0)
    numerator = weight.unsqueeze(-1) * exponent.exp()
    total = head_sum(adjacency, numerator)
    loop = None if loop_score is None else (loop_score - top).exp()
    if loop is not None:
        total = total + loop
    inverse = (total + 1e-16).reciprocal()
    return numerator * at_rows(adjacency, inverse), None if loop is None else loop * inverse


def highest_score(adjacency: Adjacency, score: Tensor, weight: Tensor, loop_score: Tensor | None) -> Tensor:
    """The highest score among the edges of each row that exist, and its self-loop; 0 if there are none."""
    present = score.masked_fill((weight <= 0).unsqueeze(-1), -torch.inf)
    top = score.new_full((adjacency.num_nodes, score.size(1)), -torch.inf)
    top = top.scatter_reduce(0, adjacency.row.long().unsqueeze(-1).expand_as(present), present, "amax")
    if loop_score is not None:
        top = torch.maximum(top, loop_score)
    return top.masked_fill(top == -torch.inf, 0.0)
