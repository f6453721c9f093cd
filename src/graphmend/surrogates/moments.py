"""How far the moments of a model's representations are from those on the graph it was trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch_geometric.data import Data

import graphmend.cards.moments as card_moments
from graphmend.cards.source_card import SourceCard
from graphmend.contracts import Backbone
from graphmend.errors import require
from graphmend.surrogates.base import Surrogate

__all__ = ["Moments"]


@dataclass(frozen=True, eq=False)
class Moments(Surrogate):
    r"""The squared distance of the moments of the first layer, and of the embedding Z, from those of the source card.

    .. math:: \mathcal L = \delta^2(h) + \delta^2(z), \qquad
              \delta^2(h) = \frac1w \sum_k \Big(\frac{m_k(h) - \mu_k}{\sigma_k}\Big)^2
              + \frac1w \sum_k \Big(\frac{s_k(h) - \sigma_k}{\sigma_k}\Big)^2

    with the means :math:`m` and standard deviations :math:`s` of the columns on this graph, and :math:`\mu` and
    :math:`\sigma` on the one the model was trained on. Columns that hardly varied there count as if they had varied a
    little, see :attr:`graphmend.cards.moments.Moments.unit`.

    It looks at the first layer, which only a :class:`~graphmend.FrozenGNN` shows; every adapter passes one.

    Args:
        card: The source card of the model, from :func:`graphmend.card`.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.surrogates import Moments
        >>> from graphmend import GTrans
        >>> from graphmend.cards import card
        >>> from graphmend.lab.backbones import GCN
        >>> data, model = Data(x=torch.rand(20, 3), edge_index=torch.randint(20, (2, 60))), GCN(3, 8, 2)
        >>> shifted = Data(x=data.x + 0.5, edge_index=data.edge_index)
        >>> result = GTrans(Moments(card(model, data, task="classes")), steps=5, edge_steps=0)(model, shifted)
        >>> result.history[-1].loss < result.history[0].loss
        True
    """

    card: SourceCard
    _on_device: dict[tuple[torch.device, torch.dtype], SourceCard] = field(
        default_factory=dict, init=False, repr=False
    )  #: a copy inside a recording is not possible

    def __post_init__(self) -> None:
        kind = type(self.card).__name__
        require(
            isinstance(self.card, SourceCard),
            f"Moments needs a source card (got {kind}); make one with graphmend.card(model, train_data)",
        )

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """``first`` and ``embedding``."""
        first_layer: Callable[..., Tensor] | None = getattr(model, "first_layer", None)
        require(
            first_layer is not None,
            f"Moments looks at the first layer, which {type(model).__name__} does not show; "
            "wrap the model in a graphmend.FrozenGNN",
        )
        assert first_layer is not None
        graph, card = (data.x, data.edge_index, data.get("edge_weight")), self._card_like(data.x)
        return {
            "first": _squared_distance("the first layer", card.first, first_layer(*graph)),
            "embedding": _squared_distance("the embedding", card.z, model.embed(*graph)),
        }

    def _card_like(self, x: Tensor) -> SourceCard:
        place = (x.device, x.dtype)
        if place not in self._on_device:
            self._on_device[place] = self.card.to(*place)
        return self._on_device[place]


def _squared_distance(name: str, target: card_moments.Moments, h: Tensor) -> Tensor:
    width = target.mean.numel()
    require(
        h.size(1) == width,
        f"{name} has {h.size(1)} columns, but {width} in the source card; make a card of this model",
    )
    return target.squared_distance(card_moments.moments(h))
