"""Impute: fill missing values, and replace abnormal feature rows by what their neighbours have."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmend.adapters.base import Adapter, Change, Task
from graphmend.adapters.missing import ROUNDS, both_directions, neighbour_means
from graphmend.cards.make import column_range
from graphmend.cards.rows import BLOCK, EMPTY_ROW, row_statistics, set_apart, usual, widened
from graphmend.cards.source_card import SourceCard
from graphmend.engine.report import Stopped
from graphmend.graph.canonical import row_keys, typical_size

__all__ = ["Impute", "abnormal_rows", "outlying_rows", "refilled"]

LEAST_DEVIATION = 0.05  # of a row statistic: where all rows are nearly alike, small differences say little
EMPTY = 0.01  # of all rows: where so many more are empty than ever in training, an empty row is a missing one
EMPTY_FACTOR = 4.0  # times the share of empty rows in training, that another mix of nodes may have
MOST_ROWS = 0.5  # of all rows, that may look abnormal
DIRECTION = 0.5  # of the usual cosine between a row and its neighbours, from which a row only has a wrong size
SAMPLED = 2000  # rows that the usual cosine is taken from

LEAST_STEP = 0.3  # the least standard deviation of a row statistic, without a card; protects discrete features
FEWEST_ROWS = 3


@dataclass(frozen=True)
class Impute(Adapter):
    r"""Fill missing values, and replace abnormal feature rows by the mean of their normal neighbours.

    A missing value (NaN) gets the mean of what its neighbours have in that column, over three rounds, or else the mean
    of the column on the card or in this graph (:func:`~graphmend.adapters.missing.filled`). Then rows are judged, but
    not those that had no value at all.

    A row is abnormal if one of its statistics (log norm, log density, log maximum, share of entries outside the range
    of their column) lies outside what the source card has seen *and* is set apart from the other rows by a wide gap:
    neither a shift of all rows nor the long tail of another mix of nodes makes a row abnormal. Without a card, the gap
    alone decides, upwards. Abnormal rows get the mean of their normal neighbours, over three rounds, or else the column
    means; those that still point where their neighbours point only get the usual size. Nothing is done where more than
    half of the rows look abnormal.

    Example:
        >>> from torch_geometric.data import Data
        >>> from graphmend.nn import GCN
        >>> x = torch.ones(8, 3)
        >>> x[:3] = 1000.0
        >>> ring = torch.stack([torch.arange(8), (torch.arange(8) + 3) % 8])
        >>> Impute()(GCN(3, 4, 2), Data(x=x, edge_index=ring)).data.x.max()
        tensor(1.)
    """

    fills_missing = True

    def adapt(self, task: Task) -> Change:
        """Find abnormal rows and fill them."""
        x = task.data.x
        rows = task.judged(outlying_rows(x) if task.card is None else abnormal_rows(x, task.card))
        if not bool(rows.any()):
            return Change()
        share = float(rows.double().mean())
        if share > MOST_ROWS:
            raise Stopped(f"{100 * share:.0f} % of the rows look abnormal, so nobody knows what normal rows are")
        return Change(task.within_limits(refilled(x, task.data.edge_index, rows)))


@torch.no_grad()
def abnormal_rows(x: Tensor, card: SourceCard) -> Tensor:
    """The rows, as a mask, that the card's graph has not seen and that are set apart from those it has.

    What is usual is told from the rows that the card accounts for, if these are at least half of all, and else from
    all rows: where all of them have shifted, none is set apart. Empty rows are abnormal where the training graph had
    far fewer.
    """
    rows = row_statistics(x, *column_range(card.column_min, card.column_max))
    empty = rows[:, 0] <= EMPTY_ROW
    unseen = (rows < card.row_low) | (rows > card.row_high)
    apart = torch.zeros_like(unseen)
    least = max(LEAST_DEVIATION, 1 / x.size(1))  # of few columns, a single one sets no row apart
    for statistic, new, out in zip(rows.t(), unseen.t(), apart.t(), strict=True):
        known = statistic[~new & ~empty]
        reference = known if 2 * known.numel() >= int((~empty).sum()) else statistic[~empty]
        if reference.numel() > 0:
            centre, deviation = usual(reference, least)
            distance = ((statistic - centre) / deviation).masked_fill(empty, 0.0)
            out |= set_apart(distance.clamp(min=0)) | set_apart((-distance).clamp(min=0))
    are_missing = float(empty.double().mean()) > EMPTY + EMPTY_FACTOR * card.empty_rows
    return torch.where(empty, are_missing, (unseen & apart).any(1))


@torch.no_grad()
def outlying_rows(x: Tensor) -> Tensor:
    """The rows, as a mask, whose size, density or largest entry sets them apart upwards from all others.

    This needs no card. There must be at least three and at most half of all rows.
    """
    outlying = torch.zeros(x.size(0), dtype=torch.bool, device=x.device)
    for statistic in row_statistics(x)[:, :3].t():
        centre, deviation = usual(statistic, LEAST_STEP)
        apart = set_apart(((statistic - centre) / deviation).clamp(min=0))
        if FEWEST_ROWS <= int(apart.sum()) <= MOST_ROWS * x.size(0):
            outlying |= apart
    return outlying


@torch.no_grad()
def refilled(x: Tensor, edge_index: Tensor, rows: Tensor) -> Tensor:
    """A copy of the features with those rows repaired.

    A row that still points where its neighbours point has only a wrong size and gets the usual one. Others are replaced
    by the mean of their neighbours, over three rounds, or else by the mean of all normal rows.
    """
    both, out, missing = both_directions(edge_index), x.clone(), rows.clone()
    for _ in range(ROUNDS):
        nodes, means = neighbour_means(out, both, ~missing, missing)
        if nodes.numel() == 0:
            break
        out[nodes] = means
        missing[nodes] = False
    normal = ~rows
    if bool(missing.any()):
        wide = widened(x)
        out[missing] = (normal.to(wide.dtype) @ wide / normal.sum()).to(x.dtype)
    size = torch.linalg.vector_norm(x, dim=1, dtype=widened(x[:0]).dtype)
    usual = _usual_cosine(x, both, normal)
    for places in torch.split((rows & (size > 0)).nonzero().view(-1), max(1, BLOCK // x.size(1))):
        kept = places[_cosine(x[places], out[places]) >= DIRECTION * usual]
        out[kept] = (x[kept] * (size[normal].median() / size[kept]).unsqueeze(1)).to(x.dtype)
    return out


def _usual_cosine(x: Tensor, both: Tensor, normal: Tensor) -> float:
    """The median cosine between a normal row and the mean of its normal neighbours, from a few thousand rows."""
    some = torch.zeros_like(normal)
    places = normal.nonzero().view(-1)
    if places.numel() > 2 * SAMPLED:  # the same rows are taken however nodes are numbered
        unit = typical_size(x)
        pieces = torch.split(places, max(1, BLOCK // x.size(1)))
        places = places[torch.cat([row_keys(x[some], unit) for some in pieces]).argsort()[:SAMPLED]]
    some[places] = True
    nodes, means = neighbour_means(x, both, normal, some)
    return float(_cosine(x[nodes], means).median()) if nodes.numel() else 1.0


def _cosine(first: Tensor, second: Tensor) -> Tensor:
    return torch.nn.functional.cosine_similarity(widened(first), widened(second), dim=1, eps=1e-12)
