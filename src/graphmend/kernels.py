"""The few products everything else is made of, in the fastest form each device has.

All work on compressed rows: entry ``k`` of row ``i`` lies in ``crow[i]:crow[i + 1]`` and has the column ``col[k]``.
"""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["product", "row_sums", "sampled_product"]

with warnings.catch_warnings():  # torch says once per process that CSR is in beta; say it here, to nobody
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.tensor([], dtype=torch.long), torch.tensor([]), (1, 1))


def product(crow: Tensor, col: Tensor, values: Tensor, x: Tensor) -> Tensor:
    r""":math:`Y_i = \sum_k v_k X_{col(k)}` over the entries of row ``i``."""
    if col.numel() == 0:
        return x.new_zeros((crow.numel() - 1, x.size(1)))
    if x.device.type == "cpu" and x.dtype == torch.float32:  # FBGEMM: the fastest sparse product torch has here
        x, values = x.detach().contiguous(), values.detach()  # or it makes ready for a gradient of its own
        return F.embedding_bag(col, x, crow, mode="sum", per_sample_weights=values, include_last_offset=True)
    size = (crow.numel() - 1, x.size(0))
    # CUDA reads strided values as if they were contiguous, and says nothing
    matrix = torch.sparse_csr_tensor(crow, col, values.contiguous(), size, check_invariants=False)
    return torch.mm(matrix, x)


def sampled_product(crow: Tensor, col: Tensor, left: Tensor, right: Tensor) -> Tensor:
    r""":math:`\langle L_i, R_{col(k)} \rangle` for every entry ``k`` of row ``i``."""
    zeros = left.new_zeros(col.numel())  # read even with beta=0: it must not hold NaN
    if col.numel() == 0:
        return zeros
    pattern = torch.sparse_csr_tensor(crow, col, zeros, (left.size(0), right.size(0)), check_invariants=False)
    values: Tensor = torch.sparse.sampled_addmm(pattern, left.contiguous(), right.t(), beta=0.0).values()
    return values


def row_sums(crow: Tensor, row: Tensor | None, values: Tensor) -> Tensor:
    """The sum of the values of each row, for values of shape ``(E,)`` or ``(E, heads)``.

    Args:
        crow: Offsets of the rows.
        row: The row of each entry, if it is there.
        values: Values in row order.
    """
    if row is None or values.device.type == "cuda":  # index_add has no fixed order of summation on a GPU
        return torch.segment_reduce(values, "sum", offsets=crow.long(), unsafe=True, initial=0.0)
    return values.new_zeros((crow.numel() - 1, *values.shape[1:])).index_add_(0, row, values)
