"""Simple statistics of a feature row: its size, its density, its largest entry, entries out of range."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from graphmend.engine.tuning import CACHED_NUMBERS
from graphmend.scratch import large_empty, row_ranges

__all__ = [
    "BLOCK",
    "EMPTY_ROW",
    "ROW_STATISTICS",
    "in_blocks",
    "one_hot",
    "projected",
    "quantiles",
    "row_statistics",
    "set_apart",
    "times",
    "usual",
    "widened",
]

ROW_STATISTICS = ("log norm", "log density", "log maximum", "share outside the range")

BLOCK = 4_000_000  # numbers at a time, so that no copy as large as the features is made
PROJECTED = 64  # columns that wide features are projected to
DEVIATIONS = 4.0  # standard deviations from the usual row, from which on a row can be set apart
GAP = 2.0  # the far end of a gap, divided by its near end
STRAGGLERS = 0.05  # times the rows beyond a gap: as many may lie within it
MIDDLE_HALF = 0.6745  # standard deviations on either side of the mean, within which half of all normal numbers are
_TINY = 1e-12
EMPTY_ROW = math.log(_TINY)  # the log norm of a row without any entry


def in_blocks(x: Tensor, made: int = 1) -> list[Tensor]:
    """The rows of ``x``, some at a time, few enough for a CPU core to keep them in its cache.

    Args:
        x: The rows.
        made: How many numbers are computed for each row, if that is more than it has.
    """
    numbers = CACHED_NUMBERS if x.device.type == "cpu" else BLOCK
    return list(torch.split(x, max(1, numbers // max(1, x.size(1), made))))


def widened(x: Tensor) -> Tensor:
    """The same numbers in at least single precision; sums of smaller floats overflow and are rounded too far."""
    return x.float() if x.element_size() < 4 else x


@torch.no_grad()
def row_statistics(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """The :data:`ROW_STATISTICS` of each row, ``(rows, 4)``; without a range, nothing is outside.

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
    return times(x, projection.to(x))


def one_hot(numbers: Tensor, width: int, like: Tensor) -> Tensor:
    """One-hot rows of whole numbers."""
    return large_empty((numbers.numel(), width), like).zero_().scatter_(1, numbers.unsqueeze(1), 1.0)


def times(x: Tensor, weight: Tensor) -> Tensor:
    """``x @ weight``, of many rows some at a time."""
    if x.numel() <= BLOCK:
        return x @ weight
    out = large_empty((x.size(0), weight.size(1)), x)
    for rows in row_ranges(x.size(0), x.size(1)):
        torch.mm(x[rows], weight, out=out[rows])
    return out


def quantiles(values: Tensor, levels: Sequence[float]) -> Tensor:
    """Quantiles along the first dimension; ``torch.quantile`` refuses more than 16 million numbers."""
    ordered: Tensor = values.sort(0).values
    return ordered[[round(level * (values.size(0) - 1)) for level in levels]]


@torch.no_grad()
def usual(values: Tensor, least: float) -> tuple[Tensor, Tensor]:
    """The centre and the standard deviation of the shortest interval that holds half of the numbers of each column.

    For normal numbers the deviation is the usual one, and both hold while fewer than half of the numbers are broken
    (Rousseeuw's shorth, which broken numbers on one side pull less than a median).

    Args:
        values: One row per node.
        least: The least deviation.
    """
    ordered: Tensor = values.sort(0).values
    half = values.size(0) // 2
    width, start = (ordered[half:] - ordered[: values.size(0) - half]).min(0)
    low = ordered.gather(0, start.unsqueeze(0)).squeeze(0)
    return low + width / 2, (width / (2 * MIDDLE_HALF)).clamp(min=least)


@torch.no_grad()
def set_apart(distance: Tensor) -> Tensor:
    """The rows, as a mask, that a wide and nearly empty gap sets apart from all others.

    Broken rows are a population of their own; the tail of a distribution is not, however long. The gap
    reaches from some distance to :data:`GAP` times that, ends at :data:`DEVIATIONS` or later, and holds at most
    :data:`STRAGGLERS` as many rows as lie beyond it.

    Args:
        distance: Of each row from the usual one, in standard deviations; not negative.
    """
    ordered: Tensor = distance.sort().values
    start = torch.cat([ordered.new_tensor([DEVIATIONS / GAP]), ordered[ordered >= DEVIATIONS / GAP]])
    end = start * GAP
    beyond = ordered.numel() - torch.searchsorted(ordered, end)
    inside = ordered.numel() - torch.searchsorted(ordered, start, right=True) - beyond
    gaps = ((inside <= STRAGGLERS * beyond) & (beyond > 0)).nonzero()
    return distance >= end[gaps[0]] if gaps.numel() else torch.zeros_like(distance, dtype=torch.bool)
