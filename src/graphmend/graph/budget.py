r"""The budget: projection of relaxed flips onto it, and discrete flips within it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from numbers import Integral, Real

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmend.engine.tuning import RECORDED_ENTRIES
from graphmend.errors import require

__all__ = ["bernoulli", "check_budget", "project", "samples", "top"]


def check_budget(budget: float | int) -> float | int:
    """A budget is a fraction in [0, 1] or a count of edges; it comes back as a number of Python's."""
    is_number = isinstance(budget, Real) and not isinstance(budget, bool)
    require(is_number, f"budget must be a float fraction or an int count (got {budget!r})")
    if isinstance(budget, Integral):
        require(budget >= 0, f"budget must not be negative (got {budget})")
        return int(budget)
    require(0.0 <= budget <= 1.0, f"budget as a fraction must be in [0, 1] (got {budget}); an int counts edges")
    return float(budget)


def project(p: Tensor, budget: float) -> Tensor:
    r"""Euclidean projection of ``p`` onto :math:`\{0 \le p \le 1,\ \sum p \le B\}` (GTrans, Eq. 4).

    If clipping alone does not meet the budget, the solution is :math:`\Pi_{[0,1]}(p - \gamma)` with
    :math:`\sum \Pi_{[0,1]}(p - \gamma) = B`. That sum is piecewise linear and decreasing in :math:`\gamma`, so Newton's
    method ends after a few steps; one that leaves the bracket :math:`p_{(\lceil B \rceil)} - 1 \le \gamma \le
    p_{(\lfloor B \rfloor + 1)}`, narrowed at every step, is replaced by bisection. On a GPU see :func:`by_sorting`.
    """
    if budget <= 0:
        return torch.zeros_like(p)
    clipped = p.clamp(0.0, 1.0)
    if p.numel() <= budget:
        return clipped
    if p.is_cuda:
        return by_sorting(p, budget)
    if float(clipped.sum(dtype=torch.float64)) <= budget:
        return clipped
    wide = p.double()
    count = wide.numel()
    # the ceil(B)-th and the next largest value
    pivot, upper = (
        float(wide.kthvalue(rank).values) for rank in (count - math.ceil(budget) + 1, count - math.floor(budget))
    )
    wide = (wide - pivot).clamp_(min=-4.0, max=4.0)  # only values within 1 of gamma matter, and gamma is in [-1, 0]
    lower, upper = -1.0, max(upper - pivot, -1.0)
    gamma = upper
    for _ in range(100):
        shifted = wide - gamma
        inside = ((shifted > 0.0) & (shifted < 1.0)).sum()
        total, slope = torch.stack([shifted.clamp_(0.0, 1.0).sum(), inside.double()]).tolist()
        if abs(total - budget) <= 1e-15 * budget:
            break
        if total > budget:
            lower = gamma
        else:
            upper = gamma
        if upper - lower <= 1e-15:
            gamma = upper  # where the sum is within the budget
            break
        step = gamma + (total - budget) / slope if slope else math.inf
        gamma = step if lower < step < upper else 0.5 * (lower + upper)
    return (wide - gamma).clamp_(0.0, 1.0).to(p.dtype)


def by_sorting(p: Tensor, budget: float) -> Tensor:
    """:func:`project` for ``0 < budget < p.numel()`` without synchronising with the device.

    Sorted values and their running sums, of whole numbers so that their order does not matter, give the sum at all of
    its kinks; between the two next to the budget it is a straight line.
    """
    values = p.double().sort().values
    pivot = values[-math.ceil(budget)]
    values, wide = ((t - pivot).clamp_(-4.0, 4.0) for t in (values, p.double()))
    scale = 2.0 ** (60 - values.numel().bit_length())  # the sum of all numbers, none above 4, fits into 63 bits
    whole = (values * scale).round_().long()
    kinks, sums = torch.cat([values - 1.0, values]), F.pad(whole.cumsum(0), (1, 0)).double() / scale
    ones, rest = torch.searchsorted(values, kinks + 1.0), torch.searchsorted(values, kinks, right=True)
    totals = values.numel() - ones + sums[ones] - sums[rest] - kinks * (ones - rest)
    over, within = totals >= budget, totals <= budget
    left, right = kinks.where(over, -torch.inf).amax(), kinks.where(within, torch.inf).amin()
    high, low = totals.where(over, torch.inf).amin(), totals.where(within, -torch.inf).amax()
    share = torch.where(high > low, (high - budget) / (high - low), 1.0)
    gamma = torch.lerp(left, right, share)
    return torch.where(pivot + gamma > 0, wide.sub_(gamma).to(p.dtype), p).clamp_(0.0, 1.0)


def top(p: Tensor, budget: int) -> Tensor:
    """Mask of the ``budget`` largest entries above 0."""
    chosen = torch.zeros_like(p, dtype=torch.bool)
    chosen[p.topk(min(budget, p.numel())).indices] = True
    return chosen & (p > 0)


def bernoulli(p: Tensor, budget: int, generator: torch.Generator | None = None) -> Tensor:
    """A Bernoulli draw of ``p`` that loses entries at random until it is within the budget."""
    flips = torch.rand(p.numel(), generator=generator, device=p.device, dtype=p.dtype) < p
    drawn = flips.nonzero().view(-1)
    surplus = drawn.numel() - budget
    if surplus > 0:
        flips[drawn[torch.randperm(drawn.numel(), generator=generator, device=p.device)[:surplus]]] = False
    return flips


def samples(p: Tensor, budget: int, number: int, generator: torch.Generator | None = None) -> Iterator[Tensor]:
    """Draws of :func:`bernoulli`; on a GPU all at once if they are small, without synchronising."""
    if not p.is_cuda or number * p.numel() >= RECORDED_ENTRIES:
        for _ in range(number):
            yield bernoulli(p, budget, generator)
        return
    flips, lots = (torch.rand((number, p.numel()), generator=generator, device=p.device) for _ in range(2))
    flips = flips < p
    kept = lots.masked_fill_(~flips, -1.0).topk(min(budget, p.numel())).indices
    yield from flips & torch.zeros_like(flips).scatter_(1, kept, True)
