r"""How well the two ends of each edge fit together, compared with the edges of the training graph.

Three views of an edge, each a cosine: of its ends in the coordinates :math:`XW` of the model's first layer, of their
features, and of their neighbourhoods without each other. Each is turned into its percentile among the training graph's
edges; the *fit* of an edge is the sum of the three. Edges inserted between nodes of different kinds fit badly in all
three views, true edges seldom in more than one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.cards.rows import BLOCK, projected, quantiles, widened
from graphmend.engine.adjacency import Adjacency
from graphmend.engine.propagation import Propagation
from graphmend.engine.streaming import StreamedAdjacency, StreamedHops
from graphmend.engine.tuning import CACHED_NUMBERS
from graphmend.graph.edge_passes import over_edges
from graphmend.graph.mapped import MappedGraph
from graphmend.scratch import large_empty, row_ranges

__all__ = ["EdgeEnds", "edge_views", "fit", "fits_well", "grid_of", "neighbourhood_features", "pair_counts", "pairs_of"]

POINTS = 65  # of the grid of quantiles that a card keeps
STEPS = 2**16  # of a cosine between 0 and 1, so that equal ones are equal in every type and on every device


@torch.no_grad()
def edge_views(x: Tensor, hidden: Tensor, edge_index: Tensor, at: Tensor | None = None) -> Tensor:
    """The three cosines of each edge, ``(3, edges)``, the same in both directions.

    Args:
        x: The features.
        hidden: The features in the coordinates of the first layer.
        edge_index: The edges.
        at: Positions of the edges to look at; ``None`` stands for all of them.
    """
    return EdgeEnds(x, hidden, edge_index).all_views(at)


class EdgeEnds:
    """The properties of nodes that the views of edges compare.

    Args:
        x: The features.
        hidden: The features in the coordinates of the first layer.
        edge_index: The edges.
    """

    def __init__(self, x: Tensor, hidden: Tensor, edge_index: Tensor) -> None:
        self.x, self.hidden, self.edge_index = x, hidden, edge_index
        self.size = torch.linalg.vector_norm(x, dim=1).clamp(min=1e-12)
        self.narrow = neighbourhood_features(x)
        self.around = _with_neighbours(self.narrow, edge_index)
        self.step = _size(max(x.size(1), hidden.size(1)), x.device)

    def views(self, source: Tensor, target: Tensor, back: Tensor) -> Tensor:
        """The views of some edges; ``back`` is 1 for those that exist in the other direction as well."""
        rows = (self.x, self.hidden, self.narrow, self.around)
        ends = [part.index_select(0, end) for part in rows for end in (source, target)]
        x_source, x_target, u_source, u_target, source_alone, target_alone, at_source, at_target = ends
        similar = _dot(x_source, x_target) / (self.size[source] * self.size[target])
        context = _dot(_unit(at_target - source_alone), _unit(at_source - back.unsqueeze(1) * target_alone))
        views = torch.stack([_dot(_unit(u_source), _unit(u_target)), similar, context])
        return views.mul_(STEPS).round_().div_(STEPS)

    def all_views(self, at: Tensor | None = None) -> Tensor:
        """Those of all edges, or of those at some positions, ``(3, edges)``."""
        if at is not None:
            return self._views_of(self.edge_index[:, at])
        once = _once(self.edge_index, self.x.size(0))
        return self._views_of(self.edge_index) if once is None else self._views_of(once.pairs)[:, once.place]

    def all_fits(self, grid: Tensor) -> Tensor:
        """The fits of all edges; edges that exist in both directions are computed only once."""
        once = _once(self.edge_index, self.x.size(0))
        if once is None:
            return fit(self._views_of(self.edge_index), grid)
        return fit(self._views_of(once.pairs), grid)[once.place]

    def _views_of(self, pairs: Tensor) -> Tensor:
        returned = torch.split(_returned(pairs, self.edge_index, self.x), self.step)
        blocks = zip(_blocks(pairs, self.step), returned, strict=True)
        return torch.cat([self.x.new_zeros(3, 0), *(self.views(*pair, back) for pair, back in blocks)], dim=1)

    def fits(self, grid: Tensor, only_once: bool = False) -> Iterator[tuple[int, Tensor, Tensor]]:
        """The fits of some edges at a time, the position of the first one, and how many edges each stands for.

        Args:
            grid: The quantiles that they are compared with.
            only_once: Whether edges that exist in both directions are computed only once.
        """
        is_symmetric, start = Adjacency.of(self.edge_index, self.x.size(0)).is_symmetric, 0
        for source, target in _blocks(self.edge_index, self.step):
            begin, number = start, torch.ones_like(source)
            start += source.numel()
            if only_once and is_symmetric:
                number += (source < target).long()
                once = source <= target
                source, target, number = source[once], target[once], number[once]
            pair = torch.stack([source, target])
            back = self.x.new_ones(1).expand(number.numel())
            back = back if is_symmetric else _returned(pair, self.edge_index, self.x)
            yield begin, fit(self.views(source, target, back), grid), number


def _with_neighbours(narrow: Tensor, edge_index: Tensor) -> Tensor:
    """The rows of each node and its neighbours, added up."""
    adjacency = Adjacency.known(edge_index)
    if isinstance(adjacency, StreamedAdjacency):
        around = StreamedHops(adjacency, None, None)(widened(narrow)).to(narrow.dtype)
        return around.add_(narrow)
    adjacency = Adjacency.of(edge_index, narrow.size(0))
    return Propagation(adjacency, narrow.new_ones(edge_index.size(1)), narrow.new_ones(narrow.size(0)))(narrow)


class _Once(NamedTuple):
    """The edges of an undirected graph, each in one direction, and for every stored edge which of them it is."""

    pairs: Tensor
    place: Tensor


def _once(edge_index: Tensor, nodes: int) -> _Once | None:
    """The edges of an undirected graph, each once; ``None`` for a directed one."""
    source, target = edge_index
    forth, back = (source < target).nonzero().view(-1), (source > target).nonzero().view(-1)
    if forth.numel() != back.numel() or forth.numel() == 0:
        return None
    key = torch.minimum(source, target) * nodes + torch.maximum(source, target)
    forth, back = forth[key[forth].argsort()], back[key[back].argsort()]
    if not torch.equal(key[forth], key[back]):
        return None
    loops = (source == target).nonzero().view(-1)
    place = torch.empty_like(source)
    place[forth] = place[back] = torch.arange(forth.numel(), device=source.device)
    place[loops] = forth.numel() + torch.arange(loops.numel(), device=source.device)
    return _Once(edge_index[:, torch.cat([forth, loops])], place)


def neighbourhood_features(x: Tensor) -> Tensor:
    """The features that are summed over neighbourhoods: of length 1, and projected where they are wide."""
    size: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp(min=1e-12)
    narrow = projected(x)
    if narrow.numel() <= BLOCK:
        return narrow / size
    out = large_empty(tuple(narrow.shape), narrow)
    for rows in row_ranges(*narrow.shape):
        torch.div(narrow[rows], size[rows], out=out[rows])
    return out


def grid_of(views: Tensor) -> Tensor:
    """The quantiles of each view on an even grid, ``(3, POINTS)``."""
    return quantiles(views.t(), [k / (POINTS - 1) for k in range(POINTS)]).t().contiguous()


def fit(views: Tensor, grid: Tensor) -> Tensor:
    """The sum of the percentiles of the three views among the edges a grid was made of; ties count half."""
    points = grid.contiguous()
    below, up_to = (torch.searchsorted(points, views.contiguous(), right=right) for right in (False, True))
    total: Tensor = (below + up_to).to(views.dtype).sum(0)
    return total.div(2 * grid.size(1))


def fits_well(fits: Tensor, middle: float) -> Tensor:
    """Which edges fit at least as well as an edge in the middle; fits come in steps, so that no rounding decides."""
    return fits >= middle - 0.25 / POINTS


@torch.no_grad()
def pair_counts(probability: Tensor, edge_index: Tensor) -> Tensor:
    r"""Edges from class :math:`a` to class :math:`b`, :math:`n_{ab} = \sum_{j \to i} p_{ja}\, p_{ib}`.

    Args:
        probability: Of each class at each node, ``(nodes, classes)``; 0 and 1 count predicted classes.
        edge_index: The edges :math:`j \to i`.
    """
    total = probability.new_zeros(probability.size(1), probability.size(1), dtype=torch.float64)
    for source, target in _blocks(edge_index, _size(probability.size(1), probability.device)):
        total += (probability[source].t() @ probability[target]).double()
    return total.to(probability.dtype)


def pairs_of(graph: Data, probability: Tensor) -> Tensor:
    """The :func:`pair_counts` of a graph, by whoever works on it."""
    if not isinstance(graph, MappedGraph) or graph.workers is None:
        return pair_counts(probability, graph.edge_index)
    return over_edges(graph, _PairsOnRange(graph, probability), torch.add).to(probability.dtype)


@dataclass(frozen=True)
class _PairsOnRange:
    """The counts of a range of edges, in double precision."""

    graph: MappedGraph
    probability: Tensor

    def __call__(self, bounds: tuple[int, int]) -> Tensor:
        start, end = bounds
        return pair_counts(self.probability, self.graph.edge_index[:, start:end]).double()


def _returned(pairs: Tensor, edge_index: Tensor, x: Tensor) -> Tensor:
    """For each pair, 1 if there is an edge in the other direction and else 0."""
    nodes = x.size(0)
    if Adjacency.of(edge_index, nodes).is_symmetric:
        return x.new_ones(1).expand(pairs.size(1))
    (source, target), (all_sources, all_targets) = pairs, edge_index
    found: Tensor = torch.isin(target * nodes + source, all_sources * nodes + all_targets)
    return found.to(x.dtype)


def _unit(rows: Tensor) -> Tensor:
    size: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / size.clamp(min=1e-12)


def _dot(first: Tensor, second: Tensor) -> Tensor:
    out: Tensor = (first * second).sum(1)
    return out


def _blocks(edge_index: Tensor, step: int) -> Iterator[tuple[Tensor, Tensor]]:
    sources, targets = (torch.split(end, step) for end in edge_index)
    return zip(sources, targets, strict=True)


def _size(width: int, device: torch.device) -> int:
    """How many edges at a time: few enough for their data to stay in the cache of a CPU core."""
    return max(1, (CACHED_NUMBERS if device.type == "cpu" else BLOCK) // max(1, width))
