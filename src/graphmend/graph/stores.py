"""The contents of a ``HeteroData``, by node type and by edge type, and checks of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import is_sparse

from graphmend.errors import GraphMendError, listed, require, whole_number
from graphmend.graph.checks import check_edges, check_features, check_graph, check_weight
from graphmend.outputs import FLOATS, check_dense

__all__ = [
    "EdgeType",
    "check_hetero",
    "check_stores",
    "edge_name",
    "feature_types",
    "node_count",
    "own_edge_types",
    "private_copy",
    "with_features",
]

EdgeType = tuple[str, str, str]


def edge_name(edge_type: EdgeType) -> str:
    """An edge type as one word, ``author__writes__paper``, as PyG writes it."""
    return "__".join(edge_type)


def feature_types(data: HeteroData) -> list[str]:
    """The node types with floating-point features; whole numbers are looked up in tables and left alone."""
    stores = {kind: data[kind].get("x") for kind in data.node_types}
    return [kind for kind, x in stores.items() if isinstance(x, Tensor) and x.dtype in FLOATS]


def own_edge_types(data: HeteroData, node_type: str) -> list[EdgeType]:
    """The edge types from a node type to itself, those with the most edges first."""
    own = [kind for kind in data.edge_types if kind[0] == kind[2] == node_type]
    return sorted(own, key=lambda kind: -int(data[kind].edge_index.size(1)))


def node_count(data: HeteroData, node_type: str) -> int:
    """The number of nodes of a type, from its features or from what the store says."""
    count = data[node_type].num_nodes
    require(
        count is not None, f"nobody knows how many nodes of the type {node_type!r} there are; set num_nodes or x on it"
    )
    return whole_number(f"num_nodes of node type {node_type!r}", count, 0)


def check_hetero(data: HeteroData, *, missing_allowed: bool = False) -> None:
    """Raise :class:`~graphmend.GraphMendError` unless the graph is sound; the message names the type.

    Args:
        data: The graph.
        missing_allowed: Whether features may be missing (NaN).
    """
    check_stores(data)
    for kind in feature_types(data):
        with _named(f"node type {kind!r}"):
            x = data[kind].x
            loop = torch.zeros(2, 1, dtype=torch.long, device=x.device)  # edges are looked at by type
            check_graph(Data(x=x, edge_index=loop), missing_allowed=missing_allowed)
    for edge_type in data.edge_types:
        weight = data[edge_type].get("edge_weight")
        sound = weight is None or bool(torch.isfinite(weight).all())
        name = edge_name(edge_type)
        require(sound, f"edge type {name!r}: edge_weight holds non-finite values; replace or drop those edges")
    edges = sum(data[edge_type].edge_index.size(1) for edge_type in data.edge_types)
    require(edges > 0, "the graph has no edges; there is nothing to pass messages over, so nothing to mend")


def check_stores(data: HeteroData) -> None:
    """Raise unless the attributes of every type fit each other; the features themselves are not checked."""
    given = type(data).__name__
    require(isinstance(data, HeteroData), f"the graph must be a torch_geometric.data.HeteroData (got {given})")
    kinds = feature_types(data)
    types = listed(data.node_types) or "none"
    require(len(kinds) > 0, f"no node type has floating-point features x (the types are {types}); set data[type].x")
    for kind in kinds:
        with _named(f"node type {kind!r}"):
            check_features(Data(x=data[kind].x))
    places = {str(data[kind].x.device) for kind in kinds}
    require(len(places) == 1, f"the features are on {listed(places)}; move the graph with data.to(device)")
    for edge_type in data.edge_types:
        with _named(f"edge type {edge_name(edge_type)!r}"):
            _check_edge_store(data, edge_type)


def _check_edge_store(data: HeteroData, edge_type: EdgeType) -> None:
    store, (source, _, target) = data[edge_type], edge_type
    edge_index = store.get("edge_index")
    has_matrix = store.get("adj_t") is not None or is_sparse(edge_index)
    require(not has_matrix, "its edges are a sparse matrix; keep them as edge_index, without ToSparseTensor")
    check_edges(edge_index, max(node_count(data, source), node_count(data, target)))
    for end, kind in zip(edge_index, (source, target), strict=True):
        check_edges(end.expand(2, -1), node_count(data, kind))
    weight = store.get("edge_weight")
    if weight is not None:
        check_weight(weight, edge_index.size(1))
    for name, value in store.items():
        if isinstance(value, Tensor) and value.shape[:1] == (edge_index.size(1),):
            check_dense(value, name)  # entries of edges are left out one by one


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except GraphMendError as error:
        raise GraphMendError(f"{name}: {error}") from error


def private_copy(data: HeteroData) -> HeteroData:
    """A copy that a model may write into, with plain tensors of its own."""

    def cloned(value: Any) -> Any:
        return value.detach().clone() if isinstance(value, Tensor) else value

    with torch.inference_mode(False):
        out = copy.copy(data)
        for store in out.stores:
            for name, value in store.items():
                store[name] = cloned(value)
    return out


def with_features(data: HeteroData, features: dict[str, Tensor]) -> HeteroData:
    """A copy with other features of some node types; everything else is shared."""
    out = copy.copy(data)
    for kind, x in features.items():
        out[kind].x = x
    return out
