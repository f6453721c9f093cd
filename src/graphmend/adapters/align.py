"""Align: give the first layer the moments that it had on the training graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmend.adapters.base import Adapter, Change, Task
from graphmend.cards.moments import Moments, moments
from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.low_rank import changed_features
from graphmend.engine.report import Stopped
from graphmend.errors import require

__all__ = ["Align", "alignment", "running_moments"]

ROUNDS = 6
RIDGE = 1e-3
LARGEST_FACTOR = 2.0  # by which a round may stretch a column


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
        target = running_moments(task) if task.card is None else task.card.first
        base = LinearMaps(data.x)
        change, inverse = alignment(lambda x: frozen.first_layer(x, data.edge_index), base, frozen.first_map, target)
        return Change(task.within_limits(torch.addmm(data.x, self.strength * change, inverse)))


@torch.no_grad()
def alignment(
    first: Callable[[Tensor], Tensor], base: LinearMaps, weight: Tensor, target: Moments
) -> tuple[Tensor, Tensor]:
    r"""The change of the features for which the first layer has the target's moments, as far as it can be done.

    Args:
        first: The output of the first layer for given features.
        base: The features, with their known products.
        weight: The response of the layer's mean to a shift of all rows, ``(columns, width)``.
        target: The moments to reach.

    Returns:
        The change in the coordinates of the first layer, ``(nodes, width)``, and the matrix :math:`W^+` that leads back
        to the features, ``(width, columns)``.
    """
    inverse = _pseudo_inverse(weight)
    u = base.product(torch.mm, weight)
    u = u - u.mean(0)
    stretch, shift, gain, unit = torch.ones_like(target.mean), torch.zeros_like(target.mean), 1.0, target.unit
    now = moments(first(changed_features(base)))
    best, least = torch.zeros_like(u), target.distance(now)
    for _ in range(ROUNDS):
        wanted = target.mean - now.mean
        ratio = target.std / torch.maximum(now.std, 1e-3 * unit)
        stretch = stretch * ratio.clamp(1 / LARGEST_FACTOR, LARGEST_FACTOR)
        shift = shift + gain * wanted
        change = u * (stretch - 1) + shift
        before, now = now, moments(first(changed_features(base, change, inverse)))
        moved = _share(now.mean - before.mean, wanted, unit)
        if moved > 0.1:  # a layer that sums over neighbours answers more strongly than it did on a few nodes
            gain = min(2.0, max(0.02, gain / moved))
        distance = target.distance(now)
        if distance < least:
            best, least = change, distance
    return best, inverse


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


def running_moments(task: Task) -> Moments:
    r"""The moments that a batch normalisation behind the first layer kept from training.

    They were taken under dropout, which widens the standard deviation; the factor
    :math:`\operatorname{sd}(h) / \operatorname{sd}(h \text{ under dropout})` is measured on this graph.
    """
    frozen = task.require_frozen()
    norm = frozen.first_norm
    if norm is None or getattr(norm, "running_mean", None) is None:
        raise Stopped(
            "without a source card only a model with a batch normalisation behind its first layer can be aligned; "
            "make a card with graphmend.card(model, train_data)"
        )
    mean: Tensor = norm.running_mean  # type: ignore[assignment]
    variance: Tensor = norm.running_var  # type: ignore[assignment]
    return Moments(mean.clone(), variance.sqrt())
