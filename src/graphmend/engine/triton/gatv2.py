"""The kernels of :mod:`graphmend.engine.gatv2` for NVIDIA GPUs, written in Triton.

As in :mod:`graphmend.engine.triton.gat` a program takes a few rows, for one head, and gathers a few neighbours of
each at a time; hubs have programs of their own. Neither scores nor attention are ever stored: both directions of the
gradient compute them again, from what the two ends of an edge have, the highest score and the sum of each row.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphmend.engine.triton.launch import (
    ceil_div,
    leaky_relu,
    neighbours_of,
    on_its_device,
    power_of_2,
    rows_of_program,
)
from graphmend.engine.tuning import HUB_DEGREE

if TYPE_CHECKING:
    from graphmend.engine.ops import Pattern

__all__ = ["by_column", "by_row", "forward"]


@triton.jit
def _forward_kernel(
    crow, col, weight, left, right, attention, out, top, inverse, rows, number, heads, width, slope,
    heavy: tl.constexpr, listed: tl.constexpr, many: tl.constexpr, tile: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    row, there, start, stop = rows_of_program(crow, rows, number, listed, heavy, many)
    node = row.to(tl.int64) * heads + head
    column = tl.arange(0, block)
    place = node[:, None] * width + column[None, :]
    both = there[:, None] & (column < width)[None, :]
    vector = tl.load(attention + head * width + column, mask=column < width, other=0.0)
    mine = tl.load(right + place, mask=both, other=0.0)
    raw = tl.load(left + place, mask=both, other=0.0) + mine
    loop_score = tl.sum(leaky_relu(raw, slope) * vector[None, :], axis=1)
    most = loop_score
    total = tl.zeros((many,), dtype=tl.float32)
    gathered = tl.zeros((many, tile, block), dtype=tl.float32)  # summed up at the end: every thread keeps its columns
    for first in range(0, tl.max(stop - start, axis=0), tile):
        entry = start[:, None] + first + tl.arange(0, tile)[None, :]
        present = entry < stop[:, None]
        neighbour = tl.load(col + entry, mask=present, other=0).to(tl.int64) * heads + head
        value = tl.load(weight + entry, mask=present, other=0.0)
        theirs = neighbours_of(left, neighbour, present, column, width)
        score = tl.sum(leaky_relu(theirs + mine[:, None, :], slope) * vector[None, None, :], axis=2)
        higher = tl.maximum(most, tl.max(tl.where(value > 0, score, float("-inf")), axis=1))
        shrink = tl.exp(most - higher)
        share = value * tl.exp(tl.minimum(score - higher[:, None], 40.0))
        total = total * shrink + tl.sum(share, axis=1)
        gathered = gathered * shrink[:, None, None] + theirs * share[:, :, None]
        most = higher
    own = tl.exp(loop_score - most)
    scale = 1.0 / (total + own + 1e-16)
    total_out = tl.sum(gathered, axis=1) + tl.load(left + place, mask=both, other=0.0) * own[:, None]
    tl.store(out + place, total_out * scale[:, None], mask=both)
    tl.store(top + node, most, mask=there)
    tl.store(inverse + node, scale, mask=there)


@triton.jit
def _row_kernel(
    crow, col, weight, left, right, attention, top, inverse, grad, out, inner, grad_right, grad_weight,
    rows, number, heads, width, slope, want_right: tl.constexpr, want_weight: tl.constexpr,
    heavy: tl.constexpr, listed: tl.constexpr, many: tl.constexpr, tile: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row, there, start, stop = rows_of_program(crow, rows, number, listed, heavy, many)
    column = tl.arange(0, block)
    both = there[:, None] & (column < width)[None, :]
    for head in range(heads):  # all in one program: they add to the gradient of the same weights
        node = row.to(tl.int64) * heads + head
        place = node[:, None] * width + column[None, :]
        vector = tl.load(attention + head * width + column, mask=column < width, other=0.0)
        grad_out = tl.load(grad + place, mask=both, other=0.0)
        dot = tl.sum(grad_out * tl.load(out + place, mask=both, other=0.0), axis=1)
        tl.store(inner + node, dot, mask=there)
        if want_right or want_weight:
            mine = tl.load(right + place, mask=both, other=0.0)
            most = tl.load(top + node, mask=there, other=0.0)
            scale = tl.load(inverse + node, mask=there, other=0.0)
            own = tl.load(left + place, mask=both, other=0.0)
            raw = own + mine
            share = tl.exp(tl.sum(leaky_relu(raw, slope) * vector[None, :], axis=1) - most) * scale
            flow = share * (tl.sum(grad_out * own, axis=1) - dot)
            total = tl.where(raw > 0, 1.0, slope) * flow[:, None]
            for first in range(0, tl.max(stop - start, axis=0), tile):
                entry = start[:, None] + first + tl.arange(0, tile)[None, :]
                present = entry < stop[:, None]
                neighbour = tl.load(col + entry, mask=present, other=0).to(tl.int64) * heads + head
                theirs = neighbours_of(left, neighbour, present, column, width)
                raws = theirs + mine[:, None, :]
                score = tl.sum(leaky_relu(raws, slope) * vector[None, None, :], axis=2)
                shares = tl.exp(tl.minimum(score - most[:, None], 40.0)) * scale[:, None]
                flows = shares * (tl.sum(theirs * grad_out[:, None, :], axis=2) - dot[:, None])
                if want_weight:
                    so_far = tl.load(grad_weight + entry, mask=present & (head > 0), other=0.0)
                    tl.store(grad_weight + entry, so_far + flows, mask=present)
                flows *= tl.load(weight + entry, mask=present, other=0.0)
                total += tl.sum(tl.where(raws > 0, 1.0, slope) * flows[:, :, None], axis=1)
            if want_right:
                tl.store(grad_right + place, total * vector[None, :], mask=both)
            if want_weight:
                tl.debug_barrier()  # the next head reads what other threads have written


@triton.jit
def _column_kernel(
    crow, col, weight, left, right, attention, top, inverse, grad, inner, grad_left,
    rows, number, heads, width, slope,
    heavy: tl.constexpr, listed: tl.constexpr, many: tl.constexpr, tile: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    row, there, start, stop = rows_of_program(crow, rows, number, listed, heavy, many)
    node = row.to(tl.int64) * heads + head
    column = tl.arange(0, block)
    place = node[:, None] * width + column[None, :]
    both = there[:, None] & (column < width)[None, :]
    vector = tl.load(attention + head * width + column, mask=column < width, other=0.0)
    mine = tl.load(left + place, mask=both, other=0.0)
    grad_out = tl.load(grad + place, mask=both, other=0.0)
    raw = mine + tl.load(right + place, mask=both, other=0.0)
    most = tl.load(top + node, mask=there, other=0.0)
    share = tl.exp(tl.sum(leaky_relu(raw, slope) * vector[None, :], axis=1) - most)
    share *= tl.load(inverse + node, mask=there, other=0.0)
    flow = share * (tl.sum(grad_out * mine, axis=1) - tl.load(inner + node, mask=there, other=0.0))
    total = tl.where(raw > 0, 1.0, slope) * flow[:, None]
    gathered = grad_out * share[:, None]
    for first in range(0, tl.max(stop - start, axis=0), tile):
        entry = start[:, None] + first + tl.arange(0, tile)[None, :]
        present = entry < stop[:, None]
        neighbour = tl.load(col + entry, mask=present, other=0).to(tl.int64) * heads + head
        grads_out = neighbours_of(grad, neighbour, present, column, width)
        raws = mine[:, None, :] + neighbours_of(right, neighbour, present, column, width)
        score = tl.sum(leaky_relu(raws, slope) * vector[None, None, :], axis=2)
        shares = tl.exp(tl.minimum(score - tl.load(top + neighbour, mask=present, other=0.0), 40.0))
        shares *= tl.load(inverse + neighbour, mask=present, other=0.0)
        shares *= tl.load(weight + entry, mask=present, other=0.0)
        dots = tl.load(inner + neighbour, mask=present, other=0.0)
        flows = shares * (tl.sum(grads_out * mine[:, None, :], axis=2) - dots)
        total += tl.sum(tl.where(raws > 0, 1.0, slope) * flows[:, :, None], axis=1)
        gathered += tl.sum(grads_out * shares[:, :, None], axis=1)
    tl.store(grad_left + place, gathered + total * vector[None, :], mask=both)


def _launches(left: Tensor, pattern: Pattern) -> Iterator[tuple[int, dict[str, int]]]:
    """How many programs take the ordinary rows, how many the hubs, and how each of them goes about it."""
    nodes, heads, width = left.shape
    block = power_of_2(width)
    light = (False, nodes, max(1, min(4, 64 // block)), 8 if block <= 128 else 4, 1)
    for listed, rows, many, tile, warps in (light, (True, pattern.hubs.numel(), 1, max(8, 4096 // block), 4)):
        if rows > 0:
            how = {"number": rows, "listed": listed, "many": many, "tile": tile, "block": block}
            yield ceil_div(rows, many), {**how, "heads": heads, "width": width, "heavy": HUB_DEGREE, "num_warps": warps}


@on_its_device
def forward(
    left: Tensor, right: Tensor, attention: Tensor, weight: Tensor, pattern: Pattern, slope: float
) -> tuple[Tensor, Tensor, Tensor]:
    """What every node gathers, the highest of its scores and the inverse of the sum of their exponentials."""
    out, top, inverse = torch.empty_like(left), left.new_empty(left.shape[:2]), left.new_empty(left.shape[:2])
    for programs, how in _launches(left, pattern):
        _forward_kernel[(programs, left.size(1))](
            pattern.crow, pattern.col, weight, left, right, attention, out, top, inverse, pattern.hubs,
            slope=slope, **how,
        )  # fmt: skip
    return out, top, inverse


@on_its_device
def by_row(
    grad: Tensor, out: Tensor, weight: Tensor, left: Tensor, right: Tensor, attention: Tensor, top: Tensor,
    inverse: Tensor, pattern: Pattern, slope: float, want_right: bool, want_weight: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """D, and the gradients that add up over the incoming edges: those of ``right`` and of the weights, if wanted."""
    inner = torch.empty_like(top)
    grad_right = torch.empty_like(right) if want_right else right  # nothing is written without
    grad_weight = torch.empty_like(weight) if want_weight else weight
    for programs, how in _launches(left, pattern):
        _row_kernel[(programs,)](
            pattern.crow, pattern.col, weight, left, right, attention, top, inverse, grad, out, inner, grad_right,
            grad_weight, pattern.hubs, slope=slope, want_right=want_right, want_weight=want_weight, **how,
        )  # fmt: skip
    return inner, grad_right if want_right else None, grad_weight if want_weight else None


@on_its_device
def by_column(
    grad: Tensor, inner: Tensor, weight: Tensor, left: Tensor, right: Tensor, attention: Tensor, top: Tensor,
    inverse: Tensor, pattern: Pattern, slope: float,
) -> Tensor:  # fmt: skip
    """The gradient of ``left``, which adds up over the outgoing edges; pattern and weight are transposed."""
    grad_left = torch.empty_like(left)
    for programs, how in _launches(left, pattern):
        _column_kernel[(programs, left.size(1))](
            pattern.crow, pattern.col, weight, left, right, attention, top, inverse, grad, inner, grad_left,
            pattern.hubs, slope=slope, **how,
        )  # fmt: skip
    return grad_left
