"""Impute: replace abnormal feature rows by what their neighbours have."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmend.adapters.base import Adapter, Change, Task
from graphmend.cards.make import column_range
from graphmend.cards.rows import BLOCK, EMPTY_ROW, robust_deviation, row_statistics
from graphmend.cards.source_card import SourceCard
from graphmend.engine.report import Stopped
from graphmend.graph.canonical import row_keys

__all__ = ["Impute", "abnormal_rows", "outlying_rows", "refilled"]

WIDENED = 0.25  # of the range between the card's quantiles
MARGINS = (0.1, 0.1, 0.1, 0.02)  # besides, for each row statistic
ENTRIES = 1.5  # so that a single entry out of range makes no row abnormal, however few columns there are
DEVIATIONS = 4.0  # robust standard deviations from the median of the graph itself
LEAST_DEVIATION = 0.01
FEW_EMPTY = 0.001  # of the training graph's rows: where so few were empty, an empty row is a missing one
MOST_ROWS = 0.5  # of all rows, that may look abnormal
ROUNDS = 3
DIRECTION = 0.5  # of the usual cosine between a row and its neighbours, from which a row only has a wrong size
SAMPLED = 2000  # rows that the usual cosine is taken from

GAP = 2.0  # the ratio between neighbours in the sorted list that separates outlying rows, without a card
LEAST_STEP = 0.3  # the least standard deviation of a row statistic, without a card; protects discrete features
FEWEST_ROWS = 3


@dataclass(frozen=True)
class Impute(Adapter):
    r"""Replace abnormal feature rows by the mean of their normal neighbours.

    A row is abnormal if one of its statistics (log norm, log density, log maximum, share of entries outside the range
    of their column) lies outside what the source card has seen *and* more than four robust standard deviations from
    the median of this graph: a shift of all rows makes no row an outlier. Without a card, rows count as abnormal if
    they are set apart upwards by a wide gap. Abnormal rows get the mean of their normal neighbours, over three rounds,
    or else the column means; those that still point where their neighbours point only get the usual size. Nothing is
    done where more than half of the rows look abnormal.

    Example:
        >>> from torch_geometric.data import Data
        >>> from graphmend.nn import GCN
        >>> x = torch.ones(8, 3)
        >>> x[:3] = 1000.0
        >>> ring = torch.stack([torch.arange(8), (torch.arange(8) + 3) % 8])
        >>> Impute()(GCN(3, 4, 2), Data(x=x, edge_index=ring)).data.x.max()
        tensor(1.)
    """

    def adapt(self, task: Task) -> Change:
        """Find abnormal rows and fill them."""
        x = task.data.x
        rows = outlying_rows(x) if task.card is None else abnormal_rows(x, task.card)
        if not bool(rows.any()):
            return Change()
        share = float(rows.double().mean())
        if share > MOST_ROWS:
            raise Stopped(f"{100 * share:.0f} % of the rows look abnormal, so nobody knows what normal rows are")
        return Change(task.within_limits(refilled(x, task.data.edge_index, rows)))


@torch.no_grad()
def abnormal_rows(x: Tensor, card: SourceCard) -> Tensor:
    """The rows, as a mask, that neither the card's graph nor the rest of this one account for."""
    rows = row_statistics(x, *column_range(card.column_min, card.column_max))
    *logs, share = MARGINS
    margins = rows.new_tensor((*logs, max(share, ENTRIES / x.size(1))))
    slack = WIDENED * (card.row_high - card.row_low) + margins
    unseen = (rows < card.row_low - slack) | (rows > card.row_high + slack)
    median = rows.median(0).values
    alone = (rows - median).abs() > DEVIATIONS * robust_deviation(rows).clamp(min=LEAST_DEVIATION)
    empty = rows[:, 0] <= EMPTY_ROW
    return torch.where(empty, card.empty_rows <= FEW_EMPTY, (unseen & alone).any(1))


@torch.no_grad()
def outlying_rows(x: Tensor) -> Tensor:
    r"""The rows, as a mask, that are set apart from all others by a gap, without a card.

    With :math:`t = \max(0, r - \text{median}) / \max(\text{IQR}/1.35, 0.3)` of a row statistic :math:`r`, sorted, the
    largest ratio :math:`t_{(i+1)} / \max(t_{(i)}, 1.5)` among :math:`t_{(i+1)} \ge 4` must be at least 2; rows from
    there on are outlying, if there are at least three and at most half.
    """
    statistics = row_statistics(x)[:, :3]
    deviation = robust_deviation(statistics).clamp(min=LEAST_STEP)
    distance = (statistics - statistics.median(0).values).clamp(min=0) / deviation
    outlying = torch.zeros(x.size(0), dtype=torch.bool, device=x.device)
    for t in distance.t():
        ordered = t.sort().values
        ratio = ordered[1:] / ordered[:-1].clamp(min=1.5)
        ratio = ratio.masked_fill(ordered[1:] < DEVIATIONS, 0.0)
        if ratio.numel() == 0 or float(ratio.max()) < GAP:
            continue
        above = t >= ordered[int(ratio.argmax()) + 1]
        if FEWEST_ROWS <= int(above.sum()) <= x.size(0) / 2:
            outlying |= above
    return outlying


@torch.no_grad()
def refilled(x: Tensor, edge_index: Tensor, rows: Tensor) -> Tensor:
    """A copy of the features with those rows repaired.

    A row that still points where its neighbours point has only a wrong size and gets the usual one. Others are replaced
    by the mean of their neighbours, over three rounds, or else by the mean of all normal rows.
    """
    between = edge_index[:, edge_index[0] != edge_index[1]]
    both = torch.cat([between, between.flip(0)], dim=1)
    out, missing = x.clone(), rows.clone()
    for _ in range(ROUNDS):
        nodes, means = _neighbour_means(out, both, ~missing, missing)
        if nodes.numel() == 0:
            break
        out[nodes] = means
        missing[nodes] = False
    normal = ~rows
    if bool(missing.any()):
        out[missing] = normal.to(x.dtype) @ x / normal.sum()
    size = torch.linalg.vector_norm(x, dim=1)
    usual = _usual_cosine(x, both, normal)
    for places in torch.split((rows & (size > 0)).nonzero().view(-1), max(1, BLOCK // x.size(1))):
        kept = places[_cosine(x[places], out[places]) >= DIRECTION * usual]
        out[kept] = x[kept] * (size[normal].median() / size[kept]).unsqueeze(1)
    return out


def _neighbour_means(x: Tensor, both: Tensor, known: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """The wanted nodes that have known neighbours, and the means of those."""
    source, target = both[:, known[both[0]] & wanted[both[1]]]
    nodes, place = target.unique(return_inverse=True)
    total = x.new_zeros(nodes.numel(), x.size(1))
    pieces = (part.split(max(1, BLOCK // x.size(1))) for part in (source, place))
    for some, where in zip(*pieces, strict=True):
        total.index_add_(0, where, x.index_select(0, some))
    return nodes, total / torch.bincount(place, minlength=nodes.numel()).to(x.dtype).unsqueeze(1)


def _usual_cosine(x: Tensor, both: Tensor, normal: Tensor) -> float:
    """The median cosine between a normal row and the mean of its normal neighbours, from a few thousand rows."""
    some = torch.zeros_like(normal)
    places = normal.nonzero().view(-1)
    if places.numel() > 2 * SAMPLED:  # the same rows are taken however nodes are numbered
        places = places[row_keys(x)[places].argsort()[:SAMPLED]]
    some[places] = True
    nodes, means = _neighbour_means(x, both, normal, some)
    return float(_cosine(x[nodes], means).median()) if nodes.numel() else 1.0


def _cosine(first: Tensor, second: Tensor) -> Tensor:
    return torch.nn.functional.cosine_similarity(first, second, dim=1, eps=1e-12)
