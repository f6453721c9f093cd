r"""How well the two ends of each edge fit together, compared with the edges of the training graph.

Three views of an edge, each a cosine: of the ends in the coordinates :math:`XW` of the model's first layer, of their
features, and of their neighbourhoods without each other. Each counts as its percentile among the training graph's
edges; the *fit* of an edge is the sum of the three. Edges that somebody inserted between nodes of different kinds fit
badly in all three, true edges seldom in more than one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphmend.cards.rows import BLOCK, projected, quantiles
from graphmend.engine.adjacency import Adjacency
from graphmend.engine.propagation import Propagation
from graphmend.engine.tuning import CACHED_NUMBERS

__all__ = ["edge_fits", "edge_views", "fit", "fits_well", "grid_of", "neighbourhood_features", "pair_counts"]

POINTS = 65  # of the grid of quantiles that a card keeps
STEPS = 2**16  # of a cosine between 0 and 1: equal ones are equal in every type and on every device


@torch.no_grad()
def edge_views(x: Tensor, hidden: Tensor, edge_index: Tensor, at: Tensor | None = None) -> Tensor:
    """The three cosines of each edge, ``(3, edges)``, the same in both directions.

    Args:
        x: The features.
        hidden: The features in the coordinates of the first layer.
        edge_index: The edges.
        at: Positions of the edges to look at; all of them when ``None``.
    """
    if at is not None:
        return _views(x, hidden, edge_index, edge_index[:, at])
    once = _once(edge_index, x.size(0))
    if once is None:
        return _views(x, hidden, edge_index, edge_index)
    return _views(x, hidden, edge_index, edge_index[:, once[0]])[:, once[1]]


@torch.no_grad()
def edge_fits(x: Tensor, hidden: Tensor, edge_index: Tensor, grid: Tensor) -> Tensor:
    """The :func:`fit` of every edge, worked out once for both directions; arguments as of the other two functions."""
    once = _once(edge_index, x.size(0))
    if once is None:
        return fit(_views(x, hidden, edge_index, edge_index), grid)
    return fit(_views(x, hidden, edge_index, edge_index[:, once[0]]), grid)[once[1]]


def _views(x: Tensor, hidden: Tensor, edge_index: Tensor, pairs: Tensor) -> Tensor:
    """The three cosines of some edges of a graph."""
    size = torch.linalg.vector_norm(x, dim=1).clamp(min=1e-12)
    narrow, small = neighbourhood_features(x), _unit(hidden)
    adjacency = Adjacency.of(edge_index, x.size(0))
    around = Propagation(adjacency, narrow.new_ones(edge_index.size(1)), narrow.new_ones(x.size(0)))(narrow)
    parts = []
    step = _size(max(x.size(1), hidden.size(1)), x.device)
    blocks = (torch.split(part, step) for part in (*pairs, _returned(pairs, edge_index, x)))
    for source, target, back in zip(*blocks, strict=True):
        ends = [rows.index_select(0, end) for rows in (x, small, narrow, around) for end in (source, target)]
        x_source, x_target, u_source, u_target, source_alone, target_alone, at_source, at_target = ends
        similar = _dot(x_source, x_target) / (size[source] * size[target])
        context = _dot(_unit(at_target - source_alone), _unit(at_source - back.unsqueeze(1) * target_alone))
        parts.append(torch.stack([_dot(u_source, u_target), similar, context]))
    return torch.cat([x.new_zeros(3, 0), *parts], dim=1).mul_(STEPS).round_().div_(STEPS)


def _once(edge_index: Tensor, nodes: int) -> tuple[Tensor, Tensor] | None:
    """The positions of the edges of an undirected graph, each once, and for every stored edge which of them it is."""
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
    return torch.cat([forth, loops]), place


def neighbourhood_features(x: Tensor) -> Tensor:
    """The features that are summed over neighbourhoods: of length 1, and projected where they are wide."""
    size: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return projected(x) / size.clamp(min=1e-12)


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
    step = _size(probability.size(1), probability.device)
    for source, target in zip(*(torch.split(end, step) for end in edge_index), strict=True):
        total += (probability[source].t() @ probability[target]).double()
    return total.to(probability.dtype)


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


def _size(width: int, device: torch.device) -> int:
    """Edges at a time: what is gathered for them stays in the cache of a CPU core."""
    return max(1, (CACHED_NUMBERS if device.type == "cpu" else BLOCK) // max(1, width))
