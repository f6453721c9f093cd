"""Missing values: entries of the features that are NaN, and what they are filled with before a model sees them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.adapters.broken_rows import broken_rows
from graphmend.cards.rows import BLOCK, widened
from graphmend.cards.source_card import SourceCard
from graphmend.errors import require
from graphmend.graph.checks import is_finite
from graphmend.graph.limits import Limits

__all__ = ["ROUNDS", "Filling", "both_directions", "filled", "neighbour_means"]

ROUNDS = 3  # in which values spread from neighbour to neighbour
MANY = 0.5  # of all values; where more are missing, the verdict says so


@dataclass(frozen=True, eq=False)
class Filling:
    """The missing values of a graph, and the features in which they are filled.

    Args:
        given: The features as the caller has them, with NaN.
        x: The same with every missing value filled; what was there is there bit for bit.
        values: How many values were missing.
        rows: In how many rows.
        empty_rows: The rows without a single value, as a mask.
        from_neighbours: How many of the values are means of neighbours.
        from_columns: How many are means of columns; the others are 0, because no node has a value in their columns.
    """

    given: Tensor
    x: Tensor
    values: int
    rows: int
    empty_rows: Tensor
    from_neighbours: int
    from_columns: int

    @classmethod
    @torch.no_grad()
    def of(cls, data: Data, card: SourceCard | None, limits: Limits) -> Filling:
        """Fill what is missing; something must be there, and nothing may be infinite.

        Filling what is missing is no change of what is there, so frozen nodes and columns are filled as well. The new
        values keep to the ranges in the limits.

        Args:
            data: A graph in which some features are NaN.
            card: The source card, if the caller has one.
            limits: What values may be like.
        """
        given = data.x.detach()
        missing = given.isnan()
        values = int(missing.sum())
        require(
            card is not None or given.size(0) > 1,
            "the graph has a single node, which has no neighbours to fill its missing values (NaN) from; "
            "pass card=graphmend.card(model, train_data)",
        )
        column_mean = None if card is None else card.column_mean
        x, left = filled(given, data.edge_index, column_mean)
        broken = broken_rows(x, card) & ~missing.all(1)
        if bool(broken.any()) and not bool((broken | missing.all(1)).all()):  # broken rows are nobody's neighbours
            sound, left = filled(given.masked_fill(broken.unsqueeze(1), torch.nan), data.edge_index, column_mean)
            x, left = torch.where(missing, sound, given), left & missing
        is_known = torch.ones_like(left[0]) if card is not None else ~missing.all(0)
        ranges = replace(limits, frozen_nodes=None, frozen_columns=None, frozen_edges=None)
        if ranges.projection(x) is not None:
            ranges.project(x, x)
            ranges.finish(x, x)
            x = torch.where(missing, x, given)
        require(is_finite(x), "the means to fill missing values (NaN) with are not finite; divide the features by 1e6")
        return cls(
            given,
            x,
            values,
            int(missing.any(1).sum()),
            missing.all(1),
            values - int(left.sum()),
            int((left & is_known).sum()),
        )

    @property
    def sentence(self) -> str:
        """How much was missing and what it was filled with, as part of a sentence."""
        one = self.values == 1
        sources = {
            "from its neighbours" if one else "from their neighbours": self.from_neighbours,
            "with the mean of the column": self.from_columns,
            "with 0, as nothing is known of the column": self.values - self.from_neighbours - self.from_columns,
        }
        used = {source: number for source, number in sources.items() if number}
        parts = "".join(used) if len(used) == 1 else ": " + ", ".join(f"{n:,} {source}" for source, n in used.items())
        values = "1 missing value" if one else f"{self.values:,} missing values"
        rows = "1 row was" if self.rows == 1 and one else f"{self.rows:,} row{'s' if self.rows > 1 else ''} were"
        done = f"{values} in {rows} filled{' ' if len(used) == 1 else ''}{parts}"
        share = self.values / self.x.numel()
        return done if share <= MANY else f"{done}; as {100 * share:.0f} % of all values were missing, trust it little"


@torch.no_grad()
def filled(x: Tensor, edge_index: Tensor, column_mean: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The features with every missing value (NaN) filled, and which of them no neighbour has, as a mask.

    What is there stays bit for bit. A missing value gets the mean of what the neighbours have in that column, in both
    directions of the edges, over three rounds; or else the mean of the column in training; or else that in this graph;
    or else 0.

    Args:
        x: The features.
        edge_index: The edges; self-loops say nothing.
        column_mean: The mean of each column in the training graph.
    """
    out = _from_neighbours(x, edge_index)
    left = out.isnan()
    if column_mean is None:
        column_mean = x.to(out.dtype).nanmean(0).nan_to_num(nan=0.0)
    out = torch.where(left, column_mean.to(out), out)
    return torch.where(x.isnan(), out.to(x.dtype), x), left


def _from_neighbours(x: Tensor, edge_index: Tensor) -> Tensor:
    """Missing values as the means of neighbours, still NaN where no neighbour is near that has one."""
    columns = x.isnan().any(0)
    gappy, both = widened(x[:, columns]), both_directions(edge_index)
    for _ in range(ROUNDS):
        missing = gappy.isnan()
        nodes, source, place = _between(both, ~missing.all(1), missing.any(1))
        if nodes.numel() == 0:
            break
        values, numbers = gappy.masked_fill(missing, 0.0), ~missing
        total, present = (_sums(rows, source, place, nodes.numel(), gappy.dtype) for rows in (values, numbers))
        gappy[nodes] = torch.where(missing[nodes], total / present, gappy[nodes])  # NaN where none has a value
    out = x.to(gappy.dtype, copy=True)
    out[:, columns] = gappy
    return out


def both_directions(edge_index: Tensor) -> Tensor:
    """Every edge in both directions, without self-loops."""
    between = edge_index[:, edge_index[0] != edge_index[1]]
    return torch.cat([between, between.flip(0)], dim=1)


def neighbour_means(x: Tensor, both: Tensor, known: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """The wanted nodes that have known neighbours, and the means of those."""
    nodes, source, place = _between(both, known, wanted)
    total = _sums(x, source, place, nodes.numel(), widened(x[:0]).dtype)
    number = torch.bincount(place, minlength=nodes.numel()).to(total.dtype).unsqueeze(1)
    return nodes, (total / number).to(x.dtype)


def _between(both: Tensor, known: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The wanted nodes that have known neighbours; and of every such edge the neighbour and the node's place."""
    source, target = both[:, known[both[0]] & wanted[both[1]]]
    nodes, place = target.unique(return_inverse=True)
    return nodes, source, place


def _sums(x: Tensor, source: Tensor, place: Tensor, number: int, dtype: torch.dtype) -> Tensor:
    """The sums of the rows ``source`` for each of so many places, in a type in which they do not overflow."""
    total = torch.zeros(number, x.size(1), dtype=dtype, device=x.device)
    pieces = (torch.split(part, max(1, BLOCK // x.size(1))) for part in (source, place))
    for some, where in zip(*pieces, strict=True):
        total.index_add_(0, where, x.index_select(0, some).to(dtype))
    return total
