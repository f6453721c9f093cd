"""The few sparse products that everything else is made of, in the fastest form for each device, without gradients.

All of them work on compressed rows: entry ``k`` of row ``i`` lies in ``crow[i]:crow[i + 1]`` and has the column
``col[k]``. On a CPU the sparse product is FBGEMM's ``embedding_bag``, on an NVIDIA GPU a Triton kernel that also does
what a layer does around a hop; other types and devices take torch's own sparse matrices.
"""

from __future__ import annotations

import functools
import importlib.util
import warnings
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmend.engine.tuning import CACHED_NUMBERS, HUB_DEGREE

__all__ = [
    "Pattern",
    "at_least_single",
    "gathered",
    "has_triton",
    "hop",
    "inverse_root_degrees",
    "relu_gradient",
    "row_blocks",
    "row_products",
    "row_sums",
    "sampled_product",
    "scaled",
]


class Pattern(NamedTuple):
    """Where the entries of a sparse matrix are."""

    crow: Tensor  #: offsets of the rows
    col: Tensor  #: column of each entry
    row: Tensor  #: row of each entry
    hubs: Tensor  #: rows with very many entries, which get GPU programs of their own (empty on a CPU)

    @classmethod
    def of(cls, crow: Tensor, col: Tensor, row: Tensor) -> Pattern:
        """The pattern with its hubs."""
        if has_triton(crow.device):
            return cls(crow, col, row, (crow.diff() > HUB_DEGREE).nonzero().view(-1).to(crow.dtype))
        return cls(crow, col, row, crow[:0])


@functools.cache
def has_triton(device: torch.device) -> bool:
    """Whether Triton kernels run on a device."""
    return (
        device.type == "cuda"
        and importlib.util.find_spec("triton") is not None
        and torch.cuda.get_device_capability(device) >= (7, 0)
    )


def at_least_single(dtype: torch.dtype) -> torch.dtype:
    """The type that sums and degrees are computed in: half precision has too few digits for them."""
    return torch.promote_types(dtype, torch.float32)


def _takes_triton(values: Tensor) -> bool:
    return values.dtype == torch.float32 and has_triton(values.device)


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
    r""":math:`\mathrm{ReLU}(s (Y + R) + t)` with :math:`Y_i = \sum_k v_k X_{col(k)} + \ell_i X_i`."""
    x, values = x.detach(), values.detach()  # otherwise embedding_bag prepares a gradient of its own
    if _takes_triton(x):
        from graphmend.engine.triton import spmm

        return spmm.hop(pattern, values, x, loop=loop, add=add, scale=scale, shift=shift, relu=relu)
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
    if col.numel() > (crow.numel() - 1) * x.size(
        0
    ):  # repeated edges: cuSPARSE takes no more entries than there are pairs
        return x.new_zeros((crow.numel() - 1, x.size(1))).index_add_(0, pattern.row, values.unsqueeze(-1) * x[col])
    return torch.mm(_csr(crow, col, values.contiguous(), (crow.numel() - 1, x.size(0))), x)


def _csr(crow: Tensor, col: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    """A torch matrix over the same memory. CUDA reads strided values as if they were contiguous."""
    _silence_csr_warning()
    return torch.sparse_csr_tensor(crow, col, values, size, check_invariants=False)


@functools.cache
def _silence_csr_warning() -> None:
    """Torch says once per process that CSR matrices are in beta; users of GraphMend do not need to know."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.tensor([], dtype=torch.long), torch.tensor([]), (1, 1))


def sampled_product(pattern: Pattern, left: Tensor, right: Tensor) -> Tensor:
    r""":math:`\langle L_i, R_{col(k)} \rangle` for every entry ``k`` of row ``i``."""
    crow, col, row, _ = pattern
    if _takes_triton(left) and col.numel() > 0:
        from graphmend.engine.triton import spmm

        return spmm.sampled_product(pattern, left, right)
    zeros = left.new_zeros(col.numel())  # read even with beta=0, so it must not hold NaN
    if col.numel() == 0:
        return zeros
    if col.numel() > left.size(0) * right.size(0):  # repeated edges; torch would write past the end of its result
        products: Tensor = torch.linalg.vecdot(left.detach().index_select(0, row), right.detach().index_select(0, col))
        return products
    matrix = _csr(crow, col, zeros, (left.size(0), right.size(0)))
    left, right = left.detach().contiguous(), right.detach()
    torch.sparse.sampled_addmm(matrix, left, right.t(), beta=0.0, out=matrix)  # in place: a new matrix copies columns
    values: Tensor = matrix.values()
    return values


def row_products(left: Tensor, right: Tensor) -> Tensor:
    r""":math:`\langle L_i, R_i \rangle` for every row; the products of a block of rows are summed up in the cache."""
    parts = [torch.linalg.vecdot(left[rows], right[rows]) for rows in row_blocks(left)]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def row_sums(pattern: Pattern, values: Tensor) -> Tensor:
    """The sum of the values of each row, for one value per entry, ``(E,)``, or several, ``(E, heads)``."""
    crow, _, row, _ = pattern
    dtype = at_least_single(values.dtype)
    if dtype != values.dtype:
        return row_sums(pattern, values.to(dtype)).to(values.dtype)
    if values.dim() == 1 and _takes_triton(values):
        from graphmend.engine.triton import spmm

        return spmm.row_sums(pattern, values)
    if values.is_cuda:  # index_add has no fixed order of summation there
        return torch.segment_reduce(values, "sum", offsets=crow.long(), unsafe=True, initial=0.0)
    if values.dim() == 2 and values.dtype == torch.float32 and values.numel() > 0:
        entries = torch.arange(values.size(0), dtype=crow.dtype)
        return F.embedding_bag(entries, values.detach().contiguous(), crow, mode="sum", include_last_offset=True)
    return values.new_zeros((crow.numel() - 1, *values.shape[1:])).index_add_(0, row, values)


def gathered(values: Tensor, index: Tensor) -> Tensor:
    """``values[index]``."""
    if values.dim() == 1 and values.is_floating_point() and has_triton(values.device) and index.numel() > 0:
        from graphmend.engine.triton import spmm

        return spmm.gathered(values, index)
    return values.index_select(0, index)


def scaled(pattern: Pattern, scale: Tensor, weight: Tensor) -> Tensor:
    r""":math:`s_i w_{ij} s_j` for every entry."""
    _, col, row, _ = pattern
    if _takes_triton(weight) and col.numel() > 0:
        from graphmend.engine.triton import spmm

        return spmm.scaled(pattern, scale, weight)
    return scale.index_select(0, row).mul_(weight).mul_(scale.index_select(0, col))


def inverse_root_degrees(pattern: Pattern, weight: Tensor) -> Tensor:
    r""":math:`(1 + \sum_k w_k)^{-1/2}` of each row; 0 where the root does not exist."""
    if _takes_triton(weight):
        from graphmend.engine.triton import spmm

        return spmm.row_sums(pattern, weight, inverse_root=True)
    degree = row_sums(pattern, weight).add_(1.0)
    return degree.clamp(min=torch.finfo(degree.dtype).tiny).rsqrt_().masked_fill_(degree <= 0, 0.0)


def relu_gradient(grad: Tensor, out: Tensor, scale: Tensor | None) -> Tensor:
    r"""The gradient before :math:`\mathrm{ReLU}(s x + t)`, which gave ``out``."""
    if _takes_triton(grad):
        from graphmend.engine.triton import spmm

        return spmm.relu_gradient(grad, out, scale)
    grad = torch.ops.aten.threshold_backward(grad, out, 0)
    return grad if scale is None else grad.mul_(scale)


def row_blocks(z: Tensor) -> list[slice]:
    """Blocks of rows whose intermediate results stay in a CPU core's cache; on a GPU all rows at once."""
    width = max(1, z[:1].numel())
    size = max(1, CACHED_NUMBERS // width if z.device.type == "cpu" else z.size(0))
    return [slice(start, start + size) for start in range(0, max(1, z.size(0)), size)]
