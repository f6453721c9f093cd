"""Subgraph sampling by random walks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.engine.adjacency import Adjacency
from graphmend.errors import check_fields, whole_number
from graphmend.graph.convert import with_edge_index
from graphmend.transforms.views.view import with_edges


@dataclass(frozen=True)
class Subgraph:
    """Keep the edges between nodes that random walks have visited; all nodes and features stay.

    Args:
        starts: Number of random start nodes, with repetition (at most the number of nodes).
        length: Steps of each walk along the direction of edges; a walk stays at a node without outgoing edges.
    """

    starts: int = 1000
    length: int = 10

    def __post_init__(self) -> None:
        check_fields(self, whole_number, "starts", low=1)
        check_fields(self, whole_number, "length")

    def __call__(self, data: Data, generator: torch.Generator | None = None) -> Data:
        """A copy with the walked subgraph's edges."""
        data = with_edge_index(data)
        nodes, device = data.x.size(0), data.x.device
        first, targets = _out_edges(data)
        count = first[1:] - first[:-1]
        here = torch.randint(nodes, (min(self.starts, nodes),), generator=generator, device=device)
        visited = torch.zeros(nodes, dtype=torch.bool, device=device)
        visited[here] = True
        for _ in range(self.length if targets.numel() else 0):
            draw = torch.rand(here.numel(), generator=generator, device=device, dtype=torch.float64)
            stuck = count[here] == 0
            step = (draw * count[here]).long() + first[here]
            here = torch.where(stuck, here, targets[step.clamp(max=targets.numel() - 1)])
            visited[here] = True
        source, target = data.edge_index
        return with_edges(data, visited[source] & visited[target])


def _out_edges(data: Data) -> tuple[Tensor, Tensor]:
    """Offsets and targets of the outgoing edges of each node, those of weight 0 left out."""
    adjacency = Adjacency.of(data.edge_index, data.x.size(0))
    first, targets = adjacency.transpose.crow.long(), adjacency.transpose.col.long()
    weight = data.get("edge_weight")
    if weight is None:
        return first, targets
    exists = adjacency.order(weight.detach())[adjacency.tperm] != 0
    position = torch.nn.functional.pad(exists.cumsum(0), (1, 0))
    return position[first], targets[exists]
