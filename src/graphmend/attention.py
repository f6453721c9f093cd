r"""The attention of graph attention networks: softmax over the neighbours and their weighted sum in one operation.

.. math:: y_i = \sum_{e = (j \to i)} \alpha_e h_j + \alpha_i h_i, \qquad s_e = \mathrm{LeakyReLU}(a_j + b_i), \qquad
          \alpha_e = \frac{w_e\, e^{s_e - m_i}}{\sum_{e' \to i} w_{e'} e^{s_{e'} - m_i} + e^{s_i - m_i} + 10^{-16}}

for every head, with a self-loop of weight 1 at every node. An edge of weight 0 does not exist; :math:`m_i` is no less
than any score of an edge that does. With :math:`D_i = \langle \partial y_i, y_i \rangle` the gradients are

.. math:: \partial s_e = \alpha_e (\langle \partial y_i, h_j \rangle - D_i), \qquad
          \partial w_e = \frac{\alpha_e}{w_e} (\langle \partial y_i, h_j \rangle - D_i), \qquad
          \partial h_j = \sum_{e = (j \to i)} \alpha_e\, \partial y_i + \alpha_j\, \partial y_j

and nothing but the attention is kept for them; on a GPU not even that, it is computed again.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmend.functions import apply
from graphmend.kernels import has_triton, head_sums, hop, sampled_product
from graphmend.sparse import Adjacency, highest_score

__all__ = ["attend"]


def attend(
    adjacency: Adjacency, h: Tensor, source: Tensor, target: Tensor, weight: Tensor, slope: float = 0.2
) -> Tensor:
    """What every node gathers with its attention, differentiable in all tensors.

    Args:
        adjacency: The pattern.
        h: What is gathered, ``(N, heads, C)``, or of several views side by side ``(N, views, heads, C)``.
        source: a, the share of the sources in the scores, ``(N, heads)`` or ``(N, views, heads)``.
        target: b, that of the targets.
        weight: Edge weights in row order, ``(E,)`` or ``(views, E)``; 0 for self-loops, which all nodes have anyway.
        slope: Slope of LeakyReLU below zero.
    """
    if h.dtype == torch.bfloat16:  # scores want more than eight bits
        return attend(adjacency, h.float(), source.float(), target.float(), weight, slope).to(h.dtype)
    fused = h.dtype == torch.float32 and h.size(-1) <= 256 and has_triton(h.device)
    if h.dim() == 4 and not fused:
        views = zip(h.unbind(1), source.unbind(1), target.unbind(1), weight, strict=True)
        return torch.stack([attend(adjacency, *view, slope) for view in views], dim=1)
    out: Tensor = apply(_FusedAttend if fused else _Attend, adjacency, h, source, target, weight, slope)
    return out


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, a: Adjacency, h: Tensor, source: Tensor, target: Tensor, weight: Tensor, slope: float
    ) -> Tensor:
        before = source.index_select(0, a.col).add_(target.index_select(0, a.row))
        score, own = F.leaky_relu(before, slope), F.leaky_relu(source + target, slope)
        top = _bound(a, score, weight, own, source, target, slope)
        share = (score - top.index_select(0, a.row)).clamp_(max=40.0).exp_()  # only an absent edge can lie above
        own = (own - top).exp_()
        inverse = head_sums(a.pattern, share * weight.unsqueeze(-1)).add_(own).add_(1e-16).reciprocal_()
        share *= inverse.index_select(0, a.row)
        own *= inverse
        attention = (share * weight.unsqueeze(-1)).t().contiguous()
        out = torch.stack([hop(a.pattern, *both) for both in zip(attention, h.unbind(1), strict=True)], dim=1)
        out.addcmul_(own.unsqueeze(-1), h)
        ctx.a, ctx.slope = a, slope
        ctx.save_for_backward(h, source, target, weight, before, share, own, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a: Adjacency = ctx.a
        h, source, target, weight, before, share, own, out = ctx.saved_tensors
        grad = grad.contiguous()
        inner = torch.linalg.vecdot(grad, out)
        heads = [x.unbind(1) for x in (grad, h)]
        found = torch.stack([sampled_product(a.pattern, g, x) for g, x in zip(*heads, strict=True)], dim=1)
        found.sub_(inner.index_select(0, a.row)).mul_(share)
        grad_weight = found.sum(1) if ctx.needs_input_grad[4] else None
        if not any(ctx.needs_input_grad[1:4]):
            return None, None, None, None, grad_weight, None
        found.mul_(weight.unsqueeze(-1))
        found = torch.ops.aten.leaky_relu_backward(found, before, ctx.slope, False)
        loop = (torch.linalg.vecdot(grad, h) - inner).mul_(own)
        loop = torch.ops.aten.leaky_relu_backward(loop, source + target, ctx.slope, False)
        grad_target = head_sums(a.pattern, found).add_(loop)
        grad_source = head_sums(a.transpose, found.index_select(0, a.tperm)).add_(loop)
        attention = (share * weight.unsqueeze(-1)).index_select(0, a.tperm).t().contiguous()
        back = [hop(a.transpose, *both) for both in zip(attention, heads[0], strict=True)]
        grad_h = torch.stack(back, dim=1).addcmul_(own.unsqueeze(-1), grad)
        return None, grad_h, grad_source, grad_target, grad_weight, None


class _FusedAttend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, a: Adjacency, h: Tensor, source: Tensor, target: Tensor, weight: Tensor, slope: float
    ) -> Tensor:
        from graphmend import attention_triton

        h, source, target, weight = (t.contiguous() for t in (h, source, target, weight))
        out, top, inverse = attention_triton.forward(h, source, target, weight, a.pattern, slope)
        ctx.a, ctx.slope = a, slope
        ctx.save_for_backward(h, source, target, weight, out, top, inverse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from graphmend import attention_triton

        a: Adjacency = ctx.a
        h, source, target, weight, out, top, inverse = ctx.saved_tensors
        grad, saved = grad.contiguous(), (h, source, target, top, inverse)
        inner, grad_target, grad_weight = attention_triton.by_row(
            grad, out, weight, *saved, a.pattern, ctx.slope, ctx.needs_input_grad[4]
        )
        if not any(ctx.needs_input_grad[1:4]):
            return None, None, None, None, grad_weight, None
        turned = a.transposed(weight)
        grad_h, grad_source = attention_triton.by_column(grad, inner, turned, *saved, a.transpose, ctx.slope)
        return None, grad_h, grad_source, grad_target, grad_weight, None


def _bound(
    a: Adjacency, score: Tensor, weight: Tensor, own: Tensor, source: Tensor, target: Tensor, slope: float
) -> Tensor:
    """No less than any score of a node's edges: that of the highest source of all, where they are close together."""
    low, high = torch.aminmax(source, dim=0)
    if bool((high - low <= 16.0).all()):
        return F.leaky_relu(high + target, slope)
    return highest_score(a, score, weight, own)
