"""Purify: cut edges that fit badly, if there are more of them than in the training graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from graphmend.adapters.base import Adapter
from graphmend.adapters.case import Case
from graphmend.cards.edges import edge_fits, fits_well
from graphmend.cards.source_card import SourceCard
from graphmend.errors import read_fields, within
from graphmend.graph.canonical import edge_keys
from graphmend.results.proposal import Proposal

__all__ = ["Excess", "Purify", "excess_of", "worst_edges"]

MOST = 0.5  # of the edges that may be cut


class Excess(NamedTuple):
    """Edges beyond those the training graph accounts for.

    Args:
        fits: The fit of each edge.
        share: The share of the edges that is in excess.
        kept: Well-fitting edges per node, relative to the training graph; 1 if all of them are still there.
    """

    fits: Tensor
    share: float
    kept: float


@dataclass(frozen=True)
class Purify(Adapter):
    r"""Cut the edges that fit worst, as many as there are too many of them.

    The *fit* of an edge compares its ends with those of the training graph's edges (:mod:`graphmend.cards.edges`).
    Somebody who inserts edges between nodes of different kinds lowers the share :math:`s` of edges that fit better than
    the training graph's median edge, :math:`s_0`; the excess is :math:`1 - s / s_0`. The worst
    ``strength`` :math:`\times` excess of all edges are cut. Self-loops and frozen edges stay.

    Args:
        strength: Edges to cut for each edge in excess. More than 1, because not every inserted edge is among the worst.
    """

    needs = "a source card"

    strength: Annotated[float, within(above=0)] = 1.5

    def __post_init__(self) -> None:
        read_fields(self)

    def propose(self, case: Case) -> Proposal:
        """Count the edges in excess and cut the worst."""
        excess = excess_of(case, case.require_card(self))
        removed = worst_edges(excess.fits, self.strength * excess.share, case)
        sentence = f"{100 * excess.share:.1f} % of the edges are more than the card accounts for"
        return Proposal(removed=removed, sentence=sentence)


@torch.no_grad()
def excess_of(case: Case, card: SourceCard) -> Excess:
    """How many edges there are beyond those that the card accounts for."""
    data = case.data
    hidden = data.x @ case.require_frozen().first_map
    fits = edge_fits(data.x, hidden, data.edge_index, card.edge_grid)
    share = float(fits_well(fits, card.edge_middle).double().mean()) / max(card.edge_share, 1e-12)
    return Excess(fits, max(0.0, 1 - share), share * card.relative_density(data))


@torch.no_grad()
def worst_edges(fits: Tensor, share: float, case: Case) -> Tensor:
    """Positions of the worst edges, both directions of each, without self-loops and frozen edges.

    Among edges that fit equally badly, a number decides that does not depend on how nodes and edges are numbered.
    Edges that cannot be told apart by it stay or go together, whichever is nearer to the share.
    """
    edge_index = case.data.edge_index
    may_go = case.limits.free_edges(edge_index, case.data.x.size(0))
    number = min(round(min(share, MOST) * fits.numel()), int(may_go.sum()))
    if number == 0:
        return torch.empty_like(edge_index[0, :0])
    threshold: Tensor = fits[may_go].kthvalue(number).values  # both directions of an edge have the same fit
    worst: Tensor = (fits < threshold) & may_go
    equal = ((fits == threshold) & may_go).nonzero().view(-1)
    lot = edge_keys(case.require_frozen().node_keys, edge_index[:, equal])
    wanted = number - int(worst.sum())
    last: Tensor = lot.kthvalue(wanted).values
    before, alike = int((lot < last).sum()), int((lot == last).sum())
    worst[equal[lot <= last if 2 * (wanted - before) >= alike else lot < last]] = True
    return worst.nonzero().view(-1)
