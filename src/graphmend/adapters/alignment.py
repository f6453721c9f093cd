r"""The closed form behind :class:`~graphmend.adapters.Align`: features for which the first layer has given moments.

The change has low rank, :math:`X' = X + D V^+ + \mathbf 1 v^\top`: :math:`V` are the matrices that the first layer
multiplies the features by, one below the other; :math:`V^+` leads back from its coordinates to the features by the
smallest change; and :math:`v` shifts all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from graphmend.cards.moments import Moments, moments
from graphmend.cards.rows import times
from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.low_rank import Leaves, changed_features
from graphmend.scratch import ROWS, large_empty, row_ranges

__all__ = ["LowRankChange", "alignment"]

ROUNDS = 6
SMOOTH_ROUNDS = 2
CLOSE = 1e-3  # a distance from the target at which there is nothing left to do
RIDGE = 1e-3
LARGEST_FACTOR = 2.0  # by which one round may stretch or shrink a column
LARGEST_GAIN = 2.0
LEAST_SHARE = 0.1  # of the wanted shift: a round that achieved less says nothing about the gain
LEAST_RESPONSE = 1e-10  # of a column's variance: smaller responses are rounding, and nothing can be reached along them
LARGEST_ROW = 2.0  # times a typical row: the most by which one node may change


@dataclass(frozen=True, eq=False)
class LowRankChange:
    """A change of the features, ``left @ right``."""

    left: Tensor
    right: Tensor

    def of(self, base: LinearMaps) -> Tensor:
        """The changed features, for a model to run on; they are not written out."""
        return changed_features(base, self.left, self.right)

    def added_to(self, x: Tensor, strength: float = 1.0) -> Tensor:
        """The changed features, written out."""
        out = large_empty(tuple(x.shape), x)
        for rows in row_ranges(*x.shape):
            out[rows] = torch.addmm(x[rows], self.left[rows], self.right, alpha=strength)
        return out


@torch.no_grad()
def alignment(first: Callable[[Tensor], Tensor], base: LinearMaps, weight: Tensor, target: Moments) -> LowRankChange:
    """The change of the features after which the first layer has the target's moments, as far as it can be done.

    Args:
        first: The output of the first layer for given features.
        base: The features, with their known products.
        weight: The response of the layer's mean to a shift of all rows, ``(columns, width)``.
        target: The moments to reach.
    """
    h = first(changed_features(base))
    now = moments(h)
    least = target.distance(now)
    space = _Coordinates(first, base, weight)
    u = space.stretching()
    inside, shift, gain = large_empty(tuple(u.shape), u).zero_(), torch.zeros_like(target.mean), 1.0
    change = space.change(inside, shift)
    best = change
    for turn in range(ROUNDS if least >= CLOSE else 0):
        direction = u
        if turn < SMOOTH_ROUNDS:  # columns that vary too little are widened along what neighbourhoods share
            narrow = (now.std < target.std).repeat(space.copies)
            direction = _mapped(partial(_chosen, narrow), space.widening(None if turn == 0 else change), u)
        response = _mapped(torch.sub, first(space.change(_mapped(torch.add, inside, direction), shift).of(base)), h)
        wanted = target.mean - now.mean
        factors = _factors(h, response, target.std).repeat(space.copies)
        inside = _mapped(partial(_further, factors), inside, direction)
        shift = shift + gain * wanted
        change = space.change(inside, shift)
        h = first(change.of(base))
        before, now = now, moments(h)
        moved = _share(now.mean - before.mean, wanted, target.unit)
        if moved > LEAST_SHARE:  # a layer that sums over neighbours answers more strongly than it did on a few nodes
            gain = min(LARGEST_GAIN, gain / moved)
        distance = target.distance(now)
        if distance < least:
            best, least = change, distance
        if distance < CLOSE:
            break
    return best


class _Coordinates:
    """The coordinates of the first layer, and the way back to the features.

    They are the products of the features with the layer's matrices. A layer may also multiply sums over neighbours by a
    second matrix, which is then the response of the layer's mean minus the known matrix. If nothing is known, the
    coordinates are the product of the features with the response of the mean.
    """

    def __init__(self, first: Callable[[Tensor], Tensor], base: LinearMaps, weight: Tensor) -> None:
        self.first, self.base, width = first, base, weight.size(1)
        leaves = Leaves(base)
        self._start = self._narrow_gradient(leaves)
        self.rows, known = weight.t(), leaves.weights
        if self._start is not None and known.size(0) % width == 0:
            self.rows = known
        else:
            self._start = None
            if known.size(0) == width:  # the other matrix is multiplied with sums over neighbours
                self.rows = torch.cat([self.rows - known, known])
        self.copies = self.rows.size(0) // width
        self.inverse = _pseudo_inverse(self.rows)
        self.shift = _pseudo_inverse(weight.t())

    def change(self, inside: Tensor, shift: Tensor) -> LowRankChange:
        """The change that is ``inside`` in these coordinates and moves the mean of the layer by ``shift``."""
        left = large_empty((inside.size(0), inside.size(1) + 1), inside)
        left[:, :-1] = inside
        left[:, -1] = 1.0
        return LowRankChange(left, torch.cat([self.inverse, (shift @ self.shift).unsqueeze(0)]))

    def stretching(self) -> Tensor:
        """The direction that stretches every column around its mean."""
        if self._start is None:
            u = times(self.base.x, self.rows.t())
        else:
            products = [product.detach() for product in self._start.leaves.products]
            u = products[0] if len(products) == 1 else torch.cat(products, dim=1)
        return _centred(u)

    def widening(self, change: LowRankChange | None) -> Tensor:
        r"""The direction in which the least change widens the layer's output.

        For a GCN this is :math:`\hat A^\top (h - \bar h)`. Hubs, which many neighbours pull, move no further than twice
        a typical node.
        """
        if self._start is None:
            direction = self._wide_gradient(change) @ self.inverse.t()
        elif change is None:
            direction = self._start.gradient
        else:
            found = self._narrow_gradient(Leaves(self.base, change.left, change.right))
            direction = self._start.gradient if found is None else found.gradient
        direction = _centred(direction)
        unit = moments(direction).std.clamp(min=1e-30)
        blocks = row_ranges(*direction.shape)
        size = torch.cat([torch.linalg.vector_norm(direction[at] / unit, dim=1, keepdim=True) for at in blocks])
        factor: Tensor = (LARGEST_ROW * size.median() / size.clamp(min=1e-30)).clamp(max=1.0)
        return _mapped(torch.mul, direction, factor)

    def _narrow_gradient(self, leaves: Leaves) -> _Gradient | None:
        """The gradient of half the layer's variance for the products of the features, if the layer sees only these."""
        with torch.enable_grad():
            h = self.first(leaves.features)
            if not leaves.products or not h.requires_grad:
                return None
            found = torch.autograd.grad(h, leaves.products, _centred(h.detach()), allow_unused=True)
        parts = [torch.zeros_like(p) if g is None else g for g, p in zip(found, leaves.products, strict=True)]
        return _Gradient(leaves, parts[0] if len(parts) == 1 else torch.cat(parts, dim=1))

    def _wide_gradient(self, change: LowRankChange | None) -> Tensor:
        """The same for the features themselves."""
        x = (self.base.x if change is None else change.added_to(self.base.x)).detach().clone().requires_grad_()
        with torch.enable_grad():
            h = self.first(x)
            found = torch.autograd.grad(h, x, _centred(h.detach()), allow_unused=True) if h.requires_grad else (None,)
            gradient = found[0]
        return torch.zeros_like(x) if gradient is None else gradient


class _Gradient(NamedTuple):
    leaves: Leaves
    gradient: Tensor


def _centred(h: Tensor) -> Tensor:
    """The rows around their mean; also the gradient of half of their variance, which is why it is taken so often."""
    mean = h.mean(0)
    return _mapped(lambda rows: rows - mean, h)


def _further(factors: Tensor, rows: Tensor, direction: Tensor) -> Tensor:
    return rows + direction * factors


def _chosen(columns: Tensor, rows: Tensor, others: Tensor) -> Tensor:
    return torch.where(columns, rows, others)


def _mapped(function: Callable[..., Tensor], *parts: Tensor) -> Tensor:
    """A function that works row by row, applied to some rows at a time where there are many."""
    first = parts[0]
    if first.numel() <= ROWS:
        return function(*parts)
    out = large_empty(tuple(first.shape), first)
    for rows in row_ranges(*first.shape):
        out[rows] = function(*(part[rows] for part in parts))
    return out


def _factors(h: Tensor, response: Tensor, wanted: Tensor) -> Tensor:
    r"""How far to go along a response :math:`q` of each column so that it has the wanted deviation.

    This is the smaller root of :math:`\operatorname{var}(h + a q) = \sigma^2`. The deviation is at most doubled or
    halved at a time.
    """
    means, blocks = (h.mean(0), response.mean(0)), row_ranges(*h.shape)
    pairs = ((h[at] - means[0], response[at] - means[1]) for at in blocks)
    sums = torch.stack([torch.stack([a.square().sum(0), b.square().sum(0), (a * b).sum(0)]) for a, b in pairs])
    variance, square, mixed = sums.sum(0) / h.size(0)
    deviation = variance.sqrt()
    goal = torch.minimum(torch.maximum(wanted, deviation / LARGEST_FACTOR), deviation * LARGEST_FACTOR)
    root = (mixed.square() - square * (deviation.square() - goal.square())).clamp(min=0).sqrt()
    answers = square > LEAST_RESPONSE * deviation.square()
    return torch.where(answers, (-mixed + torch.where(mixed >= 0, root, -root)) / square, 0.0)


def _share(moved: Tensor, wanted: Tensor, unit: Tensor) -> float:
    """How much of the wanted shift came about."""
    direction = wanted / unit
    return float((moved / unit * direction).sum() / direction.square().sum().clamp(min=1e-30))


def _pseudo_inverse(rows: Tensor) -> Tensor:
    r"""The matrix :math:`V^+ = (V V^\top + \lambda I)^{-1} V` for the rows :math:`V` of linear maps."""
    gram = rows.double() @ rows.double().t()
    ridge = RIDGE * gram.diagonal().mean().clamp(min=1e-30)
    eye = torch.eye(gram.size(0), dtype=gram.dtype, device=gram.device)
    inverse: Tensor = torch.linalg.solve(gram + ridge * eye, rows.double())
    return inverse.to(rows.dtype)
