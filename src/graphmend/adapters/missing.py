"""Missing values: features that are NaN, and what they are filled with before a model sees them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.adapters.broken_rows import broken_rows
from graphmend.cards.rows import BLOCK, in_blocks, widened
from graphmend.cards.source_card import SourceCard
from graphmend.errors import require
from graphmend.graph.canonical import EDGES
from graphmend.graph.checks import is_finite
from graphmend.graph.limits import Limits
from graphmend.scratch import large_empty, row_ranges

__all__ = ["ROUNDS", "Filling", "filled", "neighbour_means"]

ROUNDS = 3  # in which values spread from neighbour to neighbour
MANY = 0.5  # of all values; where more are missing, the verdict says so


@dataclass(frozen=True, eq=False)
class Filling:
    """The missing values of a graph, and the features in which they are filled.

    Args:
        given: The features as the caller has them, with NaN.
        x: The same with every missing value filled; values that were present keep every bit.
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
        """Fill the missing values; some value must be present, and none may be infinite.

        Filling gaps does not change any value that is present, so frozen nodes and columns are filled as well. The new
        values keep to the ranges in the limits.

        Args:
            data: A graph in which some features are NaN.
            card: The source card, if the caller has one.
            limits: What values may be like.
        """
        given = data.x.detach()
        require(
            card is not None or given.size(0) > 1,
            "the graph has a single node, which has no neighbours to fill its missing values (NaN) from; "
            "pass card=graphmend.card(model, train_data)",
        )
        by_row, by_column = _missing_counts(given)
        empty = by_row == given.size(1)
        column_mean = None if card is None else card.column_mean
        x, left = filled(given, data.edge_index, column_mean)
        broken = broken_rows(x, card) & ~empty
        if bool(broken.any()) and not bool((broken | empty).all()):  # broken rows do not count as neighbours
            del x, left
            x, left = filled(_without(given, broken), data.edge_index, column_mean)
            _put_back_(x, left, given)
        is_known = torch.ones_like(empty[:1]) if card is not None else by_column < given.size(0)
        ranges = replace(limits, frozen_nodes=None, frozen_columns=None, frozen_edges=None)
        if ranges.projection(x) is not None:
            for rows in row_ranges(*x.shape):
                ranges.project(x[rows], x[rows])
                ranges.finish(x[rows], x[rows])
            _put_back_(x, left, given)
        require(is_finite(x), "the means to fill missing values (NaN) with are not finite; divide the features by 1e6")
        unfilled = torch.stack([left[rows].sum(0) for rows in row_ranges(*left.shape)]).sum(0)
        values = int(by_row.sum())
        return cls(
            given,
            x,
            values,
            int((by_row > 0).sum()),
            empty,
            values - int(unfilled.sum()),
            int((unfilled * is_known).sum()),
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


def _missing_counts(x: Tensor) -> tuple[Tensor, Tensor]:
    """How many values are missing in each row and in each column."""
    parts = [(missing.sum(1), missing.sum(0)) for missing in (x[rows].isnan() for rows in row_ranges(*x.shape))]
    rows, columns = zip(*parts, strict=True)
    return torch.cat(rows), torch.stack(columns).sum(0)


def _without(x: Tensor, rows: Tensor) -> Tensor:
    """A copy in which all values of some rows are missing."""
    out = large_empty(tuple(x.shape), x).copy_(x)
    return out.index_fill_(0, rows.nonzero().view(-1), torch.nan)


def _put_back_(x: Tensor, left: Tensor, given: Tensor) -> None:
    """Give back to filled features, in place, what was there, and take it out of those that no neighbour has."""
    for rows in row_ranges(*x.shape):
        missing = given[rows].isnan()
        x[rows] = torch.where(missing, x[rows], given[rows])
        left[rows] &= missing


@torch.no_grad()
def filled(x: Tensor, edge_index: Tensor, column_mean: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The features with every missing value (NaN) filled, and which of them no neighbour has, as a mask.

    Values that are present keep every bit. A missing value gets the mean of its neighbours in that column, along both
    directions of the edges, in up to three rounds; failing that, the mean of the column in training, or in this graph,
    or 0.

    Args:
        x: The features.
        edge_index: The edges; self-loops do not count.
        column_mean: The mean of each column in the training graph.
    """
    out = _from_neighbours(x, edge_index)
    left = large_empty(tuple(x.shape), x, torch.bool)
    if column_mean is None:
        column_mean = _means_of_what_is_there(x)
    filled_in = out if out.dtype == x.dtype else large_empty(tuple(x.shape), x)
    for rows in row_ranges(*x.shape):
        left[rows] = out[rows].isnan()
        part = torch.where(left[rows], column_mean.to(out), out[rows])
        filled_in[rows] = torch.where(x[rows].isnan(), part.to(x.dtype), x[rows])
    return filled_in, left


def _means_of_what_is_there(x: Tensor) -> Tensor:
    blocks = map(widened, in_blocks(x))
    parts = [torch.stack([block.nansum(0), (~block.isnan()).sum(0).to(block.dtype)]) for block in blocks]
    both = torch.stack(parts).sum(0)
    return (both[0] / both[1]).nan_to_num(nan=0.0)


def _from_neighbours(x: Tensor, edge_index: Tensor) -> Tensor:
    """Missing values as means of neighbours, still NaN where no neighbour within reach has a value."""
    out = large_empty(tuple(x.shape), x, widened(x[:0]).dtype).copy_(x)
    columns = torch.stack([block.isnan().any(0) for block in in_blocks(x)]).any(0)
    if not bool(columns.any()):
        return out
    for _ in range(ROUNDS):
        known = torch.cat([~block[:, columns].isnan().all(1) for block in in_blocks(out)])
        wanted = torch.cat([block[:, columns].isnan().any(1) for block in in_blocks(out)])
        sums = _Sums(out, edge_index, known, wanted, columns)
        if sums.nodes.numel() == 0:
            break
        for rows in row_ranges(sums.nodes.numel(), x.size(1)):
            nodes = sums.nodes[rows]
            part = out[nodes]
            gappy = part[:, columns]
            part[:, columns] = torch.where(gappy.isnan(), sums.means(rows), gappy)  # NaN where none has a value
            out[nodes] = part
    return out


def neighbour_means(x: Tensor, edge_index: Tensor, known: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """The wanted nodes that have known neighbours, and the means of those; self-loops do not count."""
    sums = _Sums(x, edge_index, known, wanted)
    return sums.nodes, sums.means(slice(None)).to(x.dtype)


class _Sums:
    """The sums over known neighbours, in both directions of the edges, of those wanted nodes that have some.

    Args:
        x: The features; where columns are given, missing values count neither for the sum nor for the number.
        edge_index: The edges, read some at a time.
        known: Which nodes are added up.
        wanted: For which nodes.
        columns: Which columns; ``None`` stands for all of them, without missing values.
    """

    def __init__(
        self, x: Tensor, edge_index: Tensor, known: Tensor, wanted: Tensor, columns: Tensor | None = None
    ) -> None:
        reached = torch.zeros_like(wanted)
        for _, target in _between(edge_index, known, wanted):
            reached[target] = True
        self.nodes = reached.nonzero().view(-1)
        place = torch.empty_like(reached, dtype=torch.long)
        place[self.nodes] = torch.arange(self.nodes.numel(), device=x.device)
        dtype = widened(x[:0]).dtype
        width = x.size(1) if columns is None else int(columns.sum())
        shape = self.nodes.numel(), width
        self.total = large_empty(shape, x, dtype).zero_()
        self.number = large_empty((shape[0], 1 if columns is None else width), x, dtype).zero_()
        for all_sources, all_targets in _between(edge_index, known, wanted):
            pieces = (torch.split(part, max(1, BLOCK // x.size(1))) for part in (all_sources, all_targets))
            for source, target in zip(*pieces, strict=True):
                rows, at = x.index_select(0, source).to(dtype), place[target]
                if columns is None:
                    self.total.index_add_(0, at, rows)
                    self.number.index_add_(0, at, rows.new_ones(at.numel(), 1))
                else:
                    rows = rows[:, columns]
                    self.total.index_add_(0, at, rows.nan_to_num(nan=0.0))
                    self.number.index_add_(0, at, (~rows.isnan()).to(dtype))

    def means(self, rows: slice) -> Tensor:
        """The means of some of the nodes."""
        return self.total[rows] / self.number[rows]


def _between(edge_index: Tensor, known: Tensor, wanted: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The edges from known to wanted nodes, in both directions, without self-loops; some at a time."""
    source_ends, target_ends = edge_index
    for ends in ((source_ends, target_ends), (target_ends, source_ends)):
        for source, target in zip(*(torch.split(end, EDGES) for end in ends), strict=True):
            chosen = known[source] & wanted[target] & (source != target)
            yield source[chosen], target[chosen]
