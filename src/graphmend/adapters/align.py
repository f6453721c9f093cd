"""Align: give the first layer the moments that it had on the training graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from graphmend.adapters.alignment import alignment
from graphmend.adapters.base import Adapter
from graphmend.adapters.case import Case
from graphmend.cards.moments import Moments
from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.report import Stopped
from graphmend.errors import read_fields, within
from graphmend.model.restore import untouched_rng
from graphmend.results.proposal import Proposal

__all__ = ["Align", "running_moments"]

DRAWS = 4  # runs with dropout


@dataclass(frozen=True)
class Align(Adapter):
    r"""Shift and stretch the features so that the first layer sees the moments of the training graph again.

    The change is worked out in the coordinates :math:`U = XW` of the first layer, as :math:`D` and a shift of all rows,
    and becomes the smallest change of the features that brings it about:

    .. math:: X' = X + D W^+ + \mathbf 1 v^\top, \qquad W^+ = (W^\top W + \lambda I)^{-1} W^\top

    Where the output :math:`h` of the layer varies too little, :math:`D` first takes the direction in which the least
    change widens it, the derivative of its variance: for a GCN this is :math:`\hat A^\top (h - \bar h)`, what a
    neighbourhood has in common. What is then still missing comes from stretching the columns of :math:`U` around their
    means. There is no gradient descent. Without a card, a batch normalisation behind the first layer says what the
    moments were in training; a model without one cannot be aligned.

    Args:
        strength: How far to go: 1 aligns fully, 0.5 half way.

    Example:
        >>> import graphmend, torch
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import GCN
        >>> data, model = embedded("wine").test[0], GCN(13, 16, num_layers=2, out_channels=3)
        >>> card = graphmend.card(model, data)
        >>> today = data.clone()
        >>> today.x = 0.5 * data.x + 1.0
        >>> result = graphmend.mend(model, today, graphmend.Align(), card=card)
        >>> bool((result.data.x - data.x).norm() < 0.5 * (today.x - data.x).norm())
        True
    """

    needs = "a source card, or batch normalisation behind the first layer"

    strength: Annotated[float, within(above=0, high=1)] = 1.0

    def __post_init__(self) -> None:
        read_fields(self)

    def propose(self, case: Case) -> Proposal:
        """Align to the card, or to the running statistics of a batch normalisation."""
        frozen, data = case.require_frozen(), case.data
        target = running_moments(case) if case.card is None else case.card.first
        change = alignment(
            lambda x: frozen.first_layer(x, data.edge_index), LinearMaps(data.x), frozen.first_map, target
        )
        moments = "a batch normalisation" if case.card is None else "the source card"
        sentence = f"the first layer is moved to the moments that {moments} has of training"
        return Proposal(case.within_limits(change.added_to(data.x, self.strength)), sentence=sentence)


@torch.no_grad()
def running_moments(case: Case) -> Moments:
    r"""The moments that a batch normalisation behind the first layer kept from training.

    They were taken under dropout, which widens the standard deviation; the factor :math:`\operatorname{sd}(h) /
    \operatorname{sd}(h \text{ under dropout})`, at most 1, is measured on this graph, in an order that makes dropout
    hit the same nodes and edges however they are numbered.
    """
    frozen, data = case.require_frozen(), case.data
    has_any = any(isinstance(module, _NormBase) for module in frozen.module.modules())
    norm = frozen.first_norm if has_any else None
    mean: Tensor | None = getattr(norm, "running_mean", None)
    variance: Tensor | None = getattr(norm, "running_var", None)
    if mean is None or variance is None:
        raise Stopped(
            "without a source card only a model with a batch normalisation behind its first layer can be aligned; "
            "make a card with graphmend.card(model, train_data)"
        )
    plain = frozen.first_layer(data.x, data.edge_index).var(0, correction=0)
    ordered = frozen.canonical(data)
    with (
        untouched_rng(case.seed),
        frozen.on(ordered, weights_count=frozen.weights_count),
        frozen.dropping(),
    ):
        draws = [frozen.first_layer(ordered.x, ordered.edge_index).var(0, correction=0) for _ in range(DRAWS)]
    dropped = torch.stack(draws).mean(0)
    narrower = torch.where(dropped > plain, plain / dropped, 1.0)
    return Moments(mean.to(plain), (variance.to(plain) * narrower).sqrt())
