r"""Which nodes random walks find together, as a weighted graph.

From every node :math:`a` start ``walks`` random walks of 1 to ``length`` steps. With :math:`f(b \mid a)` the share of
:math:`b` among the nodes that the walks from :math:`a` visit, the positive pointwise mutual information is

.. math:: w_{ab} = \max\!\Big(0,\; \log \frac{f(b \mid a)}{\frac1N \sum_{a'} f(b \mid a')}\Big).

Walks go along edges in both directions, in proportion to their weights. The random numbers are the same in every
call, so the result is a function of the graph alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["ppmi_graph"]


@torch.no_grad()
def ppmi_graph(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, *, walks: int = 40, length: int = 10
) -> tuple[Tensor, Tensor]:
    """The edges :math:`b \\to a` with a positive :math:`w_{ab}`, and these weights in double precision.

    Args:
        edge_index: Edges of the graph.
        edge_weight: Their weights; one that is not positive counts as no edge.
        num_nodes: Number of nodes.
        walks: Walks per node.
        length: Steps of the longest walks.
    """
    visits = _visits(_Neighbours(edge_index, edge_weight, num_nodes), walks, length)
    key, count = torch.unique(visits, return_counts=True)
    start, found = key // num_nodes, key % num_nodes

    def per_node(node: Tensor, values: Tensor) -> Tensor:
        return values.new_zeros(num_nodes).index_add_(0, node, values)[node]

    share = count.double()
    share /= per_node(start, share)
    weight = (share * num_nodes / per_node(found, share)).log()
    keep = weight > 0
    return torch.stack([found, start])[:, keep], weight[keep]


class _Neighbours:
    """The neighbours of every node in a row, so that one of them can be drawn by its weight."""

    def __init__(self, edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int) -> None:
        source, target = edge_index.long()
        weight = source.new_ones(source.numel(), dtype=torch.double) if edge_weight is None else edge_weight.double()
        key, order = torch.cat([source * num_nodes + target, target * num_nodes + source]).sort(stable=True)
        self.num_nodes, self.neighbour = num_nodes, key % num_nodes
        self.total = torch.cat([weight, weight]).clamp_(min=0)[order].cumsum(0)
        ends = torch.searchsorted(key // num_nodes, torch.arange(num_nodes + 1, device=key.device))
        self.high = torch.cat([self.total.new_zeros(1), self.total])[ends]

    def step(self, node: Tensor, draw: Tensor) -> Tensor:
        """From each node to the neighbour that a number in [0, 1) falls on."""
        low, high = self.high[node], self.high[node + 1]
        place = torch.searchsorted(self.total, low + draw * (high - low), right=True)
        return self.neighbour[place.clamp_(max=self.total.numel() - 1)]


def _visits(graph: _Neighbours, walks: int, length: int) -> Tensor:
    """Start and visited node of every step of every walk, as one number."""
    generator = torch.Generator().manual_seed(0)
    first = (graph.high.diff() > 0).nonzero().view(-1)  # nodes that a walk can leave

    def draw() -> Tensor:
        numbers = torch.rand(walks, graph.num_nodes, generator=generator, dtype=torch.double).to(first.device)
        return numbers[:, first].view(-1)

    start = node = first.repeat(walks)
    steps = (draw() * length).long() + 1
    visits = []
    for t in range(length):
        node = graph.step(node, draw())
        visits.append((start * graph.num_nodes + node)[steps > t])
    return torch.cat(visits)
