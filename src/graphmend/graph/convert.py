"""Other forms in which PyG users keep the edges of a graph, turned into an edge list."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.utils import is_sparse, to_edge_index

from graphmend.errors import require

__all__ = ["with_edge_index"]


def with_edge_index(data: Data) -> Data:
    r"""A graph whose edges are in ``edge_index``, ``(2, E)``; ``data`` itself if they already are.

    A sparse matrix, ``adj_t`` or in place of ``edge_index``, is read as PyG's layers read it: transposed, so that the
    entry :math:`(i, j)` is the edge :math:`j \to i`. Edges come in the order of its rows, which is the order that
    ``ToSparseTensor`` brings other attributes of edges into. Its values become ``edge_weight``, or ``edge_attr`` where
    there are several per edge; if all values are 1, there are no weights. The matrix is left out of the copy, since it
    would be wrong once an edge changes.

    Args:
        data: A graph; anything else comes back as it is, for the checks to name it.

    Example:
        >>> adj_t = torch.tensor([[0.0, 0.5], [0.0, 0.0]]).to_sparse()
        >>> data = with_edge_index(Data(x=torch.ones(2, 1), adj_t=adj_t))
        >>> data.edge_index.tolist(), data.edge_weight.tolist()
        ([[1], [0]], [0.5])
    """
    if not isinstance(data, Data):
        return data
    edges, matrix = data.get("edge_index"), data.get("adj_t")
    if isinstance(edges, EdgeIndex):
        out = copy.copy(data)
        out.edge_index = edges.as_tensor()
        return with_edge_index(out)
    if matrix is None and not is_sparse(edges):
        return data
    out = copy.copy(data)
    if matrix is not None:
        del out.adj_t
    if edges is None or is_sparse(edges):
        _set_edges(out, edges if matrix is None else matrix, "edge_index" if matrix is None else "adj_t")
    return out


def _set_edges(data: Data, matrix: Any, name: str) -> None:
    kind = matrix.layout if isinstance(matrix, Tensor) else type(matrix).__name__
    require(
        is_sparse(matrix),
        f"{name} must be a sparse matrix in COO, CSR or CSC (got {kind}); set data.edge_index, which "
        "torch_geometric.utils.dense_to_sparse makes from a dense matrix",
    )
    shape = tuple((matrix.shape if isinstance(matrix, Tensor) else matrix.sizes())[:2])
    x = data.get("x")
    nodes = x.size(0) if isinstance(x, Tensor) and x.dim() > 0 else shape[0]
    require(shape == (nodes, nodes), f"{name} has shape {shape}, but there are {nodes} nodes; give it a row per node")
    if isinstance(matrix, Tensor):
        require(
            not matrix.is_meta, f"{name} is on the meta device, where tensors have no values; load its values first"
        )
        matrix = matrix.detach().to_sparse(layout=torch.sparse_coo).coalesce()
        ends, values = matrix.indices(), matrix.values()  # PyG's to_edge_index counts as a write into it
    else:
        ends, values = to_edge_index(matrix)
    data.edge_index = ends.flip(0)
    if values.dim() > 1:
        data.edge_attr = values
    elif not bool((values == 1).all()):
        data.edge_weight = values.to(x.dtype) if isinstance(x, Tensor) else values
