"""Which feature rows are broken: those that a wide gap sets apart from all others."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmend.cards.make import column_range
from graphmend.cards.rows import EMPTY_ROW, row_statistics, set_apart, usual
from graphmend.cards.source_card import SourceCard

__all__ = ["MOST_ROWS", "abnormal_rows", "broken_rows", "outlying_rows"]

LEAST_DEVIATION = 0.05  # of a row statistic: if all rows are nearly alike, small differences mean little
EMPTY = 0.01  # of all rows: if this many more are empty than in training, empty rows are missing ones
EMPTY_FACTOR = 4.0  # times the share of empty rows in training, which another mix of nodes may still have
MOST_ROWS = 0.5  # of all rows, the largest share that may look broken
LEAST_STEP = 0.3  # the least standard deviation of a row statistic, without a card; protects discrete features
FEWEST_ROWS = 3


def broken_rows(x: Tensor, card: SourceCard | None) -> Tensor:
    """The broken rows as a mask: :func:`abnormal_rows` with a card, else :func:`outlying_rows`."""
    return outlying_rows(x) if card is None else abnormal_rows(x, card)


@torch.no_grad()
def abnormal_rows(x: Tensor, card: SourceCard) -> Tensor:
    """The rows, as a mask, that are unlike any in training and that a gap sets apart from the others.

    What is usual is measured on the rows that the card accounts for, if these are at least half of all, otherwise on
    all rows: if all rows have shifted, none is set apart. Empty rows are abnormal if the training graph had far fewer.
    """
    rows = row_statistics(x, *column_range(card.column_min, card.column_max))
    empty = rows[:, 0] <= EMPTY_ROW
    unseen = (rows < card.row_low) | (rows > card.row_high)
    apart = torch.zeros_like(unseen)
    least = max(LEAST_DEVIATION, 1 / x.size(1))  # with few columns, a single value outside its range sets no row apart
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
    """The rows, as a mask, that are set apart from all others by being larger or denser, or by their largest entry.

    This needs no card. A group of fewer than three rows, or of more than half of all, does not count.
    """
    outlying = torch.zeros(x.size(0), dtype=torch.bool, device=x.device)
    for statistic in row_statistics(x)[:, :3].t():
        centre, deviation = usual(statistic, LEAST_STEP)
        apart = set_apart(((statistic - centre) / deviation).clamp(min=0))
        if FEWEST_ROWS <= int(apart.sum()) <= MOST_ROWS * x.size(0):
            outlying |= apart
    return outlying
