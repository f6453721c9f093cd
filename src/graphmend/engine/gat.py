r"""The attention of graph attention networks: softmax over the neighbours and their weighted sum in one operation.

.. math:: y_i = \sum_{e = (j \to i)} \alpha_e h_j + \alpha_i h_i, \qquad s_e = \mathrm{LeakyReLU}(a_j + b_i), \qquad
          \alpha_e = \frac{w_e\, e^{s_e - m_i}}{\sum_{e' \to i} w_{e'} e^{s_{e'} - m_i} + e^{s_i - m_i} + 10^{-16}}

for every head, with a self-loop of weight 1 at every node. An edge of weight 0 does not exist; :math:`m_i` is no less
than any score of an edge that does. With :math:`D_i = \langle \partial y_i, y_i \rangle` the gradients are

.. math:: \partial s_e = \alpha_e (\langle \partial y_i, h_j \rangle - D_i), \qquad
          \partial w_e = \frac{\alpha_e}{w_e} (\langle \partial y_i, h_j \rangle - D_i), \qquad
          \partial h_j = \sum_{e = (j \to i)} \alpha_e\, \partial y_i + \alpha_j\, \partial y_j

On a GPU the attention is not kept for the gradients but computed again.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.autograd import apply, needed_gradients
from graphmend.engine.neighbours import column_sums, highest_score
from graphmend.engine.ops import has_triton, hop, row_products, row_sums, sampled_product

__all__ = ["attend"]

MAX_FUSED_WIDTH = 256  # columns of a head that the fused kernels take


def attend(
    adjacency: Adjacency, h: Tensor, source: Tensor, target: Tensor, weight: Tensor, slope: float = 0.2
) -> Tensor:
    """What every node gathers with its attention, differentiable in all tensors.

    Args:
        adjacency: The pattern.
        h: What is gathered, ``(N, heads, C)``.
        source: a, the share of the sources in the scores, ``(N, heads)``.
        target: b, the share of the targets.
        weight: Edge weights in row order, ``(E,)``; 0 for self-loops, which all nodes have anyway.
        slope: Slope of LeakyReLU below zero.
    """
    if h.dtype in (torch.bfloat16, torch.float16):
        return attend(adjacency, h.float(), source.float(), target.float(), weight.float(), slope).to(h.dtype)
    if h.dtype == torch.float32 and h.size(-1) <= MAX_FUSED_WIDTH and has_triton(h.device):
        out: Tensor = apply(_FusedAttend, adjacency, h, source, target, weight, slope)
        return out
    nodes, heads, _ = h.shape
    apart, origin = _heads_apart(adjacency, heads)
    weight = weight if origin is None else weight.index_select(0, origin)
    parts = (h.flatten(0, 1), source.flatten(), target.flatten(), weight)
    out = apply(_Attend, apart, *parts, slope)
    return out.view(nodes, heads, -1)


def _heads_apart(adjacency: Adjacency, heads: int) -> tuple[Adjacency, Tensor | None]:
    """The graph with a node and a copy of its edges for every head, and which edges those are copies of."""
    if heads == 1:
        return adjacency, None

    def apart() -> tuple[Adjacency, Tensor]:
        degree = adjacency.crow.diff().repeat_interleave(heads)
        row = torch.arange(degree.numel(), device=degree.device).repeat_interleave(degree)
        first = degree.cumsum(0) - degree
        origin = torch.arange(row.numel(), device=row.device) - first[row] + adjacency.crow[row // heads]
        col = adjacency.col.index_select(0, origin) * heads + row % heads
        return Adjacency(torch.stack([col, row]), degree.numel()), origin

    return adjacency.derive(("heads", heads), apart)


class _Attend(torch.autograd.Function):
    """For one head."""

    @staticmethod
    def forward(
        ctx: Any, a: Adjacency, h: Tensor, source: Tensor, target: Tensor, weight: Tensor, slope: float
    ) -> Tensor:
        before = source.index_select(0, a.col).add_(target.index_select(0, a.row))
        score, own = F.leaky_relu(before, slope), F.leaky_relu(source + target, slope)
        top = _bound(a, score, weight, own, source, target, slope)
        share = score.sub_(top.index_select(0, a.row)).clamp_(max=40.0).exp_()  # only an absent edge can lie above
        own = own.sub_(top).exp_()
        attention = share * weight
        inverse = row_sums(a.pattern, attention).add_(own).add_(1e-16).reciprocal_()
        at_edges = inverse.index_select(0, a.row)
        share, attention, own = share.mul_(at_edges), attention.mul_(at_edges), own.mul_(inverse)
        out = hop(a.pattern, attention, h, loop=own)
        ctx.a, ctx.slope = a, slope
        ctx.save_for_backward(h, source, target, before, share, attention, own, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a: Adjacency = ctx.a
        h, source, target, before, share, attention, own, out = ctx.saved_tensors
        grad = grad.contiguous()
        inner = row_products(grad, out)
        flow = sampled_product(a.pattern, grad, h).sub_(inner.index_select(0, a.row))
        *for_rest, for_weight, _ = needed_gradients(ctx)
        grad_weight = flow * share if for_weight else None
        if not any(for_rest):
            return None, None, None, None, grad_weight, None
        leaky = torch.ops.aten.leaky_relu_backward
        flow = leaky(flow.mul_(attention), before, ctx.slope, False)
        loop = leaky((row_products(grad, h) - inner).mul_(own), source + target, ctx.slope, False)
        grad_target = row_sums(a.pattern, flow).add_(loop)
        grad_source = column_sums(a, flow).add_(loop)
        grad_h = hop(a.transpose, a.transposed(attention), grad, loop=own)
        return None, grad_h, grad_source, grad_target, grad_weight, None


class _FusedAttend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, a: Adjacency, h: Tensor, source: Tensor, target: Tensor, weight: Tensor, slope: float
    ) -> Tensor:
        from graphmend.engine.triton import gat as kernels

        h, source, target, weight = (t.contiguous() for t in (h, source, target, weight))
        out, top, inverse = kernels.forward(h, source, target, weight, a.pattern, slope)
        ctx.a, ctx.slope = a, slope
        ctx.save_for_backward(h, source, target, weight, out, top, inverse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from graphmend.engine.triton import gat as kernels

        a: Adjacency = ctx.a
        h, source, target, weight, out, top, inverse = ctx.saved_tensors
        grad, saved = grad.contiguous(), (h, source, target, top, inverse)
        *for_rest, for_weight, _ = needed_gradients(ctx)
        inner, grad_target, grad_weight = kernels.by_row(grad, out, weight, *saved, a.pattern, ctx.slope, for_weight)
        if not any(for_rest):
            return None, None, None, None, grad_weight, None
        weight_t = a.transposed(weight)
        grad_h, grad_source = kernels.by_column(grad, inner, weight_t, *saved, a.transpose, ctx.slope)
        return None, grad_h, grad_source, grad_target, grad_weight, None


def _bound(
    a: Adjacency, score: Tensor, weight: Tensor, own: Tensor, source: Tensor, target: Tensor, slope: float
) -> Tensor:
    """An upper bound for the scores of a node's edges: the highest source of all, if scores are close together."""
    if not source.is_cuda and 0.0 <= slope <= 1.0:
        low, high = torch.aminmax(source)
        if float(high - low) <= 16.0:
            return F.leaky_relu(high + target, slope)
    return highest_score(a, score.unsqueeze(-1), weight, own.unsqueeze(-1)).squeeze(-1)
