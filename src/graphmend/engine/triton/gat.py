"""The kernels of :mod:`graphmend.engine.gat` for NVIDIA GPUs, written in Triton.

As in a sparse product (:mod:`graphmend.engine.triton.spmm`), a program takes a few rows, here for one head, and gathers
a few neighbours of each at a time; hubs have programs of their own. Attention is never stored: both directions of the
gradient compute it again from the scores, their maximum and the sum of each row.
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
    crow, col, weight, h, source, target, out, top, inverse, rows, number, heads, width, slope,
    heavy: tl.constexpr, listed: tl.constexpr, many: tl.constexpr, tile: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    row, there, start, stop = rows_of_program(crow, rows, number, listed, heavy, many)
    row = row.to(tl.int64)
    column = tl.arange(0, block)
    place = (row * heads + head)[:, None] * width + column[None, :]
    both = there[:, None] & (column < width)[None, :]
    mine = tl.load(target + row * heads + head, mask=there, other=0.0)
    most = leaky_relu(tl.load(source + row * heads + head, mask=there, other=0.0) + mine, slope)
    total = tl.full((many,), 1.0, dtype=tl.float32)
    gathered = tl.load(h + place, mask=both, other=0.0)
    for first in range(0, tl.max(stop - start, axis=0), tile):
        entry = start[:, None] + first + tl.arange(0, tile)[None, :]
        present = entry < stop[:, None]
        neighbour = tl.load(col + entry, mask=present, other=0).to(tl.int64) * heads + head
        value = tl.load(weight + entry, mask=present, other=0.0)
        score = leaky_relu(tl.load(source + neighbour, mask=present, other=0.0) + mine[:, None], slope)
        higher = tl.maximum(most, tl.max(tl.where(value > 0, score, float("-inf")), axis=1))
        shrink = tl.exp(most - higher)
        share = value * tl.exp(tl.minimum(score - higher[:, None], 40.0))
        theirs = neighbours_of(h, neighbour, present, column, width)
        total = total * shrink + tl.sum(share, axis=1)
        gathered = gathered * shrink[:, None] + tl.sum(theirs * share[:, :, None], axis=1)
        most = higher
    scale = 1.0 / (total + 1e-16)
    tl.store(out + place, gathered * scale[:, None], mask=both)
    tl.store(top + row * heads + head, most, mask=there)
    tl.store(inverse + row * heads + head, scale, mask=there)


@triton.jit
def _row_kernel(
    crow, col, weight, h, source, target, top, inverse, grad, out, inner, grad_target, grad_weight,
    rows, number, heads, width, slope, want: tl.constexpr,
    heavy: tl.constexpr, listed: tl.constexpr, many: tl.constexpr, tile: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row, there, start, stop = rows_of_program(crow, rows, number, listed, heavy, many)
    row = row.to(tl.int64)
    column = tl.arange(0, block)
    both = there[:, None] & (column < width)[None, :]
    for head in range(heads):
        node = row * heads + head
        place = node[:, None] * width + column[None, :]
        slopes_in = tl.load(grad + place, mask=both, other=0.0)
        dot = tl.sum(slopes_in * tl.load(out + place, mask=both, other=0.0), axis=1)
        mine = tl.load(target + node, mask=there, other=0.0)
        most = tl.load(top + node, mask=there, other=0.0)
        scale = tl.load(inverse + node, mask=there, other=0.0)
        before = tl.load(source + node, mask=there, other=0.0) + mine
        own = tl.exp(leaky_relu(before, slope) - most) * scale
        flow_own = own * (tl.sum(slopes_in * tl.load(h + place, mask=both, other=0.0), axis=1) - dot)
        total = tl.where(before > 0, flow_own, flow_own * slope)
        for first in range(0, tl.max(stop - start, axis=0), tile):
            entry = start[:, None] + first + tl.arange(0, tile)[None, :]
            present = entry < stop[:, None]
            neighbour = tl.load(col + entry, mask=present, other=0).to(tl.int64) * heads + head
            theirs = neighbours_of(h, neighbour, present, column, width)
            raw = tl.load(source + neighbour, mask=present, other=0.0) + mine[:, None]
            share = tl.exp(tl.minimum(leaky_relu(raw, slope) - most[:, None], 40.0)) * scale[:, None]
            flow = share * (tl.sum(theirs * slopes_in[:, None, :], axis=2) - dot[:, None])
            if want:
                so_far = tl.load(grad_weight + entry, mask=present & (head > 0), other=0.0)
                tl.store(grad_weight + entry, so_far + flow, mask=present)
            flow *= tl.load(weight + entry, mask=present, other=0.0)
            total += tl.sum(tl.where(raw > 0, flow, flow * slope), axis=1)
        tl.store(inner + node, dot, mask=there)
        tl.store(grad_target + node, total, mask=there)


@triton.jit
def _column_kernel(
    crow, col, weight, h, source, target, top, inverse, grad, inner, grad_h, grad_source,
    rows, number, heads, width, slope,
    heavy: tl.constexpr, listed: tl.constexpr, many: tl.constexpr, tile: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    row, there, start, stop = rows_of_program(crow, rows, number, listed, heavy, many)
    row = row.to(tl.int64)
    column = tl.arange(0, block)
    node = row * heads + head
    place = node[:, None] * width + column[None, :]
    both = there[:, None] & (column < width)[None, :]
    mine = tl.load(source + node, mask=there, other=0.0)
    features = tl.load(h + place, mask=both, other=0.0)
    slopes_in = tl.load(grad + place, mask=both, other=0.0)
    before = mine + tl.load(target + node, mask=there, other=0.0)
    own = tl.exp(leaky_relu(before, slope) - tl.load(top + node, mask=there, other=0.0))
    own *= tl.load(inverse + node, mask=there, other=0.0)
    flow_own = own * (tl.sum(slopes_in * features, axis=1) - tl.load(inner + node, mask=there, other=0.0))
    total = tl.where(before > 0, flow_own, flow_own * slope)
    gathered = slopes_in * own[:, None]
    for first in range(0, tl.max(stop - start, axis=0), tile):
        entry = start[:, None] + first + tl.arange(0, tile)[None, :]
        present = entry < stop[:, None]
        neighbour = tl.load(col + entry, mask=present, other=0).to(tl.int64) * heads + head
        theirs = neighbours_of(grad, neighbour, present, column, width)
        raw = mine[:, None] + tl.load(target + neighbour, mask=present, other=0.0)
        share = tl.exp(tl.minimum(leaky_relu(raw, slope) - tl.load(top + neighbour, mask=present, other=0.0), 40.0))
        share *= tl.load(inverse + neighbour, mask=present, other=0.0)
        share *= tl.load(weight + entry, mask=present, other=0.0)
        their_dot = tl.load(inner + neighbour, mask=present, other=0.0)
        flow = share * (tl.sum(theirs * features[:, None, :], axis=2) - their_dot)
        total += tl.sum(tl.where(raw > 0, flow, flow * slope), axis=1)
        gathered += tl.sum(theirs * share[:, :, None], axis=1)
    tl.store(grad_h + place, gathered, mask=both)
    tl.store(grad_source + node, total, mask=there)


def _launches(h: Tensor, pattern: Pattern) -> Iterator[tuple[int, dict[str, int]]]:
    """How many programs take the ordinary rows, how many the hubs, and with which constants."""
    nodes, _, width = h.shape
    block = power_of_2(width)
    light = (False, nodes, max(1, min(4, 128 // block)), 8, 1)
    for listed, rows, many, tile, warps in (light, (True, pattern.hubs.numel(), 1, max(8, 4096 // block), 4)):
        if rows > 0:
            constants = {"number": rows, "listed": listed, "many": many, "tile": tile, "block": block}
            yield ceil_div(rows, many), {**constants, "heavy": HUB_DEGREE, "num_warps": warps}


@on_its_device
def forward(
    h: Tensor, source: Tensor, target: Tensor, weight: Tensor, pattern: Pattern, slope: float
) -> tuple[Tensor, Tensor, Tensor]:
    """What every node gathers, the maximum of its scores and the inverse of their sum."""
    _, heads, width = h.shape
    out, top, inverse = torch.empty_like(h), torch.empty_like(source), torch.empty_like(source)
    for programs, constants in _launches(h, pattern):
        _forward_kernel[(programs, heads)](
            pattern.crow, pattern.col, weight, h, source, target, out, top, inverse, pattern.hubs,
            heads=heads, width=width, slope=slope, **constants,
        )  # fmt: skip
    return out, top, inverse


@on_its_device
def by_row(
    grad: Tensor, out: Tensor, weight: Tensor, h: Tensor, source: Tensor, target: Tensor, top: Tensor, inverse: Tensor,
    pattern: Pattern, slope: float, want: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Gradients that add up over the incoming edges: D, that of the targets' share and, if wanted, of the weights."""
    _, heads, width = h.shape
    inner, grad_target = torch.empty_like(source), torch.empty_like(source)
    grad_weight = torch.empty_like(weight) if want else weight  # nothing is written without
    for programs, constants in _launches(h, pattern):
        _row_kernel[(programs,)](
            pattern.crow, pattern.col, weight, h, source, target, top, inverse, grad, out, inner, grad_target,
            grad_weight, pattern.hubs, heads=heads, width=width, slope=slope, want=want, **constants,
        )  # fmt: skip
    return inner, grad_target, grad_weight if want else None


@on_its_device
def by_column(
    grad: Tensor, inner: Tensor, weight: Tensor, h: Tensor, source: Tensor, target: Tensor, top: Tensor,
    inverse: Tensor, pattern: Pattern, slope: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients that add up over the outgoing edges, of h and of the sources' share; pattern and weight transposed."""
    _, heads, width = h.shape
    grad_h, grad_source = torch.empty_like(h), torch.empty_like(source)
    for programs, constants in _launches(h, pattern):
        _column_kernel[(programs, heads)](
            pattern.crow, pattern.col, weight, h, source, target, top, inverse, grad, inner, grad_h, grad_source,
            pattern.hubs, heads=heads, width=width, slope=slope, **constants,
        )  # fmt: skip
    return grad_h, grad_source
