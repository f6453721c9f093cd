"""The products of :mod:`graphmend.engine.ops` for NVIDIA GPUs, written in Triton.

A program of one warp takes a few rows of a sparse product and gathers a few neighbours of each at a time; the few rows
with very many neighbours are left to wide programs of their own, or a single hub would keep the whole device waiting.
Up to three views of a graph, ``(N, views, F)``, go through side by side: what they have in common is read once.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["cut", "gathered", "product", "row_sums", "sampled_product", "scaled"]

HEAVY = 256  # neighbours that make a row a hub
WIDE = 128  # columns a program takes at most


T = TypeVar("T")
P = ParamSpec("P")


def where_it_lies(launch: Callable[Concatenate[Tensor, P], T]) -> Callable[Concatenate[Tensor, P], T]:
    """Triton launches on the current device, wherever the tensors are."""

    @functools.wraps(launch)
    def launched(first: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if first.get_device() == torch.cuda.current_device():
            return launch(first, *args, **kwargs)
        with torch.cuda.device_of(first):
            return launch(first, *args, **kwargs)

    return launched


def pieces(total: int, size: int) -> int:
    """How many pieces of a size it takes; Triton's own function takes longer than a kernel."""
    return -(-total // size)


def power_of_2(number: int) -> int:
    """The next one."""
    return 1 << (number - 1).bit_length()


@triton.jit
def rows_of_program(crow, rows, number, listed: tl.constexpr, heavy: tl.constexpr, many: tl.constexpr):
    """The rows a program takes, all but the hubs or those listed, and where their entries start and stop."""
    row = tl.program_id(0) * many + tl.arange(0, many)
    there = row < number
    if listed:
        row = tl.load(rows + row, mask=there, other=0)
    start, stop = tl.load(crow + row, mask=there, other=0), tl.load(crow + row + 1, mask=there, other=0)
    if not listed:
        there = there & (stop - start <= heavy)
        stop = tl.where(there, stop, start)
    return row, there, start, stop


@triton.jit
def _weighted(part, values, entry, there):
    value = tl.load(values + entry, mask=there, other=0.0).to(tl.float32)
    return tl.sum(part.to(tl.float32) * value[:, :, None], axis=1)


@triton.jit
def _finish(
    total, x, loop, add, scale, shift, out, place, both, row, there, column, inside,
    has_loop: tl.constexpr, has_add: tl.constexpr, has_scale: tl.constexpr, has_shift: tl.constexpr,
    relu: tl.constexpr,
):  # fmt: skip
    if has_loop:
        own = tl.load(x + place, mask=both, other=0.0).to(tl.float32)
        total += tl.load(loop + row, mask=there, other=0.0).to(tl.float32)[:, None] * own
    if has_add:
        total += tl.load(add + place, mask=both, other=0.0).to(tl.float32)
    if has_scale:
        total *= tl.load(scale + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    if has_shift:
        total += tl.load(shift + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    if relu:
        total = tl.maximum(total, 0.0)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=both)


@triton.jit
def _product_kernel(
    crow, col, values, x, loop, add, scale, shift, out, rows, number, nodes, entries, width,
    heavy: tl.constexpr, listed: tl.constexpr, views: tl.constexpr, far: tl.constexpr,
    has_loop: tl.constexpr, has_add: tl.constexpr, has_scale: tl.constexpr, has_shift: tl.constexpr,
    relu: tl.constexpr, many: tl.constexpr, tile: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row, there, start, stop = rows_of_program(crow, rows, number, listed, heavy, many)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < width
    first_view = tl.zeros((many, block), dtype=tl.float32)
    second_view, third_view = first_view, first_view
    for first in range(0, tl.max(stop - start, axis=0), tile):
        entry = start[:, None] + first + tl.arange(0, tile)[None, :]
        present = entry < stop[:, None]
        neighbour = tl.load(col + entry, mask=present, other=0)
        if far:
            neighbour = neighbour.to(tl.int64)
        place = neighbour[:, :, None] * (width * views) + column[None, None, :]
        both = present[:, :, None] & inside[None, None, :]
        first_part = tl.load(x + place, mask=both, other=0.0)  # all are on their way before the first is used
        if views > 1:
            second_part = tl.load(x + place + width, mask=both, other=0.0)
        if views > 2:
            third_part = tl.load(x + place + 2 * width, mask=both, other=0.0)
        first_view += _weighted(first_part, values, entry, present)
        if views > 1:
            second_view += _weighted(second_part, values + entries, entry, present)
        if views > 2:
            third_view += _weighted(third_part, values + 2 * entries, entry, present)
    place = row[:, None].to(tl.int64) * (width * views) + column[None, :]
    both = there[:, None] & inside[None, :]
    _finish(
        first_view, x, loop, add, scale, shift, out, place, both, row, there, column, inside,
        has_loop, has_add, has_scale, has_shift, relu,
    )  # fmt: skip
    if views > 1:
        _finish(
            second_view, x, loop + nodes, add, scale, shift, out, place + width, both, row, there, column, inside,
            has_loop, has_add, has_scale, has_shift, relu,
        )  # fmt: skip
    if views > 2:
        _finish(
            third_view, x, loop + 2 * nodes, add, scale, shift, out, place + 2 * width, both, row, there, column,
            inside, has_loop, has_add, has_scale, has_shift, relu,
        )  # fmt: skip


@triton.jit
def _sampled_kernel(row, col, left, right, out, entries, width, stride, tile: tl.constexpr, block: tl.constexpr):
    view = tl.program_id(1).to(tl.int64)
    entry = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    there = entry < entries
    i = tl.load(row + entry, mask=there, other=0).to(tl.int64) * stride + view * width
    j = tl.load(col + entry, mask=there, other=0).to(tl.int64) * stride + view * width
    total = tl.zeros((tile,), dtype=tl.float32)
    for first in range(0, width, block):
        column = first + tl.arange(0, block)
        both = there[:, None] & (column < width)[None, :]
        a = tl.load(left + i[:, None] + column[None, :], mask=both, other=0.0).to(tl.float32)
        b = tl.load(right + j[:, None] + column[None, :], mask=both, other=0.0).to(tl.float32)
        total += tl.sum(a * b, axis=1)
    tl.store(out + view * entries + entry, total, mask=there)


@triton.jit
def _row_sum_kernel(
    crow, values, out, rows, number, nodes, entries, root: tl.constexpr,
    heavy: tl.constexpr, listed: tl.constexpr, many: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    view = tl.program_id(1).to(tl.int64)
    row, there, start, stop = rows_of_program(crow, rows, number, listed, heavy, many)
    total = tl.zeros((many, tile), dtype=tl.float32)
    for first in range(0, tl.max(stop - start, axis=0), tile):
        entry = start[:, None] + first + tl.arange(0, tile)[None, :]
        total += tl.load(values + view * entries + entry, mask=entry < stop[:, None], other=0.0)
    found = tl.sum(total, axis=1)
    if root:
        found += 1.0
        found = tl.where(found > 0, 1.0 / tl.sqrt(found), 0.0)
    tl.store(out + view * nodes + row, found, mask=there)


@triton.jit
def _scaled_kernel(row, col, scale, weight, out, nodes, entries, tile: tl.constexpr):
    view = tl.program_id(1).to(tl.int64)
    entry = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    there = entry < entries
    scale += view * nodes
    i = tl.load(scale + tl.load(row + entry, mask=there, other=0), mask=there)
    j = tl.load(scale + tl.load(col + entry, mask=there, other=0), mask=there)
    value = i * tl.load(weight + view * entries + entry, mask=there) * j
    tl.store(out + view * entries + entry, value, mask=there)


@triton.jit
def _gathered_kernel(values, index, out, size, number, tile: tl.constexpr):
    view = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    there = place < number
    found = tl.load(values + view * size + tl.load(index + place, mask=there, other=0), mask=there)
    tl.store(out + view * number + place, found, mask=there)


@triton.jit
def _cut_kernel(grad, out, scale, found, number, width, has_scale: tl.constexpr, tile: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    there = place < number
    value = tl.load(grad + place, mask=there).to(tl.float32)
    if has_scale:
        value *= tl.load(scale + place % width, mask=there)
    value = tl.where(tl.load(out + place, mask=there) > 0, value, 0.0)
    tl.store(found + place, value.to(found.dtype.element_ty), mask=there)


@where_it_lies
def cut(grad: Tensor, out: Tensor, scale: Tensor | None) -> Tensor:
    """``grad * scale`` where ``out`` is positive, 0 elsewhere."""
    found, tile = torch.empty_like(grad), 1024
    _cut_kernel[(pieces(grad.numel(), tile),)](
        grad, out, grad if scale is None else scale, found, grad.numel(), grad.size(-1),
        has_scale=scale is not None, tile=tile,
    )  # fmt: skip
    return found


@where_it_lies
def product(
    crow: Tensor,
    col: Tensor,
    values: Tensor,
    x: Tensor,
    hubs: Tensor,
    *,
    loop: Tensor | None = None,
    add: Tensor | None = None,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    relu: bool = False,
) -> Tensor:
    """One hop and what a layer does around it, in one kernel; ``hubs`` are the rows with more than HEAVY entries."""
    x, values = x.contiguous(), values.contiguous()
    nodes, width, views = crow.numel() - 1, x.size(-1), x.size(1) if x.dim() == 3 else 1
    out = torch.empty((nodes, *x.shape[1:]), dtype=x.dtype, device=x.device)
    extra = [None if t is None else t.contiguous() for t in (loop, add, scale, shift)]
    pointers = [x if t is None else t for t in extra]  # anything, where there is nothing to read
    has_loop, has_add, has_scale, has_shift = (t is not None for t in extra)
    block = min(power_of_2(width), WIDE)
    narrow = x.element_size() < 4
    tile = (8 if views == 1 else 4) * (2 if narrow else 1)
    room = 4096 // (tile * block * x.element_size())  # rows that one warp can gather for at a time
    light = (False, nodes, max(1, min(room, 4 if views == 1 or narrow else 2)), tile, 1)
    for listed, rows, many, entries, warps in (light, (True, hubs.numel(), 1, 8192 // block, 4)):
        if rows > 0:
            _product_kernel[(pieces(rows, many), pieces(width, block))](
                crow, col, values, x, *pointers, out, hubs, rows, nodes, col.numel(), width,
                heavy=HEAVY, listed=listed, views=views, far=x.numel() >= 2**31,
                has_loop=has_loop, has_add=has_add, has_scale=has_scale, has_shift=has_shift, relu=relu,
                many=many, tile=entries, block=block, num_warps=warps,
            )  # fmt: skip
    return out


@where_it_lies
def sampled_product(row: Tensor, col: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Row of the left times row of the right factor, for every entry."""
    width, views = left.size(-1), left.size(1) if left.dim() == 3 else 1
    out = torch.empty((*left.shape[1:-1], col.numel()), dtype=torch.float32, device=left.device)
    tile, block = 32, min(power_of_2(width), 64)
    _sampled_kernel[(pieces(col.numel(), tile), views)](
        row, col, left.contiguous(), right.contiguous(), out, col.numel(), width, views * width,
        tile=tile, block=block, num_warps=2,
    )  # fmt: skip
    return out


@where_it_lies
def row_sums(crow: Tensor, values: Tensor, hubs: Tensor, root: bool = False) -> Tensor:
    """The sum of each row, always added up in the same order; with ``root`` the inverse root of one more."""
    nodes, values = crow.numel() - 1, values.contiguous()
    out = torch.empty((*values.shape[:-1], nodes), dtype=values.dtype, device=values.device)
    for listed, rows, many, tile in ((False, nodes, 64, 16), (True, hubs.numel(), 1, 1024)):
        if rows > 0:
            _row_sum_kernel[(pieces(rows, many), _views(values))](
                crow, values, out, hubs, rows, nodes, values.size(-1), root=root,
                heavy=HEAVY, listed=listed, many=many, tile=tile, num_warps=4,
            )  # fmt: skip
    return out


@where_it_lies
def scaled(row: Tensor, col: Tensor, scale: Tensor, weight: Tensor) -> Tensor:
    """``scale_i weight_ij scale_j`` for every entry."""
    weight, scale = weight.contiguous(), scale.contiguous()
    out, entries, tile = torch.empty_like(weight), weight.size(-1), 1024
    _scaled_kernel[(pieces(entries, tile), _views(weight))](
        row, col, scale, weight, out, scale.size(-1), entries, tile=tile
    )
    return out


@where_it_lies
def gathered(values: Tensor, index: Tensor) -> Tensor:
    """``values[..., index]``."""
    out = torch.empty((*values.shape[:-1], index.numel()), dtype=values.dtype, device=values.device)
    tile = 1024
    _gathered_kernel[(pieces(index.numel(), tile), _views(values))](
        values.contiguous(), index, out, values.size(-1), index.numel(), tile=tile
    )
    return out


def _views(values: Tensor) -> int:
    return values.size(0) if values.dim() == 2 else 1
