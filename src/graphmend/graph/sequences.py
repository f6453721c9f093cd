"""Edge attributes that are lists, tuples or NumPy arrays instead of tensors; in a ``Batch``, one of them per graph."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress, pairwise
from typing import Any

import numpy as np
from torch_geometric.data import Data

from graphmend.errors import GraphMendError, require
from graphmend.graph.pieces import edge_bounds, is_per_graph

__all__ = ["edge_sequences", "lengthened", "merged", "parted", "removed_entries", "selected"]

Flags = np.ndarray[Any, np.dtype[np.bool_]]
Bounds = list[int] | None
"""Where the edges of each graph of a ``Batch`` begin, for a list with one sequence per graph; else ``None``."""


def edge_sequences(data: Data) -> dict[str, tuple[Any, Bounds]]:
    """Every edge-level attribute that is not a tensor, with the bounds by which it is divided among graphs.

    They have one entry per edge, as PyG has it. Where there are as many nodes as edges, "edge" must be in their name.
    """
    found: dict[str, tuple[Any, Bounds]] = {}
    for name, value in data.to_dict().items():
        if not isinstance(value, (list, tuple, np.ndarray)):
            continue
        if is_per_graph(data, name):
            bounds = edge_bounds(data)
            pieces = None if bounds is None else bounds.tolist()
            if pieces is not None and _are_edge_level(name, value, pieces, data._slice_dict["x"].tolist()):
                found[name] = value, pieces
        elif _are_edge_level(name, [value], [0, data.edge_index.size(1)], [0, data.x.size(0)]):
            found[name] = value, None
    return found


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
    """With entries for edges that come: 1 in an array of numbers, ``None`` in a list."""
    if more == 0:
        return value
    if not isinstance(value, np.ndarray):
        return _like(value, [*value, *[None] * more])
    known = value.dtype.kind in "biuf" and value[:1].size <= 1
    require(
        known, f"edges were added, but there are no values for their {name} ({value.dtype} array); use space='existing'"
    )
    return np.concatenate([value, np.ones((more, *value.shape[1:]), value.dtype)])


def merged(value: Any, others: Any, is_other: Flags, bounds: Bounds = None) -> Any:
    """Undo :func:`selected`.

    Args:
        value: The entries that stayed, followed by those of edges that came.
        others: The entries that went.
        is_other: For every edge whether it went.
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
