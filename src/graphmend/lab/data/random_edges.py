"""Random edges: the control for every attack."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch_geometric.data import Data

from graphmend.errors import check_fields, require, seed_number
from graphmend.graph.convert import with_edge_index
from graphmend.graph.pairs import random_numbers
from graphmend.lab.attacks.pairs import UndirectedGraph, check_budget

__all__ = ["RandomEdges"]


@dataclass(frozen=True)
class RandomEdges:
    r"""Add undirected edges between random pairs of nodes without one.

    There are :math:`\lfloor \text{rate} \cdot |E| \rfloor` new edges. The harm of an attack beyond this control is due
    to the choice of its edges. The input is left as it was.

    Args:
        rate: Number of new edges as a fraction of the undirected edges.
        budget: The same as a number of undirected edges, instead of ``rate``.
        seed: Seed of the pairs; the global generators are not touched.

    Example:
        >>> data = Data(x=torch.ones(4, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
        >>> RandomEdges(budget=2)(data).num_edges
        6
    """

    rate: float = 0.1
    budget: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_budget(self)
        check_fields(self, seed_number, "seed")

    def __call__(self, data: Data) -> Data:
        """A copy of ``data`` with more edges, sorted and in both directions."""
        data = with_edge_index(data)
        graph = UndirectedGraph.of(data)
        count, free = graph.count(self.rate, self.budget), graph.num_pairs - graph.pairs.numel()
        require(count <= free, f"{count} edges cannot be added, as only {free} pairs have none; lower rate or budget")
        generator = torch.Generator(device=data.x.device).manual_seed(self.seed)
        return graph.flipped(random_numbers(count, graph.num_pairs, generator, graph.pairs)).put_into(data)
