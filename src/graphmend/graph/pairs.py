r"""Pairs of nodes as numbers: each pair :math:`i < j` has one, counted along the upper triangle."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["pair_number", "pair_of", "random_numbers"]


def pair_number(i: Tensor, j: Tensor, num_nodes: int) -> Tensor:
    r"""The number :math:`i (2n - i - 1) / 2 + j - i - 1` of the pair :math:`i < j` in an upper triangle."""
    return i * (2 * num_nodes - i - 1) // 2 + j - i - 1


def pair_of(number: Tensor, num_nodes: int) -> Tensor:
    """The pairs ``(2, m)`` with the given numbers; the rounding of the square root is corrected, so they are exact."""
    width = 2 * num_nodes - 1
    i = ((width - (width**2 - 8 * number.double()).clamp(min=0).sqrt()) / 2).long().clamp(0, max(num_nodes - 2, 0))
    i = i - (i * (width - i) // 2 > number).long()
    i = i + ((i + 1) * (width - i - 1) // 2 <= number).long()
    return torch.stack([i, number - i * (width - i) // 2 + i + 1])


def random_numbers(count: int, total: int, generator: torch.Generator, without: Tensor | None = None) -> Tensor:
    """``count`` different numbers below ``total``, none of them in ``without`` (sorted), uniformly, sorted.

    At least ``count`` numbers must be left; memory is proportional to ``count`` and ``without``.
    """
    device, taken = generator.device, 0 if without is None else without.numel()
    drawn = torch.empty(0, dtype=torch.long, device=device)
    if 2 * (count + taken) >= total:  # listing all numbers is cheaper than drawing until enough of them are new
        drawn = torch.arange(total, device=device)
        drawn = drawn if without is None else drawn[~_is_in(drawn, without)]
    while drawn.numel() < count:
        missing = count - drawn.numel()
        more = torch.randint(total, (missing + missing // 8 + 64,), generator=generator, device=device)
        drawn = torch.unique(torch.cat([drawn, more if without is None else more[~_is_in(more, without)]]))
    if drawn.numel() == count:
        return drawn
    order = torch.randperm(drawn.numel(), generator=generator, device=device)
    return drawn[order[:count].sort().values]


def _is_in(values: Tensor, ordered: Tensor) -> Tensor:
    if ordered.numel() == 0:
        return torch.zeros_like(values, dtype=torch.bool)
    return ordered[torch.searchsorted(ordered, values).clamp(max=ordered.numel() - 1)] == values
