r"""Sums over rows that can be merged: from shards or blocks, by any process, in any order.

For every group of rows, for example a random half, they hold the number :math:`n_g`, the sums :math:`\sum (x - c)` and
:math:`\sum (x - c)^2` around a fixed row :math:`c` near the mean, in double precision. Two such sums are added number
by number, so the order of the parts affects only the last digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from graphmend.cards.rows import in_blocks, widened

__all__ = ["Groups", "RowSums"]


class Groups:
    """Up to 32 groups of rows, each as one bit of an integer per row, which takes less memory than lists of rows.

    Args:
        rows: How many rows there are.
        device: Where they are.
    """

    def __init__(self, rows: int, device: torch.device) -> None:
        self.bits = torch.zeros(rows, dtype=torch.int32, device=device)
        self.number = 0

    def add(self, rows: Tensor) -> None:
        """One more group of rows, given by their numbers."""
        self.bits[rows] |= 1 << self.number
        self.number += 1

    def blocks(self, size: int, dtype: torch.dtype) -> Iterator[Tensor]:
        """For some rows at a time, 1 where a row is in a group, ``(groups, rows)``."""
        places = torch.arange(self.number, dtype=torch.int32, device=self.bits.device).unsqueeze(1)
        for part in torch.split(self.bits, size):
            yield ((part >> places) & 1).to(dtype)


@dataclass
class RowSums:
    """The sums of some rows.

    Args:
        centre: A row near the mean, the same for all parts.
        groups: How many groups.
    """

    centre: Tensor
    groups: int = 1
    number: Tensor = field(init=False)
    total: Tensor = field(init=False)
    square: Tensor = field(init=False)

    def __post_init__(self) -> None:
        shape = (self.groups, self.centre.numel())
        self.number = self.centre.new_zeros(self.groups, dtype=torch.float64)
        self.total, self.square = (self.centre.new_zeros(shape, dtype=torch.float64) for _ in range(2))

    def add(self, rows: Tensor, members: Tensor | None = None) -> RowSums:
        """Add some rows; ``members`` says which are in which group, ``(groups, rows)``."""
        away = widened(rows) - self.centre
        squares = away.square()
        if members is None:
            self.number += rows.size(0)
            self.total += away.sum(0, dtype=torch.float64)
            self.square += squares.sum(0, dtype=torch.float64)
        else:
            self.number += members.sum(1, dtype=torch.float64)
            self.total += members @ away
            self.square += members @ squares
        return self

    def merge(self, other: RowSums) -> RowSums:
        """Add the sums of other rows around the same centre."""
        self.number, self.total, self.square = (
            self.number + other.number,
            self.total + other.total,
            self.square + other.square,
        )
        return self

    def moments(self) -> tuple[Tensor, Tensor]:
        """The means and the standard deviations of each group."""
        number = self.number.clamp(min=1).unsqueeze(1)
        shift = self.total / number
        variance = (self.square / number - shift.square()).clamp(min=0)
        return self.centre + shift, variance.sqrt()

    @classmethod
    def of(cls, rows: Tensor, groups: Groups | None = None) -> RowSums:
        """Those of all rows, some at a time."""
        blocks = in_blocks(rows, 0 if groups is None else groups.number)
        out = cls(widened(blocks[0]).mean(0), 1 if groups is None else groups.number)
        if groups is None:
            for block in blocks:
                out.add(block)
        else:
            for block, members in zip(blocks, groups.blocks(blocks[0].size(0), out.centre.dtype), strict=True):
                out.add(block, members)
        return out
