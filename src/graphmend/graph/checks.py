"""Checks of graphs; every message names the value and the remedy."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.data.storage import E_KEYS, N_KEYS

from graphmend.engine.adjacency import Adjacency
from graphmend.errors import require, shown
from graphmend.graph.edge_lists import number_of_graphs
from graphmend.graph.edits import edge_attribute_names
from graphmend.outputs import check_dense, check_floats


def check_order(model: Any, data: Any) -> None:
    """Raise if the graph was given before the model."""
    swapped = isinstance(data, nn.Module) and not isinstance(model, nn.Module)
    require(
        not swapped, f"the model comes first, then the graph (got a {type(model).__name__} as the model); swap them"
    )


def check_graph(data: Data, *, missing_allowed: bool = False) -> bool:
    """Raise :class:`~graphmend.GraphMendError` unless ``data`` is a graph with finite features and some valid edges.

    Args:
        data: The graph.
        missing_allowed: Whether features may be missing (NaN), as long as there are some.

    Returns:
        Whether some are missing.
    """
    check_structure(data)
    is_complete = is_finite(data.x)
    if not is_complete:
        _check_entries(data.x, missing_allowed)
    edges, weight = data.edge_index.size(1), data.get("edge_weight")
    require(edges > 0, "the graph has no edges; there is nothing to pass messages over, so nothing to mend")
    is_sound = weight is None or bool(torch.isfinite(weight).all())
    require(is_sound, "edge_weight holds non-finite values; replace or drop those edges")
    return not is_complete


def check_structure(data: Data) -> None:
    """Raise unless ``data`` is a graph whose attributes fit each other; the features themselves are not checked."""
    check_features(data)
    x, edge_index = data.x, data.get("edge_index")
    nodes = x.size(0)
    stored = data._store.get("num_nodes")
    require(
        stored is None or (isinstance(stored, Integral) and stored == nodes),
        f"x has {nodes} rows but num_nodes is {shown(stored)}; give one feature row per node",
    )
    check_edges(edge_index, nodes)
    require(
        edge_index.device == x.device,
        f"x is on {x.device} but edge_index on {edge_index.device}; move the graph with data.to(device)",
    )
    weight = data.get("edge_weight")
    if weight is not None:
        check_weight(weight, edge_index.size(1))
        require(
            weight.device == x.device,
            f"x is on {x.device} but edge_weight on {weight.device}; move the graph with data.to(device)",
        )
    y = data.get("y")
    require(
        y is None or (isinstance(y, Tensor) and y.shape[:1] in ((nodes,), (number_of_graphs(data),))),
        f"y has shape {tuple(getattr(y, 'shape', ()))} but the graph {nodes} nodes; give one label per node, "
        "or one per graph",
    )
    if y is not None:
        check_dense(y, "y")
        require(not y.is_complex(), f"y holds complex numbers ({y.dtype}); give classes")
    edges = edge_index.size(1)
    for names, number, kind in ((N_KEYS, nodes, "node"), (E_KEYS - {"edge_index"}, edges, "edge")):
        for name in names & set(data.keys()):  # PyG counts nodes and edges by whichever of them comes first
            check_rows(data[name], number, name, kind)
    for name in edge_attribute_names(data):
        check_rows(data[name], edges, name, "edge")


def check_rows(value: Any, number: int, name: str, kind: str) -> None:
    """Raise unless an attribute, if it is a tensor or an array, has one row for every node or edge."""
    if isinstance(value, Tensor):
        check_dense(value, name)
    if isinstance(value, Tensor | np.ndarray):
        rows = value.shape[0] if value.ndim > 0 else 0
        require(rows == number, f"{name} has {rows} rows but there are {number} {kind}s; give one per {kind}")


def check_features(data: Data) -> None:
    """Raise unless ``data`` is a graph with features, a floating-point ``(N, F)`` tensor with N > 0 and F > 0."""
    require(isinstance(data, Data), f"the graph must be a torch_geometric.data.Data (got {type(data).__name__})")
    x = data.get("x")
    require(isinstance(x, Tensor), f"the graph has no feature tensor x (got {type(x).__name__}); set data.x")
    check_floats(x, "x")
    wide = (
        f"; give x.flatten(1), and let the model begin with x.unflatten(1, {tuple(x.shape[1:])})" if x.dim() > 2 else ""
    )
    require(x.dim() == 2, f"x must have two dimensions, nodes x features (got shape {tuple(x.shape)}){wide}")
    require(x.size(0) > 0, "the graph is empty: x has no rows; pass a graph with at least one node")
    require(x.size(1) > 0, "the nodes have no features: x has no columns; pass at least one feature")


def _check_entries(x: Tensor, missing_allowed: bool) -> None:
    """Raise unless all entries are finite, or missing if they may be; the message names the first that is wrong."""
    wrong, kind = (torch.isinf(x), "infinite") if missing_allowed else (~torch.isfinite(x), "non-finite")
    if bool(wrong.any()):
        count = int(wrong.sum())
        require(False, f"x holds {count} {kind} values, first {first_entry(x, wrong)}; replace or impute them")
    require(
        not bool(x.isnan().all()), "x holds nothing but missing values (NaN); give features from which to fill them"
    )


def first_entry(x: Tensor, chosen: Tensor) -> str:
    """The first of some entries, for a message: ``x[3, 1] = nan``."""
    row, column = (int(i) for i in chosen.nonzero()[0])
    return f"x[{row}, {column}] = {float(x.detach()[row, column])}"


def is_finite(x: Tensor) -> bool:
    """Whether all entries are finite; the extremes reveal infinities and NaN without a mask as large as ``x``."""
    return bool(torch.isfinite(torch.stack(torch.aminmax(x.detach()))).all())


def check_edges(edge_index: Any, nodes: int, name: str = "edge_index") -> None:
    """Edges, or other pairs of nodes: a long ``(2, E)`` tensor with all ends in ``[0, nodes)``."""
    kind = type(edge_index).__name__
    require(isinstance(edge_index, Tensor), f"the graph has no {name} tensor (got {kind}); set data.{name}")
    check_dense(edge_index, name)
    shape = tuple(edge_index.shape)
    require(len(shape) == 2 and shape[0] == 2, f"{name} must have shape (2, edges) (got {shape})")
    require(
        edge_index.dtype == torch.long,
        f"{name} must be torch.int64 (got {edge_index.dtype}); convert it with {name}.long()",
    )
    if shape[1] == 0:
        return
    low, high = (int(end) for end in torch.aminmax(edge_index))
    bad = low if low < 0 else high
    require(
        low >= 0 and high < nodes,
        f"{name} names node {bad}, but the nodes are 0 to {nodes - 1}; drop such edges or add the nodes",
    )


def check_weight(weight: Any, edges: int) -> None:
    """Edge weights: a floating-point tensor of one value per edge."""
    require(isinstance(weight, Tensor), f"edge_weight must be a tensor (got {type(weight).__name__})")
    check_floats(weight, "edge_weight")
    require(
        tuple(weight.shape) == (edges,),
        f"edge_weight has shape {tuple(weight.shape)} but there are {edges} edges; give one weight per edge",
    )


def check_no_duplicates(adjacency: Adjacency) -> None:
    """Learning edges needs each of them once."""
    row, col = adjacency.row, adjacency.col
    same = (row[1:] == row[:-1]) & (col[1:] == col[:-1])
    if bool(same.any()):
        source, target = int(col[1:][same][0]), int(row[1:][same][0])
        require(
            False,
            f"edge_index lists {int(same.sum())} edges more than once, first {source} -> {target}; "
            "merge them with data.coalesce()",
        )
