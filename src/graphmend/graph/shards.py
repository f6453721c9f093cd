"""A graph in shards: ranges of targets, each with the nodes that reach it within a few hops, its *halo*.

A shard is a graph of its own. The nodes that it owns come first, then those of the halo; every edge into a node less
than the last hop away is there, so whatever a model computes for the owned nodes from that far is what it computes on
the whole graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import require
from graphmend.graph.edits import edge_attribute_names
from graphmend.graph.mapped import MappedGraph

__all__ = ["Shard", "cut", "plan", "run_cost"]

EDGE_ROWS = 3  # rows as wide as the widest layer that a plain model writes for an edge
NODE_ROWS = 6  # the same for a node
USELESS = 0.8  # of what a range of nodes costs: where each half costs more, halving saves no memory


class Shard(NamedTuple):
    """Some nodes of a graph with their halo.

    Args:
        data: The graph of them; the owned nodes come first.
        start: The first owned node.
        owned: How many there are.
    """

    data: Data
    start: int
    owned: int


def run_cost(nodes: int, edges: int, columns: int, width: int, size: int = 4) -> int:
    """Bytes that a plain run of a model takes on so many nodes and edges.

    Args:
        nodes: How many.
        edges: How many.
        columns: Of the features.
        width: Of the widest layer.
        size: Bytes of a number.
    """
    return nodes * (columns + NODE_ROWS * width) * size + edges * (16 + EDGE_ROWS * max(width, 1) * size)


def plan(
    graph: MappedGraph, hops: int, width: int, budget: int, available: int, least: int = 1
) -> list[tuple[int, int]]:
    """The ranges of targets to run one after the other; their halos are counted before anything runs.

    A range whose halo does not fit into the budget is halved, down to a single node, a hub. Where halving saves
    nothing, because every halo is nearly the whole graph, the range stays; if it does not even fit into what is free,
    an error says what it would take.

    Args:
        graph: The graph.
        hops: How far the halo reaches.
        width: Of the model's widest layer.
        budget: Bytes that a shard may take.
        available: Bytes that are free.
        least: How many ranges there shall be at least, for others to work on.
    """
    nodes, columns, size = graph.x.size(0), graph.x.size(1), graph.x.element_size()
    offsets = graph.offsets()
    assert offsets is not None
    edges = int(offsets[-1])
    whole = run_cost(nodes, edges, columns, width, size)
    number = graph.shards or max(least, -(-whole // max(1, budget)))
    if graph.shards is None and number == 1:
        return [(0, nodes)]
    goals = torch.arange(1, number) * edges // number
    bounds = [0, *torch.searchsorted(offsets[1:].contiguous(), goals).clamp(max=nodes).tolist(), nodes]
    ranges = [(start, end) for start, end in pairwise(bounds) if end > start]
    if graph.shards is not None:
        return ranges

    def cost(start: int, end: int) -> int:
        inside, inner = reached(graph, offsets, start, end, hops)
        counted = int((offsets[inside[:inner] + 1] - offsets[inside[:inner]]).sum())
        return run_cost(inside.numel(), counted, columns, width, size)

    out: list[tuple[int, int]] = []
    waiting = [(start, end, cost(start, end)) for start, end in reversed(ranges)]
    while waiting:
        start, end, price = waiting.pop()
        if price > budget and end - start > 1:
            middle = (start + end) // 2
            first, second = cost(start, middle), cost(middle, end)
            if min(first, second) < USELESS * price:
                waiting += [(middle, end, second), (start, middle, first)]
                continue
        who = f"node {start}" if end - start == 1 else f"nodes {start} to {end - 1}"
        require(
            price <= available,
            f"a run of the model on {who} with all nodes within {hops} hops of them takes about {price / 2**30:.1f} "
            f"GiB, but {available / 2**30:.1f} GiB are free; use a larger machine, or a model of fewer layers",
        )
        out.append((start, end))
    return out


def reached(graph: Data, offsets: Tensor, start: int, end: int, hops: int) -> tuple[Tensor, int]:
    """The nodes from which a range is reached within so many hops, nearest first, and how many are not at the end."""
    seen = torch.zeros(graph.x.size(0), dtype=torch.bool)
    seen[start:end] = True
    found, inner = [torch.arange(start, end)], 0
    for _ in range(hops):
        last = found[-1]
        inner += last.numel()
        source = graph.edge_index[0][_positions(offsets, last)]
        new = source[~seen[source]].unique()
        seen[new] = True
        found.append(new)
    return torch.cat(found), inner


def _positions(offsets: Tensor, nodes: Tensor) -> Tensor:
    """Where the edges into some nodes stand."""
    first, number = offsets[nodes], offsets[nodes + 1] - offsets[nodes]
    before = number.cumsum(0) - number
    return torch.arange(int(number.sum())) + (first - before).repeat_interleave(number)


def cut(graph: Data, offsets: Tensor, ranges: list[tuple[int, int]], hops: int) -> Iterator[Shard]:
    """The shards of some ranges, one at a time.

    Args:
        graph: The graph, its edges sorted by target.
        offsets: Where the edges of each target begin.
        ranges: The nodes that each shard owns.
        hops: How far the halo reaches.
    """
    nodes, of_edges = graph.x.size(0), {"edge_index", *edge_attribute_names(graph)}
    place = torch.full((nodes,), -1)
    for start, end in ranges:
        inside, inner = reached(graph, offsets, start, end, hops)
        at = _positions(offsets, inside[:inner])
        place[inside] = torch.arange(inside.numel())
        part = Data()
        for name, value in graph.to_dict().items():
            if name == "edge_index":
                part.edge_index = place[value[:, at]]
            elif name in of_edges:
                part[name] = value[at]
            elif isinstance(value, Tensor) and value.dim() > 0 and value.size(0) == nodes:
                part[name] = value[inside]
            elif name != "num_nodes":
                part[name] = value
        place[inside] = -1
        yield Shard(part, start, end - start)
