r"""Differentiable sums over neighbours.

.. math:: Y_i = \sum_{e = (j \to i)} v_e X_j

The gradient for :math:`X` is the same product over the transposed pattern, the one for :math:`v` a sampled dense-dense
product, :math:`\partial v_e = \langle \partial Y_i, X_j \rangle`, computed only when it is needed. No ``E x hidden``
temporary is made. Everything takes per-edge values in row order (:meth:`Adjacency.order`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.autograd import apply, needed_gradients
from graphmend.engine.ops import at_least_single, gathered, hop, row_sums, sampled_product

__all__ = ["at_sources", "at_targets", "column_sums", "edge_softmax", "highest_score", "incoming_sum", "spmm"]


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
        _, for_values, for_x = needed_gradients(ctx)
        grad_values = sampled_product(a.pattern, grad, x) if for_values else None
        grad_x = hop(a.transpose, a.transposed(values), grad) if for_x else None
        return None, grad_values, grad_x


def spmm(adjacency: Adjacency, values: Tensor, x: Tensor) -> Tensor:
    r"""Weighted neighbour sum :math:`Y_i = \sum_{e=(j \to i)} v_e X_j`, differentiable in ``values`` and ``x``.

    Args:
        adjacency: The pattern.
        values: One value per edge, in row order, of shape ``(E,)``.
        x: Node features of shape ``(N, F)``.
    """
    dtype = at_least_single(x.dtype)
    out: Tensor = apply(_SpMM, adjacency, values.to(dtype), x.to(dtype))
    return out.to(x.dtype)


def column_sums(adjacency: Adjacency, values: Tensor) -> Tensor:
    """The sum of the values of each column, without a gradient."""
    if values.dim() == 1 and values.device.type == "cpu" and values.dtype == at_least_single(values.dtype):
        return values.new_zeros(adjacency.num_nodes).index_add_(0, adjacency.col, values)
    return row_sums(adjacency.transpose, adjacency.transposed(values))


class _IncomingSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, adjacency: Adjacency, values: Tensor) -> Tensor:
        ctx.adjacency = adjacency
        return row_sums(adjacency.pattern, values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, gathered(grad, ctx.adjacency.row)


class _AtEntries(torch.autograd.Function):
    """The values of nodes at the entries of their row or column; the gradient adds up in a fixed order."""

    @staticmethod
    def forward(ctx: Any, adjacency: Adjacency, values: Tensor, at_rows: bool) -> Tensor:
        ctx.adjacency, ctx.at_rows = adjacency, at_rows
        return gathered(values, adjacency.row if at_rows else adjacency.col)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        a: Adjacency = ctx.adjacency
        return None, row_sums(a.pattern, grad) if ctx.at_rows else column_sums(a, grad), None


def incoming_sum(adjacency: Adjacency, values: Tensor) -> Tensor:
    """The sum of the values of each node's incoming edges, for values ``(E,)`` or ``(E, heads)``."""
    out: Tensor = apply(_IncomingSum, adjacency, values)
    return out


def at_targets(adjacency: Adjacency, values: Tensor) -> Tensor:
    """``values[target]`` for every edge: the adjoint of :func:`incoming_sum`."""
    out: Tensor = apply(_AtEntries, adjacency, values, True)
    return out


def at_sources(adjacency: Adjacency, values: Tensor) -> Tensor:
    """``values[source]`` for every edge."""
    out: Tensor = apply(_AtEntries, adjacency, values, False)
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
    # Only an absent edge can lie above the maximum; the bound keeps its exponential and gradient finite.
    exponent = (score - top.index_select(0, adjacency.row)).clamp_(max=40.0)
    numerator = weight.unsqueeze(-1) * exponent.exp()
    total = incoming_sum(adjacency, numerator)
    loop = None if loop_score is None else (loop_score - top).exp()
    if loop is not None:
        total = total + loop
    inverse = (total + 1e-16).reciprocal()
    return numerator * at_targets(adjacency, inverse), None if loop is None else loop * inverse


def highest_score(adjacency: Adjacency, score: Tensor, weight: Tensor, loop_score: Tensor | None) -> Tensor:
    """The highest score among the edges of each row that exist, and its self-loop; 0 if there are none."""
    present = score.masked_fill((weight <= 0).unsqueeze(-1), -torch.inf)
    top = score.new_full((adjacency.num_nodes, score.size(1)), -torch.inf)
    top = top.scatter_reduce(0, adjacency.row.long().unsqueeze(-1).expand_as(present), present, "amax")
    if loop_score is not None:
        top = torch.maximum(top, loop_score)
    return top.masked_fill(top == -torch.inf, 0.0)
