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

__all__ = ["Impute", "abnormal_rows", "outlying_rows", "refilled"]

WIDENED = 0.25  # of the range between the card's quantiles
MARGINS = (0.1, 0.1, 0.1, 0.02)  # besides, for each row statistic
ENTRIES = 1.5  # so that a single entry out of range makes no row abnormal, however few columns there are
DEVIATIONS = 4.0  # robust standard deviations from the median of the graph itself
LEAST_DEVIATION = 0.01
ROUNDS = 3

GAP = 2.0  # the ratio between neighbours in the sorted list that separates outlying rows, without a card
LEAST_STEP = 0.3  # the least standard deviation of a row statistic, without a card; protects discrete features
FEWEST_ROWS = 3


@dataclass(frozen=True)
class Impute(Adapter):
    r"""Replace abnormal feature rows by the mean of their normal neighbours.

    A row is abnormal if one of its statistics (log norm, log density, log maximum, share of entries outside the range
    of their column) lies outside what the source card has seen *and* more than four robust standard deviations from
    the median of this graph: a shift of all rows makes no row an outlier. Without a card, rows count as abnormal if
    they are set apart upwards by a wide gap. Abnormal rows get the mean of their normal neighbours, over three rounds;
    rows without any get the column means. Nothing is done where more than half of the rows look abnormal.

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
        if share > 0.5:
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
    abnormal = (unseen & alone).any(1)
    return abnormal & (rows[:, 0] > EMPTY_ROW) if card.has_empty_rows else abnormal


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
    """A copy of the features with those rows replaced by the mean of neighbours, or else by the column means."""
    out = x.clone()
    missing = rows.clone()
    both = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    for _ in range(ROUNDS):
        source, target = both[:, ~missing[both[0]] & missing[both[1]]]
        if source.numel() == 0:
            break
        nodes, place = target.unique(return_inverse=True)
        total = x.new_zeros(nodes.numel(), x.size(1))
        pieces = (part.split(max(1, BLOCK // x.size(1))) for part in (source, place))
        for some, where in zip(*pieces, strict=True):
            total.index_add_(0, where, out.index_select(0, some))
        out[nodes] = total / torch.bincount(place, minlength=nodes.numel()).to(x.dtype).unsqueeze(1)
        missing[nodes] = False
    if bool(missing.any()):
        normal = (~rows).to(x.dtype)
        out[missing] = normal @ x / normal.sum()
    return out
