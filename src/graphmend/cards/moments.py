"""Means and standard deviations of the columns of a representation, and how far apart two such pairs are."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from graphmend.cards.rows import BLOCK, widened
from graphmend.cards.sums import RowSums
from graphmend.errors import require

__all__ = ["Moments", "moments"]

_FLOOR = 0.05  # times the mean standard deviation: the least that is taken for a column's own
_TINY = 1e-12  # the least mean standard deviation


class Moments(NamedTuple):
    """The mean and the standard deviation of each column."""

    mean: Tensor
    std: Tensor

    @property
    def unit(self) -> Tensor:
        """Standard deviations that are safe to divide by, even for columns that hardly vary."""
        return torch.maximum(self.std, _FLOOR * self.std.mean().clamp(min=_TINY))

    def squared_distance(self, other: Moments) -> Tensor:
        r"""How far other moments :math:`(m, s)` are from these, :math:`(\mu, \sigma)`, in units of :math:`\sigma`:

        .. math:: \delta^2 = \tfrac1w \sum_k \Big(\frac{m_k - \mu_k}{\sigma_k}\Big)^2
                  + \tfrac1w \sum_k \Big(\frac{s_k - \sigma_k}{\sigma_k}\Big)^2
        """
        width, own = other.mean.numel(), self.mean.numel()
        require(
            width == own,
            f"a layer has {width} units on this graph but {own} on the source card; make a card of this model from a "
            "graph like this one",
        )
        unit = self.unit
        squares = ((other.mean - self.mean) / unit).square() + ((other.std - self.std) / unit).square()
        return squares.mean()

    def distance(self, other: Moments) -> float:
        r"""The root :math:`\delta` of the :meth:`squared_distance`."""
        return float(self.squared_distance(other).sqrt())


def moments(h: Tensor) -> Moments:
    """The moments of the rows of a representation; ``torch.std_mean`` takes half as long again."""
    if not h.requires_grad and h.numel() > BLOCK:
        mean, std = (part[0].to(h.dtype) for part in RowSums.of(h).moments())
        return Moments(mean, std)
    wide = widened(h)  # squares of half precision overflow
    mean = wide.mean(0)
    std = torch.linalg.vector_norm(wide - mean, dim=0) / h.size(0) ** 0.5  # its gradient is finite at 0
    return Moments(mean.to(h.dtype), std.to(h.dtype))
