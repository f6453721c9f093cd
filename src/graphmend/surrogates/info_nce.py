"""InfoNCE between two representations of the same nodes, a batch of nodes at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmend.engine.autograd import apply
from graphmend.errors import require
from graphmend.surrogates.rows import unit_rows

__all__ = ["info_nce"]


def info_nce(
    u: Tensor, v: Tensor, temperature: float, batch_size: int, generator: torch.Generator | None = None
) -> Tensor:
    r"""Symmetric InfoNCE whose denominator leaves out the positive pair.

    .. math:: \ell = \frac{1}{2N} \sum_i \left( \log \sum_{j \ne i} e^{s_{ij}} + \log \sum_{j \ne i} e^{s_{ji}} \right)
              - \frac1N \sum_i s_{ii}, \qquad s_{ij} = \cos(u_i, v_j) / t

    Nodes are compared within random batches of nearly equal size, drawn afresh at every call; a graph with no more
    nodes than ``batch_size`` is one batch. At no time is there more than one matrix of similarities of a batch: its
    gradient is computed together with the loss.

    Args:
        u: One row per node.
        v: Another row per node.
        temperature: t.
        batch_size: How many nodes are compared with each other at most, and no fewer than two.
        generator: Source of the batches.
    """
    nodes = u.size(0)
    require(nodes >= 2, f"InfoNCE compares nodes with each other, but the graph has {nodes}; use another surrogate")
    number = min(-(-nodes // batch_size), nodes // 2)  # no node is alone in a batch
    order = torch.randperm(nodes, generator=generator, device=u.device) if number > 1 else None
    loss: Tensor = apply(_InfoNCE, unit_rows(u), unit_rows(v), temperature, number, order)
    return loss


class _InfoNCE(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor, temperature: float, number: int, order: Tensor | None) -> Tensor:
        nodes, is_differentiable = u.size(0), any(ctx.needs_input_grad[:2])
        rows_of = torch.arange(nodes, device=u.device) if order is None else order
        total = u.new_zeros(())
        grads = [torch.zeros_like(u), torch.zeros_like(v)] if is_differentiable else []
        for rows in rows_of.tensor_split(number):
            mine, theirs = u.index_select(0, rows), v.index_select(0, rows)
            similarity = (mine @ theirs.t()).div_(temperature)
            positive = similarity.diagonal().clone()
            similarity.fill_diagonal_(-torch.inf)
            by_row, by_column = similarity.logsumexp(1, keepdim=True), similarity.logsumexp(0, keepdim=True)
            total += (0.5 * (by_row.view(-1) + by_column.view(-1)) - positive).sum()
            if is_differentiable:
                slope = (similarity - by_row).exp_().add_(similarity.sub_(by_column).exp_()).mul_(0.5)
                slope.fill_diagonal_(-1.0).div_(temperature * nodes)
                grads[0].index_copy_(0, rows, slope @ theirs)
                grads[1].index_copy_(0, rows, slope.t() @ mine)
        ctx.save_for_backward(*grads)
        return total / nodes

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        for_u, for_v = ctx.saved_tensors
        return grad * for_u, grad * for_v, None, None, None
