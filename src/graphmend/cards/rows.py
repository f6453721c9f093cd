"""What a feature row looks like from outside: its size, how full it is, its largest entry, entries out of range."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = [
    "BLOCK",
    "EMPTY_ROW",
    "ROW_STATISTICS",
    "in_blocks",
    "projected",
    "quantiles",
    "robust_deviation",
    "row_statistics",
]

ROW_STATISTICS = ("log norm", "log density", "log maximum", "share outside the range")

BLOCK = 4_000_000  # numbers at a time, so that no copy as large as the features is made
PROJECTED = 64  # columns that wide features are projected to
_TINY = 1e-12
EMPTY_ROW = math.log(_TINY)  # the log norm of a row without any entry


def in_blocks(x: Tensor) -> list[Tensor]:
    """The rows of ``x``, some at a time."""
    return list(torch.split(x, max(1, BLOCK // max(1, x.size(1)))))


@torch.no_grad()
def row_statistics(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """The :data:`ROW_STATISTICS` of each row, ``(rows, 4)``; nothing is outside where no range is given.

    Args:
        x: The features.
        low: Lower end of each column's range.
        high: Upper end of each column's range.
    """
    parts = []
    for block in in_blocks(x):
        norm, columns = torch.linalg.vector_norm(block, dim=1), block.size(1)
        largest = torch.maximum(block.amax(1), -block.amin(1))
        density = torch.count_nonzero(block, dim=1).to(x.dtype) / columns
        outside = torch.zeros_like(norm)
        if low is not None and high is not None:
            outside = torch.count_nonzero(block.clamp(low, high) != block, dim=1).to(x.dtype) / columns
        logs = [value.clamp(min=_TINY).log() for value in (norm, density, largest)]
        parts.append(torch.stack([*logs, outside], dim=1))
    return torch.cat(parts)


def projected(x: Tensor) -> Tensor:
    """The rows in a few columns that nearly keep their angles (Johnson and Lindenstrauss), the same for every graph."""
    if x.size(1) <= PROJECTED:
        return x
    generator = torch.Generator().manual_seed(0)
    projection = torch.randn(x.size(1), PROJECTED, generator=generator) / PROJECTED**0.5
    narrow: Tensor = x @ projection.to(x)
    return narrow


def quantiles(values: Tensor, levels: Sequence[float]) -> Tensor:
    """Quantiles along the first dimension; ``torch.quantile`` refuses more than 16 million numbers."""
    ordered: Tensor = values.sort(0).values
    return ordered[[round(level * (values.size(0) - 1)) for level in levels]]


def robust_deviation(values: Tensor) -> Tensor:
    """The standard deviation of each column as the median distance from the median tells it, times 1.4826.

    For normal numbers that is their standard deviation, and it holds while fewer than half of the numbers are broken.
    """
    distance: Tensor = (values - values.median(0).values).abs()
    return 1.4826 * distance.median(0).values
