"""Neighbours among the nodes of one type, and the way from one type to another."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from graphmend.graph.canonical import row_keys
from graphmend.graph.stores import EdgeType, node_count, own_edge_types

__all__ = ["Relation", "around", "relation_of"]

NEXT = 4  # nodes on one side with which a node is joined, around each node between them


class Relation(NamedTuple):
    """Edges among the nodes of one type.

    Args:
        edge_index: The edges.
        edge_type: The edge type that they are, or ``None`` where they lead through other types and are made up.
    """

    edge_index: Tensor
    edge_type: EdgeType | None


def relation_of(data: HeteroData, node_type: str) -> Relation:
    """The largest set of edges between nodes of the type, or else two hops through other types.

    Around a node of another type, its neighbours are put in an order that does not depend on how they are numbered, and
    each is joined with the next few, so that a hub makes no more edges than it has. A type without any such neighbours
    gets self-loops, which have no effect.
    """
    own = own_edge_types(data, node_type)
    if own and data[own[0]].edge_index.size(1) > 0:
        return Relation(data[own[0]].edge_index, own[0])
    x = data[node_type].x
    keys = row_keys(x.nan_to_num())
    parts = [_next_to_each_other(nodes, middle, keys) for nodes, middle in _between(data, node_type)]
    edges = torch.cat([x.new_empty(2, 0, dtype=torch.long), *parts], dim=1)
    if edges.size(1) == 0:
        edges = torch.arange(x.size(0), device=x.device).expand(2, -1).contiguous()
    return Relation(torch.unique(edges, dim=1), None)


def _between(data: HeteroData, node_type: str) -> list[tuple[Tensor, Tensor]]:
    """For each other type, the pairs of a node of this type and a neighbour of that type."""
    pairs: dict[str, list[Tensor]] = {}
    for kind in data.edge_types:
        source, _, target = kind
        if source == node_type != target:
            pairs.setdefault(target, []).append(data[kind].edge_index)
        elif target == node_type != source:
            pairs.setdefault(source, []).append(data[kind].edge_index.flip(0))
    joined = [torch.unique(torch.cat(parts, dim=1), dim=1) for parts in pairs.values()]
    return [(both[0], both[1]) for both in joined]


def _next_to_each_other(nodes: Tensor, middle: Tensor, keys: Tensor) -> Tensor:
    order = keys[nodes].argsort()
    order = order[middle[order].argsort(stable=True)]
    nodes, middle = nodes[order], middle[order]
    parts = []
    for offset in range(1, NEXT + 1):
        same = middle[:-offset] == middle[offset:]
        parts.append(torch.stack([nodes[:-offset][same], nodes[offset:][same]]))
    forth = torch.cat(parts, dim=1)
    return torch.cat([forth, forth.flip(0)], dim=1)


def around(data: HeteroData, start: str, end: str) -> Callable[[Tensor], Tensor]:
    """Rows of the nodes of one type as means around the nodes of another, along the shortest way between the types.

    A node without anything around it gets zeros.

    Args:
        data: The graph.
        start: The type of the nodes that there are rows of.
        end: The type of the nodes that get them.
    """
    hops = [_pairs(data, first, second) for first, second in _way(data, start, end)]
    nodes = node_count(data, end)

    def means(rows: Tensor) -> Tensor:
        if start == end:
            return rows
        if not hops:
            return rows.new_zeros(nodes, *rows.shape[1:])
        flat = rows.reshape(rows.size(0), -1)
        for source, target, number in hops:
            total = flat.new_zeros(number, flat.size(1)).index_add(0, target, flat.index_select(0, source))
            count = torch.bincount(target, minlength=number).clamp(min=1).to(flat.dtype)
            flat = total / count.unsqueeze(1)
        return flat.reshape(nodes, *rows.shape[1:])

    return means


def _way(data: HeteroData, start: str, end: str) -> list[tuple[str, str]]:
    """The shortest way between two node types, as pairs of types that have edges in either direction."""
    neighbours: dict[str, list[str]] = {kind: [] for kind in data.node_types}
    for source, _, target in data.edge_types:
        neighbours[source].append(target)
        neighbours[target].append(source)
    came_from: dict[str, str] = {start: start}
    queue = [start]
    for kind in queue:
        for other in sorted(neighbours[kind]):
            if other not in came_from:
                came_from[other] = kind
                queue.append(other)
    way: list[tuple[str, str]] = []
    kind = end
    while kind != start and kind in came_from:
        way.insert(0, (came_from[kind], kind))
        kind = came_from[kind]
    return way


def _pairs(data: HeteroData, first: str, second: str) -> tuple[Tensor, Tensor, int]:
    """The neighbours of two types, each pair once, and the number of nodes of the second type."""
    parts = [data[kind].edge_index for kind in data.edge_types if (kind[0], kind[2]) == (first, second)]
    parts += [data[kind].edge_index.flip(0) for kind in data.edge_types if (kind[0], kind[2]) == (second, first)]
    source, target = torch.unique(torch.cat(parts, dim=1), dim=1)
    return source, target, node_count(data, second)
