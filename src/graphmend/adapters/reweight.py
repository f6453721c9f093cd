"""Reweight: let edges count as much as edges between such classes did on the training graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from graphmend.adapters.base import Adapter
from graphmend.adapters.case import Case
from graphmend.cards.edges import pair_counts
from graphmend.errors import read_fields, require, within
from graphmend.model.failures import failures_named
from graphmend.outputs import probabilities
from graphmend.results.proposal import Proposal

__all__ = ["Reweight", "pair_ratios"]

EDGES = (
    10.0  # with the training graph's frequencies, which each class gets in addition, so that a few edges mean little
)
NEGLIGIBLE = 1e-4  # a weight this near 1 is 1


@dataclass(frozen=True)
class Reweight(Adapter):
    r"""Give edges weights that undo a shift in how often classes are connected.

    The message from node :math:`j` to node :math:`i`, of the predicted classes :math:`a` and :math:`b`, gets the weight

    .. math:: w_{ij} = \frac{P_S(a \mid b)}{P_T(a \mid b)}, \qquad
              P_T(a \mid b) = \frac{\sum_{j \to i} p_{ja}\, p_{ib}}{\sum_{j \to i} p_{ib}}

    clipped to :math:`[1/m, m]`. It is the frequency of class :math:`a` among the neighbours of class :math:`b` on the
    training graph, from the source card, divided by that on this graph; both are counted with calibrated soft
    predictions. This is PairAlign's weight (Liu et al., ICML 2024, https://arxiv.org/abs/2403.01092) as a patch of the
    graph. Classes with few edges are left nearly alone. Self-loops and frozen edges keep their weight.

    The weights, multiplied by those that the graph had, are in ``result.data.edge_weight``. A model whose forward takes
    no ``edge_weight`` does not see them: use ``result.logits``, or call it through a :class:`~graphmend.FrozenGNN`,
    ``frozen(data.x, data.edge_index, data.edge_weight)``.

    Args:
        largest: The largest weight :math:`m`; the smallest is its inverse.

    Example:
        >>> import graphmend
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import GCN
        >>> data, model = embedded("wine").test[0], GCN(13, 16, num_layers=2, out_channels=3)
        >>> card = graphmend.card(model, data)
        >>> data.edge_index = data.edge_index[:, ::3]  # other edges than in training
        >>> result = graphmend.mend(model, data, graphmend.Reweight(), card=card)
        >>> tuple(result.data.edge_weight.shape) == (data.num_edges,)
        True
    """

    needs = "a source card"

    largest: Annotated[float, within(low=1)] = 4.0

    tasks = ("classes",)

    def __post_init__(self) -> None:
        read_fields(self)

    @torch.no_grad()
    def propose(self, case: Case) -> Proposal:
        """Compare the pairs of classes with those of the card."""
        frozen, card, data = case.require_frozen(), case.require_card(self), case.data
        frozen.require_edge_weights("leave Reweight out")
        own, edge_index = data.get("edge_weight"), data.edge_index
        require(
            own is None or frozen.reads_weights or frozen.weights_count,
            "the graph has an edge_weight that the model does not read, so new weights have no place; "
            "remove it with del data.edge_weight",
        )
        with failures_named(case.model, data):
            probability = probabilities(frozen(data.x, edge_index), card.temperature)
        ratios = pair_ratios(card.soft_pairs, pair_counts(probability, edge_index))
        largest = min(self.largest, torch.finfo(ratios.dtype).max)
        ratios = ratios.clamp(1 / largest, largest)
        ratios = ratios.masked_fill((ratios - 1).abs() <= NEGLIGIBLE, 1.0)
        source, target = probability.argmax(1)[edge_index]
        weight = ratios[source, target].masked_fill(~case.limits.free_edges(edge_index, data.x.size(0)), 1.0)
        if bool((weight == 1).all()):
            return Proposal(sentence="edges join the classes as often as in training")
        sentence = f"edges between some classes count {float(weight.min()):.2g} to {float(weight.max()):.2g} times"
        return Proposal(edge_weight=weight if own is None else own * weight.to(own.dtype), sentence=sentence)


def pair_ratios(source: Tensor, counts: Tensor) -> Tensor:
    r""":math:`P_S(a \mid b) / P_T(a \mid b)`, where :math:`P_T` counts ten further edges with the frequencies of the
    source.

    It is 1 for a class :math:`b` that no edge of the source leads to.

    Args:
        source: Share of the edges from class :math:`a` to class :math:`b` on the training graph.
        counts: Number of those edges on this graph.
    """
    wanted = source / source.sum(0).clamp(min=torch.finfo(source.dtype).tiny)
    found = (counts + EDGES * wanted) / (counts.sum(0) + EDGES)
    unknown = (source.sum(0) == 0) | (found == 0)
    return (wanted / found.masked_fill(unknown, 1.0)).masked_fill(unknown, 1.0)
