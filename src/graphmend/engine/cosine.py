r"""Mean cosines between the rows of one matrix and those of others, with a gradient by formula.

.. math:: c = \frac1N \sum_i \cos(z_i, u_i), \qquad
          \partial u_i = \frac{1}{N |u_i|} \left(\hat z_i - \cos_i \hat u_i\right)

with :math:`\hat u` the row of length 1. A zero row has cosine 0 with every other row, and no gradient. On a CPU the
rows are taken in blocks that stay in the cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmend.engine.autograd import apply
from graphmend.engine.ops import has_triton, row_blocks

__all__ = ["mean_cosines"]


def mean_cosines(z: Tensor, *others: Tensor) -> Tensor:
    """The mean cosine of the rows of ``z`` with those of each of the others, one number per other matrix."""
    if z.dtype in (torch.bfloat16, torch.float16):
        return mean_cosines(z.float(), *(other.float() for other in others))
    means: Tensor = apply(_MeanCosines, z, *others)
    return means


class _MeanCosines(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, *others: Tensor) -> Tensor:
        if _is_fused(z, others):
            from graphmend.engine.triton import cosine

            inverses, cosines = cosine.cosines(z, *others)
        else:
            parts = [_cosines(*(matrix[rows] for matrix in (z, *others))) for rows in row_blocks(z)]
            inverses, cosines = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
        ctx.save_for_backward(z, *others, inverses, cosines)
        return cosines.mean(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        z, *others, inverses, cosines = ctx.saved_tensors
        steps = grad / cosines.size(1)
        if _is_fused(z, others):
            from graphmend.engine.triton import cosine

            return cosine.cosine_gradients(z, *others, inverses=inverses, cosines=cosines, steps=steps)
        grads = tuple(torch.empty_like(matrix) for matrix in (z, *others))
        for rows in row_blocks(z):
            block = [matrix[rows] for matrix in (z, *others)]
            for out, part in zip(grads, _gradients(block, inverses[:, rows], cosines[:, rows], steps), strict=True):
                out[rows] = part
        return grads


def _is_fused(z: Tensor, others: Any) -> bool:
    return z.dtype == torch.float32 and len(others) <= 2 and has_triton(z.device)


def _cosines(z: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse norms of the rows of all matrices, 0 for zero rows, and the cosine of each row of ``z`` with the others'.

    Rows are scaled one factor at a time, so that the product of two tiny norms never occurs.
    """
    norms = torch.stack([torch.linalg.vector_norm(matrix, dim=-1) for matrix in (z, *others)])
    inverses = norms.masked_fill_(norms == 0, torch.inf).reciprocal_()
    unit = z * inverses[0].unsqueeze(-1)
    return inverses, torch.stack([torch.linalg.vecdot(unit, other) for other in others]).mul_(inverses[1:])


def _gradients(matrices: list[Tensor], inverses: Tensor, cosines: Tensor, steps: Tensor) -> list[Tensor]:
    """Gradients of ``(steps * cosines.sum(1)).sum()`` for a block of rows of all matrices."""
    z, *others = matrices
    # step / |z| and step / |u| of every pair (z, u), one per row, and the same times the cosine
    by_z, by_other = (steps.unsqueeze(-1) * scale for scale in (inverses[:1], inverses[1:]))
    off_z, off_other = (by_z * cosines).sum(0), by_other * cosines
    unit, grads = z * inverses[0].unsqueeze(-1), []
    grad_z = unit * -off_z.unsqueeze(-1)
    per_pair = (inverses[1:], by_z, by_other, off_other)
    for other, *numbers in zip(others, *per_pair, strict=True):
        scale, for_z, for_other, off = (number.unsqueeze(-1) for number in numbers)
        unit_other = other * scale
        grad_z.addcmul_(unit_other, for_z)
        grads.append((unit * for_other).addcmul_(unit_other, off, value=-1))
    return [grad_z, *grads]
