r"""How well the two ends of each edge fit together, compared with the edges of the training graph.

Three views of an edge, each a cosine: of the ends in the coordinates :math:`XW` of the model's first layer, of their
features, and of their neighbourhoods without each other. Each counts as its percentile among the training graph's
edges; the *fit* of an edge is the sum of the three. Edges that somebody inserted between nodes of different kinds fit
badly in all three, true edges seldom in more than one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphmend.cards.rows import BLOCK, quantiles

__all__ = ["edge_views", "fit", "grid_of", "neighbourhood_features", "pair_counts"]

POINTS = 65  # of the grid of quantiles that a card keeps
PROJECTED = 128  # columns that wide features are projected to, for the neighbourhoods


@torch.no_grad()
def edge_views(x: Tensor, hidden: Tensor, edge_index: Tensor) -> Tensor:
    """The three cosines of each edge, ``(3, edges)``.

    Args:
        x: The features.
        hidden: The features in the coordinates of the first layer.
        edge_index: The edges.
    """
    unit = _unit(x)
    narrow = _narrowed(unit)
    around = narrow.clone()
    for source, target in _blocks(edge_index, narrow.size(1)):
        around.index_add_(0, target, narrow.index_select(0, source))
    parts = []
    small = _unit(hidden)
    for source, target in _blocks(edge_index, x.size(1)):
        first = around.index_select(0, target) - narrow.index_select(0, source)
        second = around.index_select(0, source) - narrow.index_select(0, target)
        views = [_cosine(small[source], small[target]), _cosine(unit[source], unit[target])]
        parts.append(torch.stack([*views, _cosine(_unit(first), _unit(second))]))
    return torch.cat(parts, dim=1)


def neighbourhood_features(x: Tensor) -> Tensor:
    """The features that are summed over neighbourhoods: of length 1, and projected where they are wide."""
    return _narrowed(_unit(x))


def grid_of(views: Tensor) -> Tensor:
    """The quantiles of each view on an even grid, ``(3, POINTS)``."""
    return quantiles(views.t(), [k / (POINTS - 1) for k in range(POINTS)]).t().contiguous()


def fit(views: Tensor, grid: Tensor) -> Tensor:
    """The sum of the percentiles of the three views among the edges a grid was made of; ties count half."""
    points = grid.contiguous()
    below, up_to = (torch.searchsorted(points, views.contiguous(), right=right) for right in (False, True))
    total: Tensor = (below + up_to).to(views.dtype).sum(0)
    return total.div(2 * grid.size(1))


@torch.no_grad()
def pair_counts(probability: Tensor, edge_index: Tensor) -> Tensor:
    r"""Edges from class :math:`a` to class :math:`b`, :math:`n_{ab} = \sum_{j \to i} p_{ja}\, p_{ib}`.

    Args:
        probability: Of each class at each node, ``(nodes, classes)``; 0 and 1 count predicted classes.
        edge_index: The edges :math:`j \to i`.
    """
    total = probability.new_zeros(probability.size(1), probability.size(1), dtype=torch.float64)
    for source, target in _blocks(edge_index, probability.size(1)):
        total += (probability[source].t() @ probability[target]).double()
    return total.to(probability.dtype)


def _narrowed(unit: Tensor) -> Tensor:
    return unit if unit.size(1) <= PROJECTED else unit @ _projection(unit)


def _unit(rows: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / norm.clamp(min=1e-12)


def _cosine(first: Tensor, second: Tensor) -> Tensor:
    return (first * second).sum(1)


def _projection(x: Tensor) -> Tensor:
    """A random projection that nearly keeps angles (Johnson and Lindenstrauss), the same for every graph."""
    generator = torch.Generator().manual_seed(0)
    matrix: Tensor = torch.randn(x.size(1), PROJECTED, generator=generator) / PROJECTED**0.5
    return matrix.to(x)


def _blocks(edge_index: Tensor, width: int) -> list[tuple[Tensor, Tensor]]:
    size = max(1, BLOCK // max(1, width))
    sources, targets = (torch.split(end, size) for end in edge_index)
    return list(zip(sources, targets, strict=True))
