"""Cosines between the rows of matrices, and their gradients, for NVIDIA GPUs, written in Triton."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphmend.engine.triton.launch import ceil_div, on_its_device, power_of_2

__all__ = ["cosine_gradients", "cosines"]


@triton.jit
def _inverse_norm(a):
    largest = tl.max(tl.abs(a), axis=1)  # squares of tiny numbers would vanish
    unit = a / tl.where(largest > 0, largest, 1.0)[:, None]
    norm = largest * tl.sqrt(tl.sum(unit * unit, axis=1))
    return tl.where(norm > 0, 1.0 / norm, 0.0)


@triton.jit
def _cosine_kernel(
    z, u, v, inverses, cosines, nodes, width, stride_z, stride_u, stride_v,
    two: tl.constexpr, tile: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    column = tl.arange(0, block)
    there = row < nodes
    both = there[:, None] & (column < width)[None, :]
    a = tl.load(z + row[:, None] * stride_z + column[None, :], mask=both, other=0.0)
    b = tl.load(u + row[:, None] * stride_u + column[None, :], mask=both, other=0.0)
    scale_a, scale_b = _inverse_norm(a), _inverse_norm(b)
    a *= scale_a[:, None]
    tl.store(inverses + row, scale_a, mask=there)
    tl.store(inverses + nodes + row, scale_b, mask=there)
    tl.store(cosines + row, tl.sum(a * (b * scale_b[:, None]), axis=1), mask=there)
    if two:
        c = tl.load(v + row[:, None] * stride_v + column[None, :], mask=both, other=0.0)
        scale_c = _inverse_norm(c)
        tl.store(inverses + 2 * nodes + row, scale_c, mask=there)
        tl.store(cosines + nodes + row, tl.sum(a * (c * scale_c[:, None]), axis=1), mask=there)


@triton.jit
def _cosine_gradient_kernel(
    z, u, v, inverses, cosines, steps, grads, nodes, width, size, stride_z, stride_u, stride_v,
    two: tl.constexpr, tile: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    column = tl.arange(0, block)
    there = row < nodes
    both = there[:, None] & (column < width)[None, :]
    place = row[:, None] * width + column[None, :]
    scale_a = tl.load(inverses + row, mask=there, other=0.0)
    a = tl.load(z + row[:, None] * stride_z + column[None, :], mask=both, other=0.0) * scale_a[:, None]
    scale_b = tl.load(inverses + nodes + row, mask=there, other=0.0)
    b = tl.load(u + row[:, None] * stride_u + column[None, :], mask=both, other=0.0) * scale_b[:, None]
    cosine = tl.load(cosines + row, mask=there, other=0.0)[:, None]
    step = tl.load(steps)
    tl.store(grads + size + place, ((a - cosine * b) * (step * scale_b)[:, None]), mask=both)
    total = (b - cosine * a) * step
    if two:
        scale_c = tl.load(inverses + 2 * nodes + row, mask=there, other=0.0)
        c = tl.load(v + row[:, None] * stride_v + column[None, :], mask=both, other=0.0) * scale_c[:, None]
        cosine = tl.load(cosines + nodes + row, mask=there, other=0.0)[:, None]
        step = tl.load(steps + 1)
        tl.store(grads + 2 * size + place, ((a - cosine * c) * (step * scale_c)[:, None]), mask=both)
        total += (c - cosine * a) * step
    tl.store(grads + place, (total * scale_a[:, None]), mask=both)


@on_its_device
def cosines(z: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse norms of the rows of all matrices (0 for zero rows), and the cosine of each of ``z`` with the others'."""
    nodes, width = z.shape
    matrices = [_rows_in_one_piece(t) for t in (z, *others)]
    inverses = torch.empty((len(matrices), nodes), dtype=torch.float32, device=z.device)
    values = torch.empty((len(others), nodes), dtype=torch.float32, device=z.device)
    tile, block = _rows_at_a_time(width)
    three = (*matrices, z)[:3]
    _cosine_kernel[(ceil_div(nodes, tile),)](
        *three, inverses, values, nodes, width, *(t.stride(0) for t in three),
        two=len(others) == 2, tile=tile, block=block,
    )  # fmt: skip
    return inverses, values


@on_its_device
def cosine_gradients(
    z: Tensor, *others: Tensor, inverses: Tensor, cosines: Tensor, steps: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of ``(steps * cosines.sum(1)).sum()`` for all matrices."""
    nodes, width = z.shape
    three = (*(_rows_in_one_piece(t) for t in (z, *others)), z)[:3]
    grads = torch.empty((1 + len(others), nodes, width), dtype=z.dtype, device=z.device)
    tile, block = _rows_at_a_time(width)
    _cosine_gradient_kernel[(ceil_div(nodes, tile),)](
        *three, inverses, cosines, steps, grads, nodes, width, nodes * width, *(t.stride(0) for t in three),
        two=len(others) == 2, tile=tile, block=block,
    )  # fmt: skip
    return grads.unbind()


def _rows_in_one_piece(x: Tensor) -> Tensor:
    return x if x.stride(1) == 1 else x.contiguous()


def _rows_at_a_time(width: int) -> tuple[int, int]:
    block = power_of_2(width)
    return max(1, 4096 // block), block
