r"""The attention of GATv2: scores of pairs of nodes, softmax over the neighbours and their weighted sum in one.

.. math:: y_i = \sum_{e = (j \to i)} \alpha_e l_j + \alpha_i l_i, \qquad
          s_e = \sum_c a_c\, \mathrm{LeakyReLU}(l_j + r_i)_c, \qquad
          \alpha_e = \frac{w_e\, e^{s_e - m_i}}{\sum_{e' \to i} w_{e'} e^{s_{e'} - m_i} + e^{s_i - m_i} + 10^{-16}}

for every head, with a self-loop of weight 1 and score :math:`s_i = \sum_c a_c\, \mathrm{LeakyReLU}(l_i + r_i)_c` at
every node. An edge of weight 0 does not exist: :math:`m_i` is the highest score among the self-loop and the edges of
positive weight. With :math:`D_i = \langle \partial y_i, y_i \rangle` and the slopes
:math:`\lambda_e = \mathrm{LeakyReLU}'(l_j + r_i)`, one per channel, the gradients are

.. math:: \partial s_e = \alpha_e (\langle \partial y_i, l_j \rangle - D_i), \qquad
          \partial w_e = \frac{\alpha_e}{w_e} (\langle \partial y_i, l_j \rangle - D_i)

.. math:: \partial r_i = a \sum_{e = (j \to i)} \partial s_e \lambda_e + a\, \partial s_i \lambda_i, \qquad
          \partial l_j = a \sum_{e = (j \to i)} \partial s_e \lambda_e + a\, \partial s_j \lambda_j
                         + \sum_{e = (j \to i)} \alpha_e\, \partial y_i + \alpha_j\, \partial y_j

The vectors :math:`l_j + r_i` of all edges would take ``E x heads x C`` numbers. They are computed for one head and one
block of edges at a time, which stays in the cache of a CPU, and again for the gradients; one number per edge and head
is kept. On a GPU nothing is kept per edge (:mod:`graphmend.engine.triton.gatv2`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.autograd import apply, needed_gradients
from graphmend.engine.gat import MAX_FUSED_WIDTH
from graphmend.engine.neighbours import at_sources, at_targets, edge_softmax, highest_score, incoming_sum
from graphmend.engine.ops import Pattern, has_triton, hop, row_products, row_sums, sampled_product

__all__ = ["attend_v2"]
CACHED, PARALLEL = 1 << 19, 1 << 24  # numbers in a block of edges, for every thread of a CPU and on other devices
CLOSE = 16.0  # exp(-16) is still far above the 1e-16 in the denominator


def attend_v2(
    adjacency: Adjacency, left: Tensor, right: Tensor, attention: Tensor, weight: Tensor, slope: float = 0.2
) -> Tensor:
    """What every node gathers with its attention, differentiable in all tensors.

    Args:
        adjacency: The pattern.
        left: l, what is gathered and the share of the sources in the scores, ``(N, heads, C)``.
        right: r, the share of the targets in the scores, ``(N, heads, C)``; may be ``left`` itself.
        attention: a, the weights of the channels in the scores, ``(heads, C)``. If it requires a gradient, all is
            computed with ``E x heads x C`` temporaries.
        weight: Edge weights in row order, ``(E,)``; 0 for self-loops, which all nodes have anyway.
        slope: Slope of LeakyReLU below zero.
    """
    if left.dtype in (torch.bfloat16, torch.float16):
        short = left.dtype
        left, right, attention, weight = (t.float() for t in (left, right, attention, weight))
        return attend_v2(adjacency, left, right, attention, weight, slope).to(short)
    if attention.requires_grad and torch.is_grad_enabled():
        return _attend_v2_plainly(adjacency, left, right, attention, weight, slope)
    fused = left.dtype == torch.float32 and left.size(-1) <= MAX_FUSED_WIDTH and has_triton(left.device)
    function = _FusedAttendV2 if fused else _AttendV2
    out: Tensor = apply(function, adjacency, left, right, attention, weight, slope)
    return out


def _attend_v2_plainly(
    adjacency: Adjacency, left: Tensor, right: Tensor, attention: Tensor, weight: Tensor, slope: float
) -> Tensor:
    """The formula, operation by operation, for autograd to differentiate."""
    sources = at_sources(adjacency, left.flatten(1)).view(-1, *left.shape[1:])
    targets = at_targets(adjacency, right.flatten(1)).view_as(sources)
    score, loop_score = ((F.leaky_relu(sums, slope) * attention).sum(-1) for sums in (sources + targets, left + right))
    share, loop_share = edge_softmax(adjacency, score, weight, loop_score)
    assert loop_share is not None
    return incoming_sum(adjacency, share.unsqueeze(-1) * sources) + loop_share.unsqueeze(-1) * left


class _Block(NamedTuple):
    """Consecutive entries of a pattern, which belong to consecutive rows."""

    entries: slice
    pairs: Tensor  #: column of each entry, and its row beyond the number of nodes, ``(entries, 2)``
    offsets: Tensor  #: where the pair of each entry begins, and the last one ends
    rows: slice
    pattern: Pattern  #: the rows, with the entries of the block as its columns


def _blocks(adjacency: Adjacency, pattern: Pattern, width: int) -> list[_Block]:
    """The entries in blocks whose vectors of one head stay in the cache, cut once for every pattern and size."""
    numbers = CACHED * torch.get_num_threads() if pattern.col.device.type == "cpu" else PARALLEL
    size = max(256, numbers // width)
    key = ("blocks", pattern is not adjacency.pattern, size)
    return adjacency.derive(key, lambda: list(_cut_into_blocks(pattern, adjacency.num_nodes, size)))


def _cut_into_blocks(pattern: Pattern, nodes: int, size: int) -> Iterator[_Block]:
    crow, col, row, _ = pattern
    pairs = torch.stack([col, row + nodes], dim=1)
    numbers = torch.arange(size + 1, dtype=col.dtype, device=col.device)
    starts = range(0, col.numel(), size)
    first_rows, last_rows = row[::size].tolist(), [*row[size - 1 :: size].tolist(), *row[-1:].tolist()]
    for start, first, last in zip(starts, first_rows, last_rows, strict=False):
        entries, rows = slice(start, min(start + size, col.numel())), slice(first, last + 1)
        number = entries.stop - start
        inside = (crow[first : last + 2] - start).clamp(0, number)
        here = Pattern.of(inside, numbers[:number], row[entries] - first)
        yield _Block(entries, pairs[entries], 2 * numbers[: number + 1], rows, here)


def _pair_sums(table: Tensor, block: _Block) -> Tensor:
    """The sum of two rows of ``table`` for every entry of a block: two gathers and an addition in one operation."""
    if table.device.type == "cpu" and table.dtype == torch.float32:
        pairs = block.pairs.view(-1)
        return F.embedding_bag(pairs, table, block.offsets, mode="sum", include_last_offset=True)
    first, second = block.pairs.unbind(1)
    return table.index_select(0, first).add_(table.index_select(0, second))


class _AttendV2(torch.autograd.Function):
    """One head after the other, the edges in blocks."""

    @staticmethod
    def forward(
        ctx: Any, a: Adjacency, left: Tensor, right: Tensor, attention: Tensor, weight: Tensor, slope: float
    ) -> Tensor:
        left, right, attention, weight = (t.detach() for t in (left, right, attention, weight))
        nodes, heads, _ = left.shape
        out = torch.empty_like(left, memory_format=torch.contiguous_format)
        share, loop_share, inverse = (left.new_empty(heads, size) for size in (a.col.numel(), nodes, nodes))
        for k, vector in enumerate(attention):
            table = torch.cat([left[:, k], right[:, k]])
            _scores_above_loops(a, table, vector, slope, out=share[k])
            loop_share[k] = _exponentials_(share[k], a, weight)
            numerator = share[k] * weight
            inverse[k] = row_sums(a.pattern, numerator).add_(loop_share[k]).add_(1e-16).reciprocal_()
            gathered = hop(a.pattern, numerator, table[:nodes], loop=loop_share[k])
            torch.mul(gathered, inverse[k].unsqueeze(-1), out=out[:, k])
        ctx.a, ctx.slope = a, slope
        ctx.save_for_backward(left, right, attention, weight, out, share, loop_share, inverse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a: Adjacency = ctx.a
        left, right, attention, weight, out, share, loop_share, inverse = ctx.saved_tensors
        _, for_left, for_right, _, for_weight, _ = needed_gradients(ctx)
        grad_weight = torch.zeros_like(weight) if for_weight else None
        grad_left, grad_right = (torch.empty_like(out) if wanted else None for wanted in (for_left, for_right))
        for k, vector in enumerate(attention):
            theirs, mine = left[:, k].contiguous(), right[:, k]
            grad_y = grad[:, k] * inverse[k].unsqueeze(-1)  # in place of dividing the attention of every edge
            inner = row_products(grad_y, out[:, k])
            flow = sampled_product(a.pattern, grad_y, theirs).sub_(inner.index_select(0, a.row)).mul_(share[k])
            if grad_weight is not None:
                grad_weight += flow
            if grad_left is None and grad_right is None:
                continue
            flow, loop_flow = flow.mul_(weight), row_products(grad_y, theirs).sub_(inner).mul_(loop_share[k])
            steep = _steepness(theirs, mine)
            theirs, mine = theirs * steep, mine * steep
            at_loops = _slopes_(theirs + mine, ctx.slope).mul_(loop_flow.unsqueeze(-1))
            if grad_right is not None:
                sums = _slope_sums(a, a.pattern, torch.cat([theirs, mine]), flow, ctx.slope)
                torch.mul(sums.add_(at_loops), vector, out=grad_right[:, k])
            if grad_left is not None:
                sums = _slope_sums(a, a.transpose, torch.cat([mine, theirs]), a.transposed(flow), ctx.slope)
                gathered = hop(a.transpose, a.transposed(share[k] * weight), grad_y, loop=loop_share[k])
                torch.addcmul(gathered, sums.add_(at_loops), vector, out=grad_left[:, k])
        return None, grad_left, grad_right, None, grad_weight, None


class _FusedAttendV2(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, a: Adjacency, left: Tensor, right: Tensor, attention: Tensor, weight: Tensor, slope: float
    ) -> Tensor:
        from graphmend.engine.triton import gatv2 as kernels

        left, right, attention, weight = (t.contiguous() for t in (left, right, attention, weight))
        out, top, inverse = kernels.forward(left, right, attention, weight, a.pattern, slope)
        ctx.a, ctx.slope = a, slope
        ctx.save_for_backward(left, right, attention, weight, out, top, inverse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from graphmend.engine.triton import gatv2 as kernels

        a: Adjacency = ctx.a
        left, right, attention, weight, out, top, inverse = ctx.saved_tensors
        grad, saved = grad.contiguous(), (left, right, attention, top, inverse)
        _, for_left, for_right, _, for_weight, _ = needed_gradients(ctx)
        inner, grad_right, grad_weight = kernels.by_row(
            grad, out, weight, *saved, a.pattern, ctx.slope, for_right, for_weight
        )
        grad_left = None
        if for_left:
            turned = a.transposed(weight)
            grad_left = kernels.by_column(grad, inner, turned, *saved, a.transpose, ctx.slope)
        return None, grad_left, grad_right, None, grad_weight, None


def _scores_above_loops(a: Adjacency, table: Tensor, vector: Tensor, slope: float, out: Tensor) -> None:
    """By how much the score of every edge is above that of the self-loop at its target."""
    loop_score = torch.mv(F.leaky_relu_(table[: a.num_nodes] + table[a.num_nodes :], slope), vector)
    torch.index_select(loop_score, 0, a.row, out=out)
    for block in _blocks(a, a.pattern, table.size(1)):
        out[block.entries].addmv_(F.leaky_relu_(_pair_sums(table, block), slope), vector, beta=-1)


def _exponentials_(excess: Tensor, a: Adjacency, weight: Tensor) -> Tensor:
    r"""Turns :math:`s_e - s_i` into :math:`e^{s_e - m_i}` in place, and returns :math:`e^{s_i - m_i}`.

    In single precision the score of the self-loop is used instead of the highest one if none is far above it: the
    attention does not depend on what is subtracted from all scores of a row, and the maximum takes longer than the
    rest.
    """
    if excess.device.type == "cpu" and excess.dtype == torch.float32 and excess.numel() > 0 and excess.max() <= CLOSE:
        excess.exp_()
        return excess.new_ones(a.num_nodes)
    top = highest_score(a, excess.unsqueeze(-1), weight, excess.new_zeros(a.num_nodes, 1)).squeeze(-1)
    excess.sub_(top.index_select(0, a.row)).clamp_(max=40.0).exp_()  # only an absent edge can lie above
    return top.neg_().exp_()


def _slope_sums(a: Adjacency, pattern: Pattern, table: Tensor, values: Tensor, slope: float) -> Tensor:
    """The slopes of LeakyReLU at the entries of each row, times the values of the entries, added up."""
    total = table.new_zeros(a.num_nodes, table.size(1))
    for block in _blocks(a, pattern, table.size(1)):
        slopes = _slopes_(_pair_sums(table, block), slope)
        total[block.rows].add_(hop(block.pattern, values[block.entries], slopes))
    return total


def _steepness(left: Tensor, right: Tensor) -> float:
    """A power of 2 that lifts every positive sum of one number of each to 1 or more, and none of them to infinity.

    In single precision a sum may be as small as 2 ** -126 times the largest number.
    """
    if left.device.type != "cpu":
        return 1.0
    most = math.frexp(torch.finfo(left.dtype).max)[1] - 2
    _, exponent = math.frexp(max(float(left.abs().max()), float(right.abs().max())))
    return 2.0 ** min(most, most - exponent)


def _slopes_(sums: Tensor, slope: float) -> Tensor:
    """The slopes of LeakyReLU at sums of numbers that were multiplied by their steepness, in place.

    On a CPU two bounds take half the time of a sign, and a fifth of that of a comparison.
    """
    if sums.device.type != "cpu":
        sums.sign_()
    if 0.0 <= slope <= 1.0:
        return sums.clamp_(slope, 1.0)
    return sums.clamp_(0.0, 1.0).mul_(1.0 - slope).add_(slope)
