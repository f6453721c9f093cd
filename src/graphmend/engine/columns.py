"""How far the columns of the features spread: the unit in which features take their steps."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmend.engine.tuning import CACHED_NUMBERS, STEP_NUMBERS

__all__ = ["column_deviations"]


@torch.no_grad()
def column_deviations(x: Tensor) -> Tensor:
    r"""The standard deviation of every column, :math:`s_j = \sqrt{\frac1N \sum_i (x_{ij} - \bar x_j)^2}`.

    The rows are read once, a block at a time, and no copy as large as ``x`` is made. Each block has its own mean and
    its own sum of squares about it, and two of them are merged by Chan's formula, with n and k rows and :math:`\delta`
    the difference of their means:

    .. math:: Q \leftarrow Q + Q' + \frac{n k}{n + k} \delta^2, \qquad \bar x \leftarrow \bar x + \frac{k}{n + k} \delta

    So a mean that is large beside the deviation costs no digits. The first row is subtracted from all others, which
    makes the deviation of a constant column exactly 0; so is that of every column where there is only one row. Numbers
    are summed in double precision, where squares of single-precision numbers neither overflow nor vanish.
    """
    numbers = CACHED_NUMBERS if x.device.type == "cpu" else STEP_NUMBERS["cuda"]
    size = min(max(1, numbers // x.size(1)), x.size(0))
    first, buffer = x[0].double(), torch.empty(size, x.size(1), dtype=torch.float64, device=x.device)
    mean, squares, rows = torch.zeros_like(first), torch.zeros_like(first), 0
    for block in torch.split(x, size):
        count = block.size(0)
        centred = torch.sub(block, first, out=buffer[:count])
        block_mean = centred.mean(0)
        block_squares = centred.sub_(block_mean).square_().sum(0)
        difference = block_mean - mean
        squares += block_squares + difference.square() * (rows * count / (rows + count))
        mean += difference * (count / (rows + count))
        rows += count
    return (squares / rows).sqrt().to(x.dtype)
