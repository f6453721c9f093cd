"""Attributes of edges other than plain tensors, above all in a PyG ``Batch``.

Lists, tuples and NumPy arrays may have one entry per edge. A ``Batch`` remembers where each of its graphs begins in
every attribute, and ``batch[0]`` and ``to_data_list()`` cut it there. Once edges are removed, the old positions are
wrong: a graph would get edges of its neighbours in the list.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import GraphMendError, require

__all__ = [
    "edge_bounds",
    "edge_sequences",
    "is_per_graph",
    "lengthened",
    "may_be_edge_level",
    "merged",
    "number_of_graphs",
    "parted",
    "regroup",
    "removed_entries",
    "selected",
]

Flags = np.ndarray[Any, np.dtype[np.bool_]]
Bounds = list[int] | None
"""Where the edges of each graph of a ``Batch`` begin, for a list with one sequence per graph; else ``None``."""

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
    """Whether an attribute of a ``Batch`` is divided among its graphs as the edges are, as far as the batch says.

    PyG recognises edge-level tensors by their length, and there may be as many edges as graphs.
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
        data: A copy that is used nowhere else yet; nothing happens if it is not a ``Batch``.
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
    slices: dict[str, Tensor] | None = getattr(data, "_slice_dict", None) or getattr(data, _ASIDE, None)
    return slices


def edge_sequences(data: Data) -> dict[str, tuple[Any, Bounds]]:
    """Every edge-level attribute that is not a tensor, with the bounds by which it is divided among graphs.

    They have one entry per edge, as PyG has it. Where there are as many nodes as edges, "edge" must be in their name.
    """
    sequences: dict[str, tuple[Any, Bounds]] = {}
    for name, value in data.to_dict().items():
        if not isinstance(value, (list, tuple, np.ndarray)):
            continue
        if is_per_graph(data, name):
            bounds = edge_bounds(data)
            pieces = None if bounds is None else bounds.tolist()
            if pieces is not None and _are_edge_level(name, value, pieces, data._slice_dict["x"].tolist()):
                sequences[name] = value, pieces
        elif _are_edge_level(name, [value], [0, data.edge_index.size(1)], [0, data.x.size(0)]):
            sequences[name] = value, None
    return sequences


def _are_edge_level(name: str, values: Any, edges: list[int], nodes: list[int]) -> bool:
    lengths = [_length(value) for value in values]
    fits_edges, fits_nodes = (lengths == np.diff(bounds).tolist() for bounds in (edges, nodes))
    return fits_edges and ("edge" in name or not fits_nodes)


def selected(value: Any, keep: Flags, bounds: Bounds = None) -> Any:
    """The entries of the edges in ``keep``, in the form that they had."""
    if bounds is not None:
        return [selected(piece, part) for piece, part in zip(value, parted(keep, bounds), strict=True)]
    return value[keep] if isinstance(value, np.ndarray) else _like(value, compress(value, keep))


def removed_entries(value: Any, gone: Flags, bounds: Bounds) -> Any:
    """The entries of the edges in ``gone`` for :func:`merged`, which knows what was a tuple."""
    if bounds is not None:
        return [removed_entries(piece, part, None) for piece, part in zip(value, parted(gone, bounds), strict=True)]
    entries = selected(value, gone)
    return list(entries) if isinstance(entries, tuple) else entries


def lengthened(name: str, value: Any, more: int) -> Any:
    """With entries for added edges: 1 in an array of numbers, ``None`` in a list."""
    if more == 0:
        return value
    if not isinstance(value, np.ndarray):
        return _like(value, [*value, *[None] * more])
    is_number = value.dtype.kind in "biuf" and value[:1].size <= 1
    kind = f"{name} ({value.dtype} array)"
    require(is_number, f"edges were added, but there are no values for their {kind}; use space='existing'")
    return np.concatenate([value, np.ones((more, *value.shape[1:]), value.dtype)])


def merged(value: Any, others: Any, is_other: Flags, bounds: Bounds = None) -> Any:
    """Undo :func:`selected`.

    Args:
        value: The entries that stayed, followed by those of added edges.
        others: The entries that were removed.
        is_other: For every edge, whether it was removed.
        bounds: Where the edges of each graph began.
    """
    if bounds is not None:
        require(_length(value) == _length(others) == len(bounds) - 1, "there is not one sequence per graph")
        parts = parted(is_other, bounds)
        return [merged(a, b, part) for a, b, part in zip(value, others, parts, strict=True)]
    stayed = len(is_other) - int(is_other.sum())
    require(_length(value) >= stayed and _length(others) == len(is_other) - stayed, "there are too few entries")
    if isinstance(value, np.ndarray):
        out = np.empty((len(is_other), *value.shape[1:]), value.dtype)
        out[~is_other] = value[:stayed]
        try:
            out[is_other] = np.asarray(others, value.dtype).reshape(len(is_other) - stayed, *value.shape[1:])
        except (TypeError, ValueError, OverflowError) as error:
            raise GraphMendError("the entries that went do not fit those that stayed") from error
        return out
    kept, gone = iter(value), iter(others)
    return _like(value, (next(gone if other else kept) for other in is_other))


def parted(values: Flags, bounds: list[int]) -> list[Flags]:
    """An array of all edges as one array per graph."""
    return [values[a:b] for a, b in pairwise(bounds)]


def _like(value: list[Any] | tuple[Any, ...], entries: Iterable[Any]) -> list[Any] | tuple[Any, ...]:
    return tuple(entries) if isinstance(value, tuple) else list(entries)


def _length(value: Any) -> int:
    """-1 if it has none."""
    is_sized = isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)
    return len(value) if is_sized else -1
