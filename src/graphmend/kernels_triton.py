"""The products of :mod:`graphmend.kernels` for NVIDIA GPUs, written in Triton.

A row of a sparse product is one program of one warp, which gathers a few neighbours at a time; the few rows with very
many neighbours are left to wide programs of their own, or a single hub would keep the whole device waiting.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["cosine_gradients", "cosines", "product", "row_sums", "sampled_product", "scaled"]

HEAVY = 256  # neighbours that make a row a hub
LIGHT_TILE, HEAVY_TILE, WIDE = 32, 256, 128


T = TypeVar("T")
P = ParamSpec("P")


def _where_it_lies(launch: Callable[Concatenate[Tensor, P], T]) -> Callable[Concatenate[Tensor, P], T]:
    """Triton launches on the current device, wherever the tensors are."""

    @functools.wraps(launch)
    def launched(first: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with torch.cuda.device_of(first):
            return launch(first, *args, **kwargs)

    return launched


@triton.jit
def _product_kernel(
    crow, col, values, x, loop, add, scale, shift, out, rows, width,
    heavy: tl.constexpr, listed: tl.constexpr, has_loop: tl.constexpr, has_add: tl.constexpr,
    has_scale: tl.constexpr, has_shift: tl.constexpr, relu: tl.constexpr, tile: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    if listed:
        row = tl.load(rows + row).to(tl.int64)
    start, stop = tl.load(crow + row), tl.load(crow + row + 1)
    if (not listed) and (stop - start > heavy):
        return
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < width
    total = tl.zeros((block,), dtype=tl.float32)
    for first in range(start, stop, tile):
        entry = first + tl.arange(0, tile)
        there = entry < stop
        neighbour = tl.load(col + entry, mask=there, other=0).to(tl.int64)
        value = tl.load(values + entry, mask=there, other=0.0).to(tl.float32)
        place = neighbour[:, None] * width + column[None, :]
        part = tl.load(x + place, mask=there[:, None] & inside[None, :], other=0.0).to(tl.float32)
        total += tl.sum(part * value[:, None], axis=0)
    here = row * width + column
    if has_loop:
        total += tl.load(loop + row).to(tl.float32) * tl.load(x + here, mask=inside, other=0.0).to(tl.float32)
    if has_add:
        total += tl.load(add + here, mask=inside, other=0.0).to(tl.float32)
    if has_scale:
        total *= tl.load(scale + column, mask=inside, other=0.0).to(tl.float32)
    if has_shift:
        total += tl.load(shift + column, mask=inside, other=0.0).to(tl.float32)
    if relu:
        total = tl.maximum(total, 0.0)
    tl.store(out + here, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _sampled_kernel(row, col, left, right, out, entries, width, tile: tl.constexpr, block: tl.constexpr):
    entry = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    there = entry < entries
    i = tl.load(row + entry, mask=there, other=0).to(tl.int64)
    j = tl.load(col + entry, mask=there, other=0).to(tl.int64)
    total = tl.zeros((tile,), dtype=tl.float32)
    for first in range(0, width, block):
        column = first + tl.arange(0, block)
        both = there[:, None] & (column < width)[None, :]
        a = tl.load(left + i[:, None] * width + column[None, :], mask=both, other=0.0).to(tl.float32)
        b = tl.load(right + j[:, None] * width + column[None, :], mask=both, other=0.0).to(tl.float32)
        total += tl.sum(a * b, axis=1)
    tl.store(out + entry, total.to(out.dtype.element_ty), mask=there)


@triton.jit
def _row_sum_kernel(
    crow, values, out, rows, nodes, heavy: tl.constexpr, listed: tl.constexpr, many: tl.constexpr, tile: tl.constexpr
):
    row = tl.program_id(0) * many + tl.arange(0, many)
    there = row < nodes
    if listed:
        row = tl.load(rows + row, mask=there, other=0)
    start, stop = tl.load(crow + row, mask=there, other=0), tl.load(crow + row + 1, mask=there, other=0)
    if not listed:
        there = there & (stop - start <= heavy)
        stop = tl.where(there, stop, start)
    total = tl.zeros((many, tile), dtype=tl.float32)
    for first in range(0, tl.max(stop - start, axis=0), tile):
        entry = start[:, None] + first + tl.arange(0, tile)[None, :]
        total += tl.load(values + entry, mask=entry < stop[:, None], other=0.0)
    tl.store(out + row, tl.sum(total, axis=1), mask=there)


@triton.jit
def _scaled_kernel(row, col, scale, weight, out, entries, tile: tl.constexpr):
    entry = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    there = entry < entries
    i = tl.load(row + entry, mask=there, other=0)
    j = tl.load(col + entry, mask=there, other=0)
    value = tl.load(scale + i, mask=there) * tl.load(weight + entry, mask=there) * tl.load(scale + j, mask=there)
    tl.store(out + entry, value, mask=there)


@triton.jit
def _cosine_kernel(u, v, inverse_u, inverse_v, cosine, nodes, width, tile: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    column = tl.arange(0, block)
    there = row < nodes
    both = there[:, None] & (column < width)[None, :]
    place = row[:, None] * width + column[None, :]
    a = tl.load(u + place, mask=both, other=0.0).to(tl.float32)
    b = tl.load(v + place, mask=both, other=0.0).to(tl.float32)
    norm_a, norm_b = tl.sqrt(tl.sum(a * a, axis=1)), tl.sqrt(tl.sum(b * b, axis=1))
    scale_a = tl.where(norm_a > 0, 1.0 / norm_a, 0.0)
    scale_b = tl.where(norm_b > 0, 1.0 / norm_b, 0.0)
    found = tl.sum((a * scale_a[:, None]) * (b * scale_b[:, None]), axis=1)
    tl.store(inverse_u + row, scale_a, mask=there)
    tl.store(inverse_v + row, scale_b, mask=there)
    tl.store(cosine + row, found, mask=there)


@triton.jit
def _cosine_gradient_kernel(
    u, v, inverse_u, inverse_v, cosine, step, grad_u, grad_v, nodes, width, tile: tl.constexpr, block: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    column = tl.arange(0, block)
    there = row < nodes
    both = there[:, None] & (column < width)[None, :]
    place = row[:, None] * width + column[None, :]
    scale_a = tl.load(inverse_u + row, mask=there, other=0.0)
    scale_b = tl.load(inverse_v + row, mask=there, other=0.0)
    found = tl.load(cosine + row, mask=there, other=0.0)
    a = tl.load(u + place, mask=both, other=0.0) * scale_a[:, None]
    b = tl.load(v + place, mask=both, other=0.0) * scale_b[:, None]
    length = tl.load(step)
    tl.store(grad_u + place, (b - found[:, None] * a) * (length * scale_a)[:, None], mask=both)
    tl.store(grad_v + place, (a - found[:, None] * b) * (length * scale_b)[:, None], mask=both)


@_where_it_lies
def cosines(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Inverse norms of the rows of two matrices (0 for zero rows), and the cosine of each pair."""
    nodes, width = u.shape
    out = torch.empty((3, nodes), dtype=u.dtype, device=u.device)
    tile, block = _rows_at_a_time(width)
    _cosine_kernel[(triton.cdiv(nodes, tile),)](
        u.contiguous(), v.contiguous(), *out, nodes, width, tile=tile, block=block
    )
    inverse_u, inverse_v, found = out
    return inverse_u, inverse_v, found


@_where_it_lies
def cosine_gradients(
    u: Tensor, v: Tensor, inverse_u: Tensor, inverse_v: Tensor, cosine: Tensor, step: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of ``step * sum(cosine)`` for both matrices."""
    u, v = u.contiguous(), v.contiguous()
    grad_u, grad_v = torch.empty_like(u), torch.empty_like(v)
    nodes, width = u.shape
    tile, block = _rows_at_a_time(width)
    _cosine_gradient_kernel[(triton.cdiv(nodes, tile),)](
        u, v, inverse_u, inverse_v, cosine, step, grad_u, grad_v, nodes, width, tile=tile, block=block
    )
    return grad_u, grad_v


def _rows_at_a_time(width: int) -> tuple[int, int]:
    block = triton.next_power_of_2(width)
    return max(1, 4096 // block), block


@_where_it_lies
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
    nodes, width = crow.numel() - 1, x.size(1)
    out = torch.empty((nodes, width), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(width), WIDE)
    extra = [None if t is None else t.contiguous() for t in (loop, add, scale, shift)]
    flags: dict[str, Any] = dict(zip(("has_loop", "has_add", "has_scale", "has_shift"), _given(extra), strict=True))
    pointers = [x if t is None else t for t in extra]  # anything, where there is nothing to read
    columns = triton.cdiv(width, block)
    for listed, rows, tile in ((False, nodes, LIGHT_TILE), (True, hubs.numel(), HEAVY_TILE)):
        if rows > 0:
            _product_kernel[(rows, columns)](
                crow, col, values, x, *pointers, out, hubs, width,
                heavy=HEAVY, listed=listed, relu=relu, tile=tile, block=block, num_warps=4 if listed else 1, **flags,
            )  # fmt: skip
    return out


def _given(tensors: list[Tensor | None]) -> list[bool]:
    return [tensor is not None for tensor in tensors]


@_where_it_lies
def sampled_product(row: Tensor, col: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Row of the left times row of the right factor, for every entry."""
    out = torch.empty(col.numel(), dtype=left.dtype, device=left.device)
    tile, block = 32, min(triton.next_power_of_2(left.size(1)), 64)
    _sampled_kernel[(triton.cdiv(col.numel(), tile),)](
        row, col, left.contiguous(), right.contiguous(), out, col.numel(), left.size(1),
        tile=tile, block=block, num_warps=2,
    )  # fmt: skip
    return out


@_where_it_lies
def row_sums(crow: Tensor, values: Tensor, hubs: Tensor) -> Tensor:
    """The sum of each row, always added up in the same order."""
    out = torch.empty(crow.numel() - 1, dtype=values.dtype, device=values.device)
    values = values.contiguous()
    for listed, rows, many, tile in ((False, out.numel(), 64, 16), (True, hubs.numel(), 1, 1024)):
        if rows > 0:
            _row_sum_kernel[(triton.cdiv(rows, many),)](
                crow, values, out, hubs, rows, heavy=HEAVY, listed=listed, many=many, tile=tile, num_warps=4
            )
    return out


@_where_it_lies
def scaled(row: Tensor, col: Tensor, scale: Tensor, weight: Tensor) -> Tensor:
    """``scale_i weight_ij scale_j`` for every entry."""
    out = torch.empty_like(weight)
    tile = 1024
    _scaled_kernel[(triton.cdiv(out.numel(), tile),)](row, col, scale, weight, out, out.numel(), tile=tile)
    return out
