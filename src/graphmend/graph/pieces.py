"""Where the edges of each graph of a PyG ``Batch`` are.

A ``Batch`` remembers where each of its graphs begins in every attribute, and ``batch[0]`` and ``to_data_list()`` cut it
there. Once edges have gone, the old places are wrong: a graph would get edges of its neighbours in the list.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch_geometric.data import Data

__all__ = ["edge_bounds", "is_per_graph", "may_be_edge_level", "number_of_graphs", "regroup"]

_ASIDE = "_slice_dict_aside"
"""Where a batch keeps its slices while edges between its graphs make it impossible to take it apart."""


def number_of_graphs(data: Data) -> int:
    """How many graphs a graph is made of: those of a ``Batch``, or as many as ``batch`` tells apart."""
    batch, slices = data.get("batch"), _slices(data)
    nodes = None if slices is None else slices.get("x")
    if isinstance(nodes, Tensor) and int(nodes[-1]) == data.x.size(0):
        return nodes.numel() - 1
    return int(batch.max()) + 1 if isinstance(batch, Tensor) and batch.numel() else 1


def edge_bounds(data: Data) -> Tensor | None:
    """The position of the first edge of each graph, and the number of edges; ``None`` unless ``data`` is a ``Batch``
    whose edges lie within its graphs, one graph after another."""
    slices = _slices(data)
    nodes = None if slices is None else slices.get("x")
    if not isinstance(nodes, Tensor) or int(nodes[-1]) != data.x.size(0):
        return None
    graph = torch.bucketize(data.edge_index, nodes[1:].to(data.edge_index.device), right=True)
    within = torch.equal(graph[0], graph[1])
    if not within or bool((graph[0, 1:] < graph[0, :-1]).any()):
        return None
    counts = torch.bincount(graph[0], minlength=nodes.numel() - 1)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).cpu()


def is_per_graph(data: Data, name: str) -> bool:
    """Whether an attribute of a ``Batch`` is a list with one entry per graph, as lists and arrays of its graphs are."""
    slices = _slices(data)
    value = data.get(name)
    return slices is not None and name in slices and isinstance(value, list) and len(value) == data.num_graphs


def may_be_edge_level(data: Data, name: str) -> bool:
    """Whether a ``Batch`` does not say otherwise: that an attribute is divided among its graphs unlike its edges.

    PyG tells edge-level tensors by their length, and there may be as many edges as graphs.
    """
    slices = _slices(data)
    if slices is None:
        return True
    own, edges = slices.get(name), slices.get("edge_index")
    if own is None or edges is None:
        return name not in ("batch", "ptr") and not name.endswith(("_batch", "_ptr"))
    return isinstance(own, Tensor) and torch.equal(own, edges)


def regroup(data: Data, names: Iterable[str]) -> None:
    """Tell a ``Batch``, in place, where the edges of its graphs are now.

    If there are edges between its graphs, or the edges of a graph are not side by side, the batch cannot be taken
    apart; ``to_data_list()`` then raises an error of PyG instead of returning wrong graphs.

    Args:
        data: A copy that nobody else holds yet; nothing happens if it is not a ``Batch``.
        names: The edge-level tensors, ``edge_index`` among them.
    """
    slices = _slices(data)
    if slices is None:
        return
    bounds = edge_bounds(data)
    if bounds is None:
        setattr(data, _ASIDE, slices)
        if hasattr(data, "_slice_dict"):
            del data._slice_dict
        return
    slices, increments = dict(slices), dict(data._inc_dict)
    for name in names:
        if name in data:
            slices[name] = bounds
            increments.setdefault(name, torch.zeros(bounds.numel() - 1, dtype=torch.long))
        else:
            slices.pop(name, None)
            increments.pop(name, None)
    data._slice_dict, data._inc_dict = slices, increments
    if hasattr(data, _ASIDE):
        delattr(data, _ASIDE)


def _slices(data: Data) -> dict[str, Tensor] | None:
    found: dict[str, Tensor] | None = getattr(data, "_slice_dict", None) or getattr(data, _ASIDE, None)
    return found
