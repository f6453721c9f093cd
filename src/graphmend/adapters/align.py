"""Align: give the first layer the moments that it had on the training graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmend.adapters.base import Adapter, Change, Task
from graphmend.cards.moments import Moments, moments
from graphmend.engine.report import Stopped
from graphmend.errors import require
from graphmend.frozen.restore import untouched_rng

__all__ = ["Align", "aligned", "running_moments"]

ROUNDS = 6
RIDGE = 1e-3
LARGEST_FACTOR = 2.0  # by which a round may stretch a column
LARGEST_GAIN = 2.0
LEAST_SHARE = 0.1  # of the wanted shift that must have come about to learn anything from it
DRAWS = 4  # runs with dropout


@dataclass(frozen=True)
class Align(Adapter):
    r"""Shift and stretch the features so that the first layer sees the moments of the training graph again.

    In the coordinates :math:`U = XW` of the first layer, columns are stretched by :math:`a` and shifted by :math:`b`
    until mean and standard deviation of its output :math:`h` are those of the source card, and the change goes back to
    the features along the smallest :math:`\Delta_X`:

    .. math:: X' = X + \big((U - \bar U) (\operatorname{diag}(a) - I) + \mathbf 1 b^\top\big) W^+, \qquad
              W^+ = (W^\top W + \lambda I)^{-1} W^\top

    There is no gradient descent. :math:`W` is the response of the layer's mean to a shift of all rows, which is the
    layer's own weight for a GCN and the sum of both weights for GraphSAGE. Without a card, a batch normalisation behind
    the first layer says what the moments were in training; a model without one cannot be aligned.

    Args:
        strength: How far to go: 1 aligns fully, 0.5 half way.
    """

    strength: float = 1.0

    def __post_init__(self) -> None:
        require(0 < self.strength <= 1, f"strength must be in (0, 1] (got {self.strength})")

    def adapt(self, task: Task) -> Change:
        """Align to the card, or to the running statistics of a batch normalisation."""
        frozen, data = task.require_frozen(), task.data

        def first(x: Tensor) -> Tensor:
            return frozen.first_layer(x, data.edge_index)

        target = running_moments(task) if task.card is None else task.card.first
        x = aligned(first, data.x, frozen.first_map, target)
        if self.strength < 1:
            x = torch.lerp(data.x, x, self.strength)
        return Change(task.within_limits(x))


@torch.no_grad()
def aligned(first: Callable[[Tensor], Tensor], x: Tensor, weight: Tensor, target: Moments) -> Tensor:
    """Features, a new tensor, for which the first layer has the target's moments, as far as it can be done.

    Args:
        first: The output of the first layer for given features.
        x: The features.
        weight: The response of the layer's mean to a shift of all rows, ``(columns, width)``.
        target: The moments to reach.
    """
    inverse, unit = _pseudo_inverse(weight), target.unit
    u = x @ weight
    u -= u.mean(0)
    stretch, shift, gain = torch.ones_like(unit), torch.zeros_like(unit), 1.0
    now = moments(first(x))
    best, least = None, target.distance(now)
    for _ in range(ROUNDS):
        wanted = target.mean - now.mean
        ratio = target.std / now.std.clamp(min=1e-3 * unit)
        stretch = stretch * ratio.clamp(1 / LARGEST_FACTOR, LARGEST_FACTOR)
        shift = shift + gain * wanted
        out = torch.addmm(x, u * (stretch - 1) + shift, inverse)
        before, now = now, moments(first(out))
        came = _share(now.mean - before.mean, wanted, unit)
        if came > LEAST_SHARE:  # a layer that sums over neighbours answers more strongly than it did on a few nodes
            gain = min(LARGEST_GAIN, gain / came)
        distance = target.distance(now)
        if distance < least:
            best, least = out, distance
    return x.clone() if best is None else best


def _share(moved: Tensor, wanted: Tensor, unit: Tensor) -> float:
    """How much of the wanted shift came about."""
    direction = wanted / unit
    return float((moved / unit * direction).sum() / direction.square().sum().clamp(min=1e-30))


def _pseudo_inverse(weight: Tensor) -> Tensor:
    gram = weight.t().double() @ weight.double()
    ridge = RIDGE * gram.diagonal().mean().clamp(min=1e-30)
    eye = torch.eye(gram.size(0), dtype=gram.dtype, device=gram.device)
    inverse: Tensor = torch.linalg.solve(gram + ridge * eye, weight.t().double())
    return inverse.to(weight.dtype)


@torch.no_grad()
def running_moments(task: Task) -> Moments:
    r"""The moments that a batch normalisation behind the first layer kept from training.

    They were taken under dropout, which widens the standard deviation; the factor
    :math:`\operatorname{sd}(h) / \operatorname{sd}(h \text{ under dropout})`, at most 1, is measured on this graph.
    """
    frozen, data = task.require_frozen(), task.data
    norm = frozen.first_norm
    mean: Tensor | None = getattr(norm, "running_mean", None)
    variance: Tensor | None = getattr(norm, "running_var", None)
    if mean is None or variance is None:
        raise Stopped(
            "without a source card only a model with a batch normalisation behind its first layer can be aligned; "
            "make a card with graphmend.card(model, train_data)"
        )
    plain = frozen.first_layer(data.x, data.edge_index).var(0, correction=0)
    with untouched_rng(task.seed), frozen.dropping():
        draws = [frozen.first_layer(data.x, data.edge_index).var(0, correction=0) for _ in range(DRAWS)]
    dropped = torch.stack(draws).mean(0)
    narrower = torch.where(dropped > plain, plain / dropped, 1.0)
    return Moments(mean.to(plain), (variance.to(plain) * narrower).sqrt())
