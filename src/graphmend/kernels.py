"""The few products everything else is made of, in the fastest form each device has.

All work on compressed rows: entry ``k`` of row ``i`` lies in ``crow[i]:crow[i + 1]`` and has the column ``col[k]``.
On a CPU the sparse product is FBGEMM's, on a GPU a Triton kernel with everything around a hop inside it; other types
and devices take torch's own sparse matrices.
"""

from __future__ import annotations

import functools
import importlib.util
import warnings
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["Pattern", "cosine_gradients", "cosines", "hop", "row_sums", "sampled_product", "scaled"]

with warnings.catch_warnings():  # torch says once per process that CSR is in beta; say it here, to nobody
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.tensor([], dtype=torch.long), torch.tensor([]), (1, 1))


class Pattern(NamedTuple):
    """Where the entries of a sparse matrix are."""

    crow: Tensor  #: offsets of the rows
    col: Tensor  #: column of each entry
    row: Tensor  #: row of each entry
    hubs: Tensor  #: rows with very many entries, on a GPU

    @classmethod
    def of(cls, crow: Tensor, col: Tensor, row: Tensor) -> Pattern:
        """Find the hubs."""
        hubs = crow[:0]
        if has_triton(crow.device):
            from graphmend.kernels_triton import HEAVY

            hubs = (crow.diff() > HEAVY).nonzero().view(-1).to(crow.dtype)
        return cls(crow, col, row, hubs)


@functools.cache
def has_triton(device: torch.device) -> bool:
    """Whether Triton kernels run there."""
    return (
        device.type == "cuda"
        and importlib.util.find_spec("triton") is not None
        and torch.cuda.get_device_capability(device) >= (7, 0)
    )


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
    r""":math:`\mathrm{ReLU}(s (Y + R) + t)` with :math:`Y_i = \sum_k v_k X_{col(k)} + \ell_i X_i`, without gradient."""
    x, values = x.detach(), values.detach()  # or embedding_bag makes ready for a gradient of its own
    if x.dtype in (torch.float32, torch.bfloat16) and has_triton(x.device):
        from graphmend import kernels_triton

        crow, col, _, hubs = pattern
        return kernels_triton.product(
            crow, col, values, x, hubs, loop=loop, add=add, scale=scale, shift=shift, relu=relu
        )
    out = _product(pattern, values, x)
    if loop is not None:
        out.addcmul_(loop.unsqueeze(-1), x)
    if add is not None:
        out += add
    if scale is not None:
        out *= scale
    if shift is not None:
        out += shift
    return out.relu_() if relu else out


def _product(pattern: Pattern, values: Tensor, x: Tensor) -> Tensor:
    crow, col, *_ = pattern
    if col.numel() == 0:
        return x.new_zeros((crow.numel() - 1, x.size(1)))
    if x.device.type == "cpu" and x.dtype == torch.float32:
        x = x.contiguous()
        return F.embedding_bag(col, x, crow, mode="sum", per_sample_weights=values, include_last_offset=True)
    size = (crow.numel() - 1, x.size(0))
    # CUDA reads strided values as if they were contiguous, and says nothing
    matrix = torch.sparse_csr_tensor(crow, col, values.contiguous(), size, check_invariants=False)
    return torch.mm(matrix, x)


def sampled_product(pattern: Pattern, left: Tensor, right: Tensor) -> Tensor:
    r""":math:`\langle L_i, R_{col(k)} \rangle` for every entry ``k`` of row ``i``."""
    crow, col, row, _ = pattern
    if left.dtype in (torch.float32, torch.bfloat16) and has_triton(left.device) and col.numel() > 0:
        from graphmend import kernels_triton

        return kernels_triton.sampled_product(row, col, left, right)
    zeros = left.new_zeros(col.numel())  # read even with beta=0: it must not hold NaN
    if col.numel() == 0:
        return zeros
    matrix = torch.sparse_csr_tensor(crow, col, zeros, (left.size(0), right.size(0)), check_invariants=False)
    values: Tensor = torch.sparse.sampled_addmm(matrix, left.contiguous(), right.t(), beta=0.0).values()
    return values


def row_sums(pattern: Pattern, values: Tensor) -> Tensor:
    """The sum of the values of each row, for values of shape ``(E,)`` or ``(E, heads)``."""
    crow, _, row, hubs = pattern
    if values.device.type == "cuda":  # index_add has no fixed order of summation there
        if values.dim() == 1 and values.dtype == torch.float32 and has_triton(values.device):
            from graphmend import kernels_triton

            return kernels_triton.row_sums(crow, values, hubs)
        return torch.segment_reduce(values, "sum", offsets=crow.long(), unsafe=True, initial=0.0)
    if values.dim() == 2 and values.dtype == torch.float32 and values.numel() > 0:
        entries = torch.arange(values.size(0), dtype=crow.dtype)
        return F.embedding_bag(entries, values.detach().contiguous(), crow, mode="sum", include_last_offset=True)
    return values.new_zeros((crow.numel() - 1, *values.shape[1:])).index_add_(0, row, values)


def scaled(pattern: Pattern, scale: Tensor, weight: Tensor) -> Tensor:
    r""":math:`s_i w_{ij} s_j` for every entry."""
    _, col, row, _ = pattern
    if weight.dtype == torch.float32 and has_triton(weight.device) and col.numel() > 0:
        from graphmend import kernels_triton

        return kernels_triton.scaled(row, col, scale, weight.contiguous())
    return scale.index_select(0, row).mul_(weight).mul_(scale.index_select(0, col))


def cosines(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Inverse norms of the rows of two matrices, 0 for zero rows, and the cosine of each pair of rows.

    Rows are scaled one factor at a time, so that the product of two tiny norms never turns up.
    """
    if u.dtype == torch.float32 and has_triton(u.device):
        from graphmend import kernels_triton

        return kernels_triton.cosines(u, v)
    inverse_u, inverse_v = _inverse_norms(u), _inverse_norms(v)
    return inverse_u, inverse_v, (u * inverse_u.unsqueeze(-1)).mul_(v).sum(-1).mul_(inverse_v)


def cosine_gradients(
    u: Tensor, v: Tensor, inverse_u: Tensor, inverse_v: Tensor, cosine: Tensor, step: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of ``step * sum(cosine)`` for both matrices, from what :func:`cosines` found."""
    if u.dtype == torch.float32 and has_triton(u.device):
        from graphmend import kernels_triton

        return kernels_triton.cosine_gradients(u, v, inverse_u, inverse_v, cosine, step)
    inverse_u, inverse_v, cosine = (t.unsqueeze(-1) for t in (inverse_u, inverse_v, -cosine))
    grad_u = (v * inverse_v).addcmul_(u, cosine * inverse_u).mul_(step * inverse_u)
    return grad_u, (u * inverse_u).addcmul_(v, cosine * inverse_v).mul_(step * inverse_v)


def _inverse_norms(z: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(z, dim=-1)
    return norm.masked_fill_(norm == 0, torch.inf).reciprocal_()  # a zero row has no direction, and no gradient
