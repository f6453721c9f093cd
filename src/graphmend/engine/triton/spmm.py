"""The products of :mod:`graphmend.engine.ops` for NVIDIA GPUs, written in Triton.

A program of one warp takes a few rows of a sparse product and gathers a few neighbours of each at a time. The few rows
with very many neighbours get wide programs of their own; otherwise a single hub would keep the whole device waiting.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"
from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphmend.engine.triton.launch import ceil_div, on_its_device, power_of_2, rows_of_program
from graphmend.engine.tuning import HUB_DEGREE

if TYPE_CHECKING:
    from graphmend.engine.ops import Pattern

__all__ = ["gathered", "hop", "relu_gradient", "row_sums", "sampled_product", "scaled"]

MAX_COLUMNS = 128  # columns a program takes at most


@triton.jit
def _hop_kernel(
    crow, col, values, x, loop, add, scale, shift, out, rows, number, width,
    heavy: tl.constexpr, listed: tl.constexpr, far: tl.constexpr,
    has_loop: tl.constexpr, has_add: tl.constexpr, has_scale: tl.constexpr, has_shift: tl.constexpr,
    relu: tl.constexpr, many: tl.constexpr, tile: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row, there, start, stop = rows_of_program(crow, rows, number, listed, heavy, many)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < width
    total = tl.zeros((many, block), dtype=tl.float32)
    for first in range(0, tl.max(stop - start, axis=0), tile):
        entry = start[:, None] + first + tl.arange(0, tile)[None, :]
        present = entry < stop[:, None]
        neighbour = tl.load(col + entry, mask=present, other=0)
        if far:
            neighbour = neighbour.to(tl.int64)
        place = neighbour[:, :, None] * width + column[None, None, :]
        part = tl.load(x + place, mask=present[:, :, None] & inside[None, None, :], other=0.0)
        value = tl.load(values + entry, mask=present, other=0.0)
        total += tl.sum(part * value[:, :, None], axis=1)
    place = row[:, None].to(tl.int64) * width + column[None, :]
    both = there[:, None] & inside[None, :]
    if has_loop:
        own = tl.load(x + place, mask=both, other=0.0)
        total += tl.load(loop + row, mask=there, other=0.0)[:, None] * own
    if has_add:
        total += tl.load(add + place, mask=both, other=0.0)
    if has_scale:
        total *= tl.load(scale + column, mask=inside, other=0.0)[None, :]
    if has_shift:
        total += tl.load(shift + column, mask=inside, other=0.0)[None, :]
    if relu:
        total = tl.maximum(total, 0.0)
    tl.store(out + place, total, mask=both)


@triton.jit
def _sampled_kernel(row, col, left, right, out, entries, width, tile: tl.constexpr, block: tl.constexpr):
    entry = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    there = entry < entries
    i = tl.load(row + entry, mask=there, other=0).to(tl.int64) * width
    j = tl.load(col + entry, mask=there, other=0).to(tl.int64) * width
    total = tl.zeros((tile,), dtype=tl.float32)
    for first in range(0, width, block):
        column = first + tl.arange(0, block)
        both = there[:, None] & (column < width)[None, :]
        a = tl.load(left + i[:, None] + column[None, :], mask=both, other=0.0)
        b = tl.load(right + j[:, None] + column[None, :], mask=both, other=0.0)
        total += tl.sum(a * b, axis=1)
    tl.store(out + entry, total, mask=there)


@triton.jit
def _row_sum_kernel(
    crow, values, out, rows, number, inverse_root: tl.constexpr,
    heavy: tl.constexpr, listed: tl.constexpr, many: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    row, there, start, stop = rows_of_program(crow, rows, number, listed, heavy, many)
    parts = tl.zeros((many, tile), dtype=tl.float32)
    for first in range(0, tl.max(stop - start, axis=0), tile):
        entry = start[:, None] + first + tl.arange(0, tile)[None, :]
        parts += tl.load(values + entry, mask=entry < stop[:, None], other=0.0)
    total = tl.sum(parts, axis=1)
    if inverse_root:
        total += 1.0
        total = tl.where(total > 0, 1.0 / tl.sqrt(total), 0.0)
    tl.store(out + row, total, mask=there)


@triton.jit
def _scaled_kernel(row, col, scale, weight, out, entries, tile: tl.constexpr):
    entry = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    there = entry < entries
    i = tl.load(scale + tl.load(row + entry, mask=there, other=0), mask=there)
    j = tl.load(scale + tl.load(col + entry, mask=there, other=0), mask=there)
    tl.store(out + entry, i * tl.load(weight + entry, mask=there) * j, mask=there)


@triton.jit
def _gathered_kernel(values, index, out, number, tile: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    there = place < number
    value = tl.load(values + tl.load(index + place, mask=there, other=0), mask=there)
    tl.store(out + place, value, mask=there)


@triton.jit
def _relu_gradient_kernel(grad, out, scale, before, number, width, has_scale: tl.constexpr, tile: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    there = place < number
    value = tl.load(grad + place, mask=there)
    if has_scale:
        value *= tl.load(scale + place % width, mask=there)
    value = tl.where(tl.load(out + place, mask=there) > 0, value, 0.0)
    tl.store(before + place, value, mask=there)


@on_its_device
def relu_gradient(grad: Tensor, out: Tensor, scale: Tensor | None) -> Tensor:
    """``grad * scale`` where ``out`` is positive, 0 elsewhere."""
    before, tile = torch.empty_like(grad), 1024
    _relu_gradient_kernel[(ceil_div(grad.numel(), tile),)](
        grad, out, grad if scale is None else scale, before, grad.numel(), grad.size(-1),
        has_scale=scale is not None, tile=tile,
    )  # fmt: skip
    return before


@on_its_device
def hop(
    pattern: Pattern,
    values: Tensor,
    x: Tensor,
    *,
    loop: Tensor | None = None,
    add: Tensor | None = None,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    relu: bool = False,
) -> Tensor:
    """One hop and what a layer does around it, in one kernel."""
    crow, col, _, hubs = pattern
    x, values = x.contiguous(), values.contiguous()
    nodes, width = crow.numel() - 1, x.size(1)
    out = torch.empty((nodes, width), dtype=x.dtype, device=x.device)
    extra = [None if t is None else t.contiguous() for t in (loop, add, scale, shift)]
    pointers = [x if t is None else t for t in extra]  # any pointer will do where nothing is read
    has_loop, has_add, has_scale, has_shift = (t is not None for t in extra)
    block, tile = min(power_of_2(width), MAX_COLUMNS), 8
    rows_per_warp = max(1, min(4, 1024 // (tile * block)))  # as many rows as one warp can hold gathered neighbours for
    light, heavy = (False, nodes, rows_per_warp, tile, 1), (True, hubs.numel(), 1, 8192 // block, 4)
    for listed, rows, many, entries, warps in (light, heavy):
        if rows > 0:
            _hop_kernel[(ceil_div(rows, many), ceil_div(width, block))](
                crow, col, values, x, *pointers, out, hubs, rows, width,
                heavy=HUB_DEGREE, listed=listed, far=x.numel() >= 2**31,
                has_loop=has_loop, has_add=has_add, has_scale=has_scale, has_shift=has_shift, relu=relu,
                many=many, tile=entries, block=block, num_warps=warps,
            )  # fmt: skip
    return out


@on_its_device
def sampled_product(pattern: Pattern, left: Tensor, right: Tensor) -> Tensor:
    """Row of the left times row of the right factor, for every entry."""
    _, col, row, _ = pattern
    out = torch.empty(col.numel(), dtype=torch.float32, device=left.device)
    width, tile = left.size(1), 32
    _sampled_kernel[(ceil_div(col.numel(), tile),)](
        row, col, left.contiguous(), right.contiguous(), out, col.numel(), width,
        tile=tile, block=min(power_of_2(width), 64), num_warps=2,
    )  # fmt: skip
    return out


@on_its_device
def row_sums(pattern: Pattern, values: Tensor, inverse_root: bool = False) -> Tensor:
    """The sum of each row, always added up in the same order; with ``inverse_root`` the inverse root of one more."""
    crow, _, _, hubs = pattern
    nodes, values = crow.numel() - 1, values.contiguous()
    out = torch.empty(nodes, dtype=values.dtype, device=values.device)
    for listed, rows, many, tile in ((False, nodes, 64, 16), (True, hubs.numel(), 1, 1024)):
        if rows > 0:
            _row_sum_kernel[(ceil_div(rows, many),)](
                crow, values, out, hubs, rows, inverse_root=inverse_root,
                heavy=HUB_DEGREE, listed=listed, many=many, tile=tile, num_warps=4,
            )  # fmt: skip
    return out


@on_its_device
def scaled(pattern: Pattern, scale: Tensor, weight: Tensor) -> Tensor:
    """``scale_i weight_ij scale_j`` for every entry."""
    _, col, row, _ = pattern
    weight, scale, tile = weight.contiguous(), scale.contiguous(), 1024
    out = torch.empty_like(weight)
    _scaled_kernel[(ceil_div(weight.numel(), tile),)](row, col, scale, weight, out, weight.numel(), tile=tile)
    return out


@on_its_device
def gathered(values: Tensor, index: Tensor) -> Tensor:
    """``values[index]``."""
    out, tile = torch.empty(index.numel(), dtype=values.dtype, device=values.device), 1024
    _gathered_kernel[(ceil_div(index.numel(), tile),)](values.contiguous(), index, out, index.numel(), tile=tile)
    return out
