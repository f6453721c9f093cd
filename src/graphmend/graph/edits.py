"""Copies of a graph with other edges, and which attributes belong to edges."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import require
from graphmend.graph.pieces import may_be_edge_level, regroup
from graphmend.graph.sequences import edge_sequences, lengthened, selected

__all__ = [
    "attributes_of_added",
    "edge_attribute_names",
    "edge_attributes",
    "reordered",
    "sample",
    "set_edge_attribute",
    "subgraph",
    "with_edge_changes",
    "with_more_edges",
    "without_edges",
]

SAMPLE_EDGES = 256  # enough for a model to react to edges, few enough to cost nothing


def edge_attribute_names(data: Data) -> list[str]:
    """The tensors with one row per edge, ``edge_index`` aside, sorted by name.

    Pairs of nodes such as ``edge_label_index`` run along their last dimension and are none of them.
    """
    tensors = {name: value for name, value in data.to_dict().items() if isinstance(value, Tensor)}
    edge_level = (name for name in tensors if name != "edge_index" and data.is_edge_attr(name))
    found = (name for name in edge_level if data.__cat_dim__(name, tensors[name]) == 0)
    return sorted(name for name in found if may_be_edge_level(data, name))


def edge_attributes(data: Data, names: Collection[str] | None = None) -> dict[str, Tensor]:
    """Every edge-level tensor with edges first, ``edge_index`` (transposed) included, by name.

    Which attributes are edge-level shows in their sizes, and those may coincide by chance once edges are gone: for a
    mended graph, give the ``names`` that the original had.
    """
    chosen = edge_attribute_names(data) if names is None else sorted(set(names) & set(data.keys()) - {"edge_index"})
    return {"edge_index": data.edge_index.t(), **{name: data[name] for name in chosen}}


def set_edge_attribute(data: Data, name: str, value: Tensor) -> None:
    """Put back what :func:`edge_attributes` returned, in the shape that a graph has it."""
    data[name] = value.t().contiguous() if name == "edge_index" else value


def attributes_of_added(data: Data, added: Tensor) -> dict[str, Tensor]:
    """The :func:`edge_attributes` of edges that come, ``(2, m)``: their ends, and 1 for a single number per edge."""
    return {name: _for_added(name, value, added) for name, value in edge_attributes(data).items()}


def _for_added(name: str, like: Tensor, added: Tensor) -> Tensor:
    if name == "edge_index":
        return added.t()
    width = like[0].numel() if like.size(0) else 1
    require(
        added.size(1) == 0 or width == 1,
        f"edges were added, but nobody knows their {name} ({width} values each); use space='existing'",
    )
    return like.new_ones((added.size(1), *like.shape[1:]))


def with_edge_changes(data: Data, removed: Tensor, added: Mapping[str, Tensor]) -> Data:
    """A copy of ``data`` without the edges at some positions, and with others at the end.

    Args:
        data: The graph.
        removed: Positions of the edges that go.
        added: Every edge-level tensor of the edges that come, see :func:`attributes_of_added`. In lists, which are
            nobody's input, such edges are ``None``.
    """
    keep = torch.ones(data.edge_index.size(1), dtype=torch.bool, device=data.x.device)
    keep[removed.to(data.x.device)] = False
    out, more, attributes = copy.copy(data), added["edge_index"].size(0), edge_attributes(data)
    for name, value in attributes.items():
        set_edge_attribute(out, name, torch.cat([value[keep], added[name].to(value.device)]))
    for name, (sequence, bounds) in edge_sequences(data).items():
        kept = selected(sequence, keep.cpu().numpy(), bounds)
        out[name] = lengthened(name, kept, more) if bounds is None else kept
    regroup(out, attributes)
    return out


def without_edges(data: Data, keep: Tensor) -> Data:
    """A copy of ``data`` with only the edges in ``keep``."""
    out, names = copy.copy(data), edge_attribute_names(data)
    out.edge_index = data.edge_index[:, keep]
    for name in names:
        out[name] = data[name][keep]
    for name, (sequence, bounds) in edge_sequences(data).items():
        out[name] = selected(sequence, keep.cpu().numpy(), bounds)
    regroup(out, ["edge_index", *names])
    return out


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
            f"edges cannot be added: nobody knows their {name} ({width} values each); use space='existing'",
        )
        out[name] = torch.cat([value, value.new_ones((more, *value.shape[1:]))])
    return out


def sample(data: Data) -> Data:
    """A small graph like ``data``, to try a model on: the ends of a few random edges and all edges between them."""
    edges = data.edge_index.size(1)
    if edges <= SAMPLE_EDGES:
        return data
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randint(edges, (SAMPLE_EDGES,), generator=generator).to(data.edge_index.device)
    nodes = torch.zeros(data.x.size(0), dtype=torch.bool, device=data.edge_index.device)
    nodes[data.edge_index[:, chosen].reshape(-1)] = True
    source, target = data.edge_index
    nodes[source[source == target][:1]] = True  # a self-loop, if there are any
    return subgraph(data, nodes)


def subgraph(data: Data, nodes: Tensor) -> Data:
    """The subgraph of the nodes in a mask; PyG's own takes lists and tensors, but no arrays."""
    plain, number = copy.copy(data), data.x.size(0)
    arrays = {name: value for name, value in data.to_dict().items() if isinstance(value, np.ndarray)}
    for name in arrays:
        del plain[name]
    out, kept = plain.subgraph(nodes), nodes.cpu().numpy()
    source, target = data.edge_index
    sequences, edges = edge_sequences(data), (nodes[source] & nodes[target]).cpu().numpy()
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
