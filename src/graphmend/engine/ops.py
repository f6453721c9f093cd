"""The few products everything else is made of, in the fastest form each device has.

All work on compressed rows: entry ``k`` of row ``i`` lies in ``crow[i]:crow[i + 1]`` and has the column ``col[k]``.
Features may be bfloat16 beside values of single precision; sums are taken in single precision then.
Several views of one graph can go through side by side: features ``(N, views, F)``, values of entries ``(views, E)`` and
of nodes ``(views, N)`` in place of ``(N, F)``, ``(E,)`` and ``(N,)``.
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

__all__ = [
    "Pattern",
    "cosine_gradients",
    "cosines",
    "cut",
    "gathered",
    "head_sums",
    "hop",
    "inverse_root_degrees",
    "row_products",
    "row_sums",
    "sampled_product",
    "scaled",
]

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
            from graphmend.engine.triton.spmm import HEAVY

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
    outer: Tensor | None = None,
    add: Tensor | None = None,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    relu: bool = False,
) -> Tensor:
    r""":math:`\mathrm{ReLU}(s (Y + R) + t)` with :math:`Y_i = \sum_k v_k X_{col(k)} + \ell_i X_i`, without gradient.

    With ``outer``, on a CPU, :math:`Y_i = o_i \left(\sum_k v_k o_{col(k)} X_{col(k)} + \ell_i o_i X_i\right)`.
    """
    x, values = x.detach(), values.detach()  # or embedding_bag makes ready for a gradient of its own
    if x.dtype in (torch.float32, torch.bfloat16) and has_triton(x.device):
        from graphmend.engine.triton import spmm as kernels_triton

        assert outer is None
        crow, col, _, hubs = pattern
        return kernels_triton.product(
            crow, col, values, x, hubs, loop=loop, add=add, scale=scale, shift=shift, relu=relu
        )
    if x.dtype == torch.bfloat16:
        around = {"loop": loop, "outer": outer, "add": None if add is None else add.float()}
        return hop(pattern, values.float(), x.float(), **around, scale=scale, shift=shift, relu=relu).to(x)
    if outer is not None:
        factor = outer.to(x.dtype).t().unsqueeze(-1)
        return _around(hop(pattern, values, x * factor, loop=loop).mul_(factor), add, scale, shift, relu)
    if x.dim() == 3:
        views = zip(values, x.unbind(1), strict=True)
        out = torch.stack([_product(pattern, value, view) for value, view in views], dim=1)
    else:
        out = _product(pattern, values, x)
    if loop is not None:
        out.addcmul_(loop.t().unsqueeze(-1), x)
    return _around(out, add, scale, shift, relu)


def _around(out: Tensor, add: Tensor | None, scale: Tensor | None, shift: Tensor | None, relu: bool) -> Tensor:
    """What a layer does after a hop, in place."""
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
    r""":math:`\langle L_i, R_{col(k)} \rangle` for every entry ``k`` of row ``i``, in single precision at least."""
    crow, col, row, _ = pattern
    if left.dtype in (torch.float32, torch.bfloat16) and has_triton(left.device) and col.numel() > 0:
        from graphmend.engine.triton import spmm as kernels_triton

        return kernels_triton.sampled_product(row, col, left, right)
    if left.dtype == torch.bfloat16:
        return sampled_product(pattern, left.float(), right.float())
    if left.dim() == 3:
        views = zip(left.unbind(1), right.unbind(1), strict=True)
        return torch.stack([sampled_product(pattern, mine, theirs) for mine, theirs in views])
    zeros = left.new_zeros(col.numel())  # read even with beta=0: it must not hold NaN
    if col.numel() == 0:
        return zeros
    matrix = torch.sparse_csr_tensor(crow, col, zeros, (left.size(0), right.size(0)), check_invariants=False)
    left, right = left.detach().contiguous(), right.detach()
    torch.sparse.sampled_addmm(matrix, left, right.t(), beta=0.0, out=matrix)  # or the columns are copied, too
    values: Tensor = matrix.values()
    return values


def row_products(left: Tensor, right: Tensor) -> Tensor:
    r""":math:`\langle L_i, R_i \rangle` for every row; the products of a block of rows are summed up in the cache."""
    parts = [torch.linalg.vecdot(left[rows], right[rows]) for rows in _blocks(left)]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def row_sums(pattern: Pattern, values: Tensor) -> Tensor:
    """The sum of the values of each row."""
    if values.dtype == torch.bfloat16:
        return row_sums(pattern, values.float()).to(values.dtype)
    crow, _, row, hubs = pattern
    if values.device.type == "cuda":  # index_add has no fixed order of summation there
        if values.dtype == torch.float32 and has_triton(values.device):
            from graphmend.engine.triton import spmm as kernels_triton

            return kernels_triton.row_sums(crow, values, hubs)
        views = values if values.dim() == 2 else values.unsqueeze(0)
        sums = [torch.segment_reduce(v, "sum", offsets=crow.long(), unsafe=True, initial=0.0) for v in views]
        return torch.stack(sums).view(*values.shape[:-1], -1)
    return values.new_zeros((*values.shape[:-1], crow.numel() - 1)).index_add_(-1, row, values)


def head_sums(pattern: Pattern, values: Tensor) -> Tensor:
    """The same for several values per entry, ``(E, heads)``."""
    if values.dtype == torch.bfloat16:
        return head_sums(pattern, values.float()).to(values.dtype)
    crow, _, row, _ = pattern
    if values.device.type == "cuda":
        return torch.segment_reduce(values, "sum", offsets=crow.long(), unsafe=True, initial=0.0)
    if values.dim() == 2 and values.dtype == torch.float32 and values.numel() > 0:
        entries = torch.arange(values.size(0), dtype=crow.dtype)
        return F.embedding_bag(entries, values.detach().contiguous(), crow, mode="sum", include_last_offset=True)
    return values.new_zeros((crow.numel() - 1, *values.shape[1:])).index_add_(0, row, values)


def gathered(values: Tensor, index: Tensor) -> Tensor:
    """``values[..., index]``."""
    if values.is_floating_point() and has_triton(values.device) and index.numel() > 0:
        from graphmend.engine.triton import spmm as kernels_triton

        return kernels_triton.gathered(values, index)
    return values.index_select(-1, index)


def scaled(pattern: Pattern, scale: Tensor, weight: Tensor) -> Tensor:
    r""":math:`s_i w_{ij} s_j` for every entry."""
    _, col, row, _ = pattern
    if weight.dtype == torch.float32 and has_triton(weight.device) and col.numel() > 0:
        from graphmend.engine.triton import spmm as kernels_triton

        return kernels_triton.scaled(row, col, scale, weight)
    return scale.index_select(-1, row).mul_(weight).mul_(scale.index_select(-1, col))


def inverse_root_degrees(pattern: Pattern, weight: Tensor) -> Tensor:
    r""":math:`(1 + \sum_k w_k)^{-1/2}` of each row; 0 where that does not exist."""
    if weight.dtype == torch.float32 and has_triton(weight.device):
        from graphmend.engine.triton import spmm as kernels_triton

        return kernels_triton.row_sums(pattern.crow, weight, pattern.hubs, root=True)
    degree = row_sums(pattern, weight).add_(1.0)
    return degree.clamp(min=torch.finfo(degree.dtype).tiny).rsqrt_().masked_fill_(degree <= 0, 0.0)


def cut(grad: Tensor, out: Tensor, scale: Tensor | None) -> Tensor:
    r"""The gradient before :math:`\mathrm{ReLU}(s x + t)`, which gave ``out``."""
    if grad.dtype in (torch.float32, torch.bfloat16) and has_triton(grad.device):
        from graphmend.engine.triton import spmm as kernels_triton

        return kernels_triton.cut(grad, out, scale)
    grad = torch.ops.aten.threshold_backward(grad, out, 0)
    return grad if scale is None else grad.mul_(scale)


def cosines(z: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse norms of the rows of all matrices, 0 for zero rows, and the cosine of each row of ``z`` with the others'.

    Rows are scaled one factor at a time, so that the product of two tiny norms never turns up.
    """
    if z.dtype in (torch.float32, torch.bfloat16) and len(others) <= 2 and has_triton(z.device):
        from graphmend.engine.triton import cosine as cosines_triton

        return cosines_triton.cosines(z, *others)
    if z.dtype == torch.bfloat16:
        return cosines(z.float(), *(other.float() for other in others))
    blocks = _blocks(z)
    if len(blocks) > 1:
        parts = [cosines(*(matrix[rows] for matrix in (z, *others))) for rows in blocks]
        inverses, found = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
        return inverses, found
    norms = torch.stack([torch.linalg.vector_norm(matrix, dim=-1) for matrix in (z, *others)])
    inverses = norms.masked_fill_(norms == 0, torch.inf).reciprocal_()  # a zero row has no direction, and no gradient
    unit = z * inverses[0].unsqueeze(-1)
    return inverses, torch.stack([torch.linalg.vecdot(unit, other) for other in others]).mul_(inverses[1:])


def cosine_gradients(
    z: Tensor, *others: Tensor, inverses: Tensor, cosines: Tensor, steps: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of ``(steps * cosines.sum(1)).sum()`` for all matrices, from what :func:`cosines` found."""
    if z.dtype in (torch.float32, torch.bfloat16) and len(others) <= 2 and has_triton(z.device):
        from graphmend.engine.triton import cosine as cosines_triton

        return cosines_triton.cosine_gradients(z, *others, inverses=inverses, cosines=cosines, steps=steps)
    if z.dtype == torch.bfloat16:
        wide = [matrix.float() for matrix in (z, *others)]
        grads = cosine_gradients(*wide, inverses=inverses, cosines=cosines, steps=steps)
        return tuple(grad.to(z.dtype) for grad in grads)
    blocks, matrices = _blocks(z), (z, *others)
    if len(blocks) > 1:
        whole = tuple(torch.empty_like(matrix) for matrix in matrices)
        for rows in blocks:
            here, known = [matrix[rows] for matrix in matrices], {"inverses": inverses[:, rows]}
            parts = cosine_gradients(*here, **known, cosines=cosines[:, rows], steps=steps)
            for out, part in zip(whole, parts, strict=True):
                out[rows] = part
        return whole
    # step / |z| and step / |u| of every pair (z, u), one per row, and the same times the cosine
    by_z, by_other = (steps.unsqueeze(-1) * scale for scale in (inverses[:1], inverses[1:]))
    off_z, off_other = (by_z * cosines).sum(0), by_other * cosines
    unit, found = z * inverses[0].unsqueeze(-1), []
    grad_z = unit * -off_z.unsqueeze(-1)
    per_pair = (inverses[1:], by_z, by_other, off_other)
    for other, *numbers in zip(others, *per_pair, strict=True):
        scale, for_z, for_other, off = (number.unsqueeze(-1) for number in numbers)
        theirs = other * scale
        grad_z.addcmul_(theirs, for_z)
        found.append((unit * for_other).addcmul_(theirs, off, value=-1))
    return grad_z, *found


def _blocks(z: Tensor) -> list[slice]:
    """Rows to work on at a time: what a CPU computes on the way stays in its cache."""
    width = max(1, z[:1].numel())
    size = max(1, (1 << 18) // width if z.device.type == "cpu" else z.size(0))
    return [slice(start, start + size) for start in range(0, max(1, z.size(0)), size)]
