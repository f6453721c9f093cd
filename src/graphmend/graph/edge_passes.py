"""Statistics of all edges, made of ranges of them that any process can work on, and merged in a tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.graph.canonical import EDGES, edge_keys, lowest_edges
from graphmend.graph.mapped import MappedGraph

__all__ = ["edge_ranges", "edges_up_to", "lowest_of", "over_edges"]

R = TypeVar("R")
Range = tuple[int, int]


def edge_ranges(graph: Data) -> list[Range]:
    """Ranges of positions in the list of edges."""
    edges = int(graph.edge_index.size(1))
    return [(start, min(edges, start + EDGES)) for start in range(0, edges, EDGES)]


def over_edges(graph: MappedGraph, function: Callable[[Range], R], merge: Callable[[R, R], R]) -> R:
    """What a function gives for all ranges of edges, merged."""
    return graph.merged(function, edge_ranges(graph), merge)


def lowest_of(graph: Data, keys: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """The so many lowest keys of edges, ascending, and the positions of their edges.

    Args:
        graph: The graph.
        keys: Of its nodes.
        number: How many.
    """
    if not isinstance(graph, MappedGraph) or graph.workers is None:
        return lowest_edges(keys, graph.edge_index, number)
    return over_edges(graph, _Lowest(graph, keys, number), _Lower(number))


def edges_up_to(graph: Data, keys: Tensor, last: Tensor) -> Tensor:
    """The positions of the edges whose keys are not above a certain one."""
    function, ranges = _UpTo(graph, keys, int(last)), edge_ranges(graph)
    found = graph.over(function, ranges) if isinstance(graph, MappedGraph) else map(function, ranges)
    return torch.cat([positions for _, positions in sorted(found, key=lambda part: part[0])])


@dataclass(frozen=True)
class _Lowest:
    """The lowest keys in a range of edges."""

    graph: MappedGraph
    keys: Tensor
    number: int

    def __call__(self, bounds: Range) -> tuple[Tensor, Tensor]:
        start, end = bounds
        values, places = lowest_edges(self.keys, self.graph.edge_index[:, start:end], self.number)
        return values, places + start


@dataclass(frozen=True)
class _Lower:
    """The lowest of two lists of keys."""

    number: int

    def __call__(self, first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        values, places = (torch.cat(pair) for pair in zip(first, second, strict=True))
        best = values.topk(min(self.number, values.numel()), largest=False, sorted=True)
        return best.values, places[best.indices]


@dataclass(frozen=True)
class _UpTo:
    """The positions in a range of edges whose keys are not above a certain one."""

    graph: Data
    keys: Tensor
    last: int

    def __call__(self, bounds: Range) -> tuple[int, Tensor]:
        start, end = bounds
        found = edge_keys(self.keys, self.graph.edge_index[:, start:end]) <= self.last
        return start, found.nonzero().view(-1) + start
