"""Copies of a graph with other edges, and the attributes that belong to edges."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import require
from graphmend.graph.canonical import EDGES
from graphmend.graph.edge_lists import edge_sequences, lengthened, may_be_edge_level, regroup, selected
from graphmend.graph.edge_passes import lowest_of
from graphmend.graph.mapped import MappedGraph
from graphmend.scratch import ROWS, large_empty, row_ranges

__all__ = [
    "attributes_of_added",
    "canonical",
    "edge_attribute_names",
    "edge_attributes",
    "reordered",
    "sample",
    "set_edge_attribute",
    "subgraph",
    "with_edge_changes",
    "with_edges_last",
    "with_more_edges",
    "without_edges",
]

SAMPLE_EDGES = 256  # enough for a model to react to edges, few enough to be cheap


def edge_attribute_names(data: Data) -> list[str]:
    """The tensors with one row per edge, ``edge_index`` aside, sorted by name.

    Pairs of nodes such as ``edge_label_index`` run along their last dimension and do not count, nor do their labels
    ``edge_label``, of which there may be as many as edges.
    """
    tensors = {name: value for name, value in data.to_dict().items() if isinstance(value, Tensor)}
    others = {"edge_index", "edge_label"} if "edge_label_index" in tensors else {"edge_index"}
    edge_level = (name for name in tensors if name not in others and data.is_edge_attr(name))
    candidates = (name for name in edge_level if data.__cat_dim__(name, tensors[name]) == 0)
    return sorted(name for name in candidates if may_be_edge_level(data, name))


def edge_attributes(data: Data, names: Collection[str] | None = None) -> dict[str, Tensor]:
    """Every edge-level tensor with edges first, ``edge_index`` (transposed) included, by name.

    Edge-level attributes are recognised by their size, which may coincide with another one by chance once edges are
    removed: for a mended graph, give the ``names`` that the original had.
    """
    chosen = edge_attribute_names(data) if names is None else sorted(set(names) & set(data.keys()) - {"edge_index"})
    return {"edge_index": data.edge_index.t(), **{name: data[name] for name in chosen}}


def set_edge_attribute(data: Data, name: str, value: Tensor) -> None:
    """Put back what :func:`edge_attributes` returned, in the shape that a graph has it."""
    data[name] = value.t().contiguous() if name == "edge_index" else value


def attributes_of_added(data: Data, added: Tensor) -> dict[str, Tensor]:
    """The :func:`edge_attributes` of added edges, ``(2, m)``: their ends, and 1 for a single number per edge."""
    return {name: _for_added(name, value, added) for name, value in edge_attributes(data).items()}


def _for_added(name: str, like: Tensor, added: Tensor) -> Tensor:
    if name == "edge_index":
        return added.t()
    width = like[0].numel() if like.size(0) else 1
    require(
        added.size(1) == 0 or width == 1,
        f"edges were added, but there are no values for their {name} ({width} values each); use space='existing'",
    )
    return like.new_ones((added.size(1), *like.shape[1:]))


def with_edge_changes(data: Data, removed: Tensor, added: Mapping[str, Tensor]) -> Data:
    """A copy of ``data`` without the edges at some positions, and with others at the end.

    Args:
        data: The graph.
        removed: Positions of the edges to remove.
        added: Every edge-level tensor of the added edges, see :func:`attributes_of_added`. In lists, added edges are
            ``None``.
    """
    keep = torch.ones(data.edge_index.size(1), dtype=torch.bool, device=data.x.device)
    keep[removed.to(data.x.device)] = False
    out, more, attributes = copy.copy(data), added["edge_index"].size(0), edge_attributes(data)
    for name, value in attributes.items():
        if name == "edge_index":
            out.edge_index = _chosen_edges(data.edge_index, keep, added[name].t())
        else:
            out[name] = _chosen_rows(value, keep, added[name])
    for name, (sequence, bounds) in edge_sequences(data).items():
        kept = selected(sequence, keep.cpu().numpy(), bounds)
        out[name] = lengthened(name, kept, more) if bounds is None else kept
    regroup(out, attributes)
    return out


def with_edges_last(data: MappedGraph, edges: Tensor) -> Data:
    """A copy of a graph whose edges are sorted by target, with some of them at the end, as before they were sorted.

    Args:
        data: The graph; one whose edges are not sorted, or that lacks some of these, comes back as it is.
        edges: The edges that come last, ``(2, m)``; of equal ones in the graph, the last.
    """
    offsets = data.offsets()
    if offsets is None or int(edges[1].max()) >= data.x.size(0):
        return data
    left: dict[tuple[int, int], Tensor] = {}
    positions = edges.new_empty(edges.size(1))
    for k in range(edges.size(1) - 1, -1, -1):
        source, target = edges[:, k].tolist()
        if (source, target) not in left:
            start, end = offsets[target : target + 2].tolist()
            left[source, target] = (data.edge_index[0, start:end] == source).nonzero().view(-1) + start
        if left[source, target].numel() == 0:
            return data
        positions[k], left[source, target] = left[source, target][-1], left[source, target][:-1]
    chosen = {name: value[positions] for name, value in edge_attributes(data).items()}
    return with_edge_changes(data, positions, chosen)


def without_edges(data: Data, keep: Tensor) -> Data:
    """A copy of ``data`` with only the edges in ``keep``."""
    out, names = copy.copy(data), edge_attribute_names(data)
    out.edge_index = _chosen_edges(data.edge_index, keep)
    for name in names:
        out[name] = _chosen_rows(data[name], keep)
    for name, (sequence, bounds) in edge_sequences(data).items():
        out[name] = selected(sequence, keep.cpu().numpy(), bounds)
    regroup(out, ["edge_index", *names])
    return out


def _chosen_edges(edge_index: Tensor, keep: Tensor, more: Tensor | None = None) -> Tensor:
    """The chosen columns, and some more at the end; of many, some at a time."""
    if edge_index.numel() <= ROWS:
        kept = edge_index[:, keep]
        return kept if more is None else torch.cat([kept, more.to(kept.device)], dim=1)
    number = int(keep.sum()) + (0 if more is None else more.size(1))
    out = large_empty((2, number), edge_index)
    for end, (rows, source) in enumerate(zip(out, edge_index, strict=True)):
        _fill(rows, source, keep, None if more is None else more[end])
    return out


def _chosen_rows(value: Tensor, keep: Tensor, more: Tensor | None = None) -> Tensor:
    """The same of rows."""
    if value.numel() <= ROWS:
        return value[keep] if more is None else torch.cat([value[keep], more.to(value.device)])
    number = int(keep.sum()) + (0 if more is None else more.size(0))
    out = large_empty((number, *value.shape[1:]), value)
    _fill(out, value, keep, more)
    return out


def _fill(out: Tensor, value: Tensor, keep: Tensor, more: Tensor | None) -> None:
    start = 0
    for rows in row_ranges(value.size(0), value[:1].numel()):
        kept = value[rows][keep[rows]]
        out[start : start + kept.size(0)] = kept
        start += kept.size(0)
    if more is not None:
        out[start:] = more.to(out.device)


def with_more_edges(data: Data, edge_index: Tensor) -> Data:
    """A copy of ``data`` with a longer edge list; attributes of the new edges that are single numbers are 1."""
    out = copy.copy(data)
    out.edge_index = edge_index
    more = edge_index.size(1) - data.edge_index.size(1)
    if more == 0:
        return out
    for name in edge_attribute_names(data):
        value = data[name]
        width = value[0].numel()
        require(more > 0, f"{-more} edges are missing from the edge list; give absent edges the weight 0 instead")
        require(
            width == 1,
            f"edges cannot be added: there are no values for their {name} ({width} values each); use space='existing'",
        )
        out[name] = torch.cat([value, value.new_ones((more, *value.shape[1:]))])
    return out


def sample(data: Data, keys: Tensor) -> Data:
    """A small graph like ``data``, to try a model on: the ends of a few edges and all edges between them.

    Which edges these are, and the order in which their ends come, does not depend on the numbering of the nodes.

    Args:
        data: The graph.
        keys: A number for each node, from :func:`graphmend.graph.canonical.node_keys`.
    """
    if data.edge_index.size(1) <= SAMPLE_EDGES:
        return canonical(data, keys)
    lowest, places = lowest_of(data, keys, 2 * SAMPLE_EDGES)
    last = torch.unique(lowest)[:SAMPLE_EDGES][-1]  # both directions of an edge have one key
    nodes = torch.zeros(data.x.size(0), dtype=torch.bool, device=data.edge_index.device)
    nodes[data.edge_index[:, places[lowest <= last]].reshape(-1)] = True
    ends = zip(*(torch.split(end, EDGES) for end in data.edge_index), strict=True)
    loops = torch.cat([source[source == target] for source, target in ends])
    if loops.numel():  # a self-loop, if there are any
        nodes[loops[keys[loops].argmin()]] = True
    return canonical(data, keys, nodes)


def canonical(data: Data, keys: Tensor, nodes: Tensor | None = None) -> Data:
    """A copy of ``data`` whose nodes are sorted by their keys, and its edges by their ends.

    Edges stay in their order if they have attributes that are no tensors.

    Args:
        data: The graph.
        keys: A number for each node, from :func:`graphmend.graph.canonical.node_keys`.
        nodes: The nodes to take, as a mask; ``None`` stands for all of them.
    """
    order = keys.argsort() if nodes is None else nodes.nonzero().view(-1)[keys[nodes].argsort()]
    batch = data.get("batch")
    if isinstance(batch, Tensor) and batch.shape == keys.shape:  # the nodes of a graph stay side by side
        order = order[batch[order].argsort(stable=True)]
    out = subgraph(data, order)
    if edge_sequences(data):
        return out
    source, target = out.edge_index
    return reordered(out, (source * out.x.size(0) + target).argsort(stable=True))


def subgraph(data: Data, nodes: Tensor) -> Data:
    """The subgraph of some nodes, given as a mask or in the order they are to have.

    PyG's own function takes lists and tensors, but no arrays.
    """
    plain, number = copy.copy(data), data.x.size(0)
    arrays = {name: value for name, value in data.to_dict().items() if isinstance(value, np.ndarray)}
    for name in arrays:
        del plain[name]
    out, kept = plain.subgraph(nodes), nodes.cpu().numpy()
    if not arrays:
        return out
    inside = torch.zeros(number, dtype=torch.bool, device=nodes.device)
    inside[nodes] = True
    source, target = data.edge_index
    sequences, edges = edge_sequences(data), (inside[source] & inside[target]).cpu().numpy()
    for name, value in arrays.items():
        of_edges, of_nodes = name in sequences, value.shape[:1] == (number,)
        out[name] = value[edges] if of_edges else value[kept] if of_nodes else value
    return out


def reordered(data: Data, order: Tensor) -> Data:
    """A copy of ``data`` with its edges in another order."""
    out = copy.copy(data)
    out.edge_index = data.edge_index[:, order]
    for name in edge_attribute_names(data):
        out[name] = data[name][order]
    return out
