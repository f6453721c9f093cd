"""The spread of the feature columns, which is the unit of feature steps."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmend.engine.tuning import CACHED_NUMBERS, STEP_NUMBERS

__all__ = ["column_deviations"]


@torch.no_grad()
def column_deviations(x: Tensor) -> Tensor:
    r"""The standard deviation of every column, :math:`s_j = \sqrt{\frac1N \sum_i (x_{ij} - \bar x_j)^2}`.

    The rows are read once, a block at a time, and no copy as large as ``x`` is made. With the first row subtracted from
    all others, :math:`c_{ij} = x_{ij} - x_{1j}`, it is

    .. math:: s_j^2 = \frac1N \sum_i c_{ij}^2 - \bar c_j^2

    in double precision. A mean that is large compared with the deviation costs no digits: the first row itself, with
    :math:`c = 0`, makes :math:`s_j^2 \ge \bar c_j^2 / N`, so the relative error is at most about N times that of a
    single operation, :math:`10^{-16}`. Squares of single-precision numbers neither overflow nor vanish. A constant
    column has exactly 0, and so has every column where there is only one row.
    """
    numbers = CACHED_NUMBERS if x.device.type == "cpu" else STEP_NUMBERS["cuda"]
    size = min(max(1, numbers // x.size(1)), x.size(0))
    first, buffer = x[0].double(), torch.empty(size, x.size(1), dtype=torch.float64, device=x.device)
    sums, squares = torch.zeros_like(first), torch.zeros_like(first)
    for block in torch.split(x, size):
        shifted = torch.sub(block, first, out=buffer[: block.size(0)])
        sums += shifted.sum(0)
        squares += shifted.square_().sum(0)
    variance = squares / x.size(0) - (sums / x.size(0)).square()
    return variance.clamp(min=0).sqrt().to(x.dtype)
