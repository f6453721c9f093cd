"""Purify: cut edges that fit badly, if there are more of them than in the training graph."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import torch
from torch import Tensor

from graphmend.adapters.base import Adapter
from graphmend.adapters.case import Case
from graphmend.cards.edges import EdgeEnds, fits_well
from graphmend.cards.rows import times
from graphmend.cards.source_card import SourceCard
from graphmend.errors import read_fields, within
from graphmend.graph.canonical import EDGES, edge_keys
from graphmend.results.proposal import Proposal
from graphmend.scratch import large_empty

__all__ = ["Excess", "Purify", "excess_of", "worst_edges"]

MOST = 0.5  # of the edges that may be cut


@dataclass(frozen=True, eq=False)
class Excess:
    """Edges beyond those the training graph accounts for.

    Args:
        ends: What the fits of edges are computed from.
        card: What they are compared with.
        density: Edges per node, relative to the training graph.
    """

    ends: EdgeEnds
    card: SourceCard
    density: float

    @cached_property
    def fits(self) -> Tensor:
        """The fit of each edge."""
        edges, grid = self.ends.edge_index.size(1), self.card.edge_grid
        if edges <= EDGES:
            return self.ends.all_fits(grid)
        out = large_empty((edges,), self.ends.x)
        for start, fits, _ in self.ends.fits(grid):
            out[start : start + fits.numel()] = fits
        return out

    @cached_property
    def _relative(self) -> float:
        """The share of the edges that fit well, relative to the training graph."""
        middle, edges = self.card.edge_middle, self.ends.edge_index.size(1)
        if edges <= EDGES:
            share = float(fits_well(self.fits, middle).double().mean())
        else:
            found = self.ends.fits(self.card.edge_grid, only_once=True)
            share = sum(int(number[fits_well(fits, middle)].sum()) for _, fits, number in found) / edges
        return share / max(self.card.edge_share, 1e-12)

    @property
    def share(self) -> float:
        """The share of the edges that is in excess."""
        return max(0.0, 1 - self._relative)

    @property
    def kept(self) -> float:
        """Well-fitting edges per node, relative to the training graph; 1 if all of them are still there."""
        return self._relative * self.density


@dataclass(frozen=True)
class Purify(Adapter):
    r"""Cut the edges that fit worst, in proportion to how many there are in excess.

    The *fit* of an edge compares its ends with those of the training graph's edges (:mod:`graphmend.cards.edges`).
    Inserting edges between nodes of different kinds lowers the share :math:`s` of edges that fit better than the
    training graph's median edge, from :math:`s_0`; the excess is :math:`1 - s / s_0`. The worst ``strength``
    :math:`\times` excess of all edges are cut. Self-loops and frozen edges stay.

    Args:
        strength: Edges to cut for each edge in excess. More than 1, because not every inserted edge is among the worst.

    Example:
        >>> import graphmend, torch
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import GCN
        >>> data, model = embedded("wine").test[0], GCN(13, 16, num_layers=2, out_channels=3)
        >>> card = graphmend.card(model, data)
        >>> today = data.clone()
        >>> added = torch.randint(178, (2, 400), generator=torch.Generator().manual_seed(0))
        >>> today.edge_index = torch.cat([data.edge_index, added, added.flip(0)], 1)
        >>> result = graphmend.mend(model, today, graphmend.Purify(), card=card)
        >>> bool((result.patch.removed >= data.num_edges).float().mean() > 0.5)
        True
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
    ends = EdgeEnds(data.x, times(data.x, case.require_frozen().first_map), data.edge_index)
    return Excess(ends, card, card.relative_density(data))


@torch.no_grad()
def worst_edges(fits: Tensor, share: float, case: Case) -> Tensor:
    """Positions of the worst edges, both directions of each, without self-loops and frozen edges.

    Among edges that fit equally badly, a key decides that does not depend on how nodes and edges are numbered. Edges
    with the same key stay or go together, whichever comes nearer to the share.
    """
    edge_index = case.data.edge_index
    may_go = case.limits.free_edges(edge_index, case.data.x.size(0))
    number = min(round(min(share, MOST) * fits.numel()), int(may_go.sum()))
    if number == 0:
        return torch.empty_like(edge_index[0, :0])
    threshold = _lowest(fits, may_go, number)  # both directions of an edge have the same fit
    blocks = [slice(start, start + EDGES) for start in range(0, fits.numel(), EDGES)]
    worst = torch.cat([(fits[at] < threshold) & may_go[at] for at in blocks])
    equal = torch.cat([((fits[at] == threshold) & may_go[at]).nonzero().view(-1) + at.start for at in blocks])
    lot = edge_keys(case.require_frozen().node_keys, edge_index[:, equal])
    wanted = number - int(worst.sum())
    last: Tensor = lot.kthvalue(wanted).values
    before, alike = int((lot < last).sum()), int((lot == last).sum())
    worst[equal[lot <= last if 2 * (wanted - before) >= alike else lot < last]] = True
    return worst.nonzero().view(-1)


def _lowest(fits: Tensor, may_go: Tensor, number: int) -> float:
    """The ``number``-th lowest fit of the edges that may go; fits come in steps, so few values differ."""
    counts: dict[float, int] = {}
    for some, free in zip(torch.split(fits, EDGES), torch.split(may_go, EDGES), strict=True):
        values, numbers = torch.unique(some[free], return_counts=True)
        for value, count in zip(values.tolist(), numbers.tolist(), strict=True):
            counts[value] = counts.get(value, 0) + count
    for value in sorted(counts):
        number -= counts[value]
        if number <= 0:
            return value
    raise ValueError(f"there are no {number} further edges")
