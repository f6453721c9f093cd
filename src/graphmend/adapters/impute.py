"""Impute: fill missing values, and replace broken feature rows by what their neighbours have."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmend.adapters.base import Adapter
from graphmend.adapters.broken_rows import MOST_ROWS, broken_rows
from graphmend.adapters.case import Case
from graphmend.adapters.missing import ROUNDS, neighbour_means
from graphmend.cards.rows import BLOCK, in_blocks, widened
from graphmend.engine.report import Stopped
from graphmend.graph.canonical import row_keys, typical_size
from graphmend.results.proposal import Proposal
from graphmend.scratch import large_empty

__all__ = ["Impute", "refilled"]

DIRECTION = 0.5  # of the usual cosine between a row and its neighbours: from there on, only the size of a row is wrong
SAMPLED = 2000  # rows from which the usual cosine is taken


@dataclass(frozen=True)
class Impute(Adapter):
    r"""Fill missing values, and replace broken feature rows by the mean of their normal neighbours.

    A missing value (NaN) gets the mean of its neighbours in that column, in up to three rounds, otherwise the mean of
    the column on the card or in this graph (:func:`~graphmend.adapters.missing.filled`). Then rows are judged, except
    those in which every value was missing.

    A row is broken if one of its statistics (log norm, log density, log maximum, share of entries outside the range of
    their column) lies outside what the source card has seen *and* is set apart from the other rows by a wide gap:
    neither a shift of all rows nor the long tail of another mix of nodes makes a row broken. Without a card, the gap
    alone decides, and only rows that are larger or fuller than the others count. Broken rows get the mean of their
    normal neighbours, in up to three rounds, otherwise the column means; those that still point in the direction of
    their neighbours are only brought back to the usual size. If more than half of the rows look broken, nothing is
    done.

    Example:
        >>> import torch
        >>> from graphmend import Impute
        >>> from torch_geometric.data import Data
        >>> from graphmend.lab.backbones import GCN
        >>> x = torch.ones(8, 3)
        >>> x[:3] = 1000.0
        >>> ring = torch.stack([torch.arange(8), (torch.arange(8) + 3) % 8])
        >>> Impute()(GCN(3, 4, 2), Data(x=x, edge_index=ring)).data.x.max()
        tensor(1.)
    """

    fills_missing = True

    def propose(self, case: Case) -> Proposal:
        """Find broken rows and repair them."""
        x = case.data.x
        rows = case.judged(broken_rows(x, case.card))
        if not bool(rows.any()):
            return Proposal(sentence="no feature row looks broken")
        share = float(rows.double().mean())
        if share > MOST_ROWS:
            raise Stopped(f"{100 * share:.0f} % of the rows look broken, so nothing shows what a normal row looks like")
        sentence = f"{int(rows.sum())} of {rows.numel()} feature rows look broken"
        return Proposal(case.within_limits(refilled(x, case.data.edge_index, rows)), sentence=sentence)


@torch.no_grad()
def refilled(x: Tensor, edge_index: Tensor, rows: Tensor) -> Tensor:
    """A copy of the features with those rows repaired.

    If a row still points in the direction of its neighbours, only its size is wrong and becomes the usual one. Other
    rows are replaced by the mean of their neighbours, in up to three rounds, otherwise by the mean of all normal rows.
    """
    out, missing = large_empty(tuple(x.shape), x).copy_(x), rows.clone()
    for _ in range(ROUNDS):
        nodes, means = neighbour_means(out, edge_index, ~missing, missing)
        if nodes.numel() == 0:
            break
        out[nodes] = means
        missing[nodes] = False
    normal = ~rows
    if bool(missing.any()):
        blocks = in_blocks(x)
        masks = torch.split(normal, blocks[0].size(0))
        sums = [mask.to(widened(x[:0]).dtype) @ widened(b) for mask, b in zip(masks, blocks, strict=True)]
        out[missing] = (torch.stack(sums).sum(0) / normal.sum()).to(x.dtype)
    size = torch.linalg.vector_norm(x, dim=1, dtype=widened(x[:0]).dtype)
    usual = _usual_cosine(x, edge_index, normal)
    for places in torch.split((rows & (size > 0)).nonzero().view(-1), max(1, BLOCK // x.size(1))):
        kept = places[_cosine(x[places], out[places]) >= DIRECTION * usual]
        out[kept] = (x[kept] * (size[normal].median() / size[kept]).unsqueeze(1)).to(x.dtype)
    return out


def _usual_cosine(x: Tensor, edge_index: Tensor, normal: Tensor) -> float:
    """The median cosine between a normal row and the mean of its normal neighbours, from a few thousand rows."""
    some = torch.zeros_like(normal)
    places = normal.nonzero().view(-1)
    if places.numel() > 2 * SAMPLED:  # the same rows, however nodes are numbered
        unit = typical_size(x)
        pieces = torch.split(places, max(1, BLOCK // x.size(1)))
        places = places[torch.cat([row_keys(x[piece], unit) for piece in pieces]).argsort()[:SAMPLED]]
    some[places] = True
    nodes, means = neighbour_means(x, edge_index, normal, some)
    return float(_cosine(x[nodes], means).median()) if nodes.numel() else 1.0


def _cosine(first: Tensor, second: Tensor) -> Tensor:
    return torch.nn.functional.cosine_similarity(widened(first), widened(second), dim=1, eps=1e-12)
