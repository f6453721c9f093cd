"""From arrays in files to tensors: ``.npz`` and MATLAB files, compressed rows, edge lists."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.io import loadmat
from scipy.io.matlab import MatReadError
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import GraphMendError, require
from graphmend.files.files import BROKEN, Array, first_line, open_arrays
from graphmend.lab.data.edges import undirected
from graphmend.lab.data.readers.sources import FETCH_AGAIN

PARTS = ("data", "indices", "indptr", "shape")
ROWS = tuple(f"x_{part}" for part in PARTS)


def read_mat(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """The named variables of a MATLAB file; the others are not read."""
    try:
        variables = loadmat(path, variable_names=list(names))
    except (*BROKEN, MatReadError, TypeError, IndexError, OverflowError, struct.error, MemoryError) as error:
        raise GraphMendError(f"{path} is not a readable MATLAB file ({first_line(error)}); {FETCH_AGAIN}") from error
    missing = [name for name in names if name not in variables]
    require(not missing, f"{path} has no variable {' and no '.join(missing)}; {FETCH_AGAIN}")
    return {name: variables[name] for name in names}


def read_named(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """The named arrays of an ``.npz`` and only those: published files hold pickles as well, which are never read."""
    with open_arrays(path, FETCH_AGAIN) as file:
        missing = [name for name in names if name not in file.files]
        arrays = {} if missing else {name: file[name] for name in names}
    require(not missing, f"{path} has no array {' and no '.join(missing)}; {FETCH_AGAIN}")
    return arrays


def array_names(path: Path) -> list[str]:
    """The names of the arrays in an ``.npz``."""
    with open_arrays(path, FETCH_AGAIN) as file:
        return list(file.files)


def compressed_rows(path: Path, data: Array, indices: Array, indptr: Array, shape: Any) -> Any:
    """A checked SciPy matrix of compressed rows with finite values."""
    try:
        size = tuple(int(n) for n in shape)
        matrix = sp.csr_matrix((data, indices.astype(np.int64), indptr.astype(np.int64)), shape=size)
        matrix.check_format(full_check=True)
    except (ValueError, TypeError, IndexError) as error:
        raise GraphMendError(f"{path} holds broken compressed rows ({first_line(error)}); {FETCH_AGAIN}") from error
    require(bool(np.isfinite(matrix.data).all()), f"{path} holds features that are not finite; {FETCH_AGAIN}")
    return matrix


def dense_rows(path: Path, data: Array, indices: Array, indptr: Array, shape: Any) -> Tensor:
    """Features stored as compressed rows, as a dense float32 tensor."""
    return torch.from_numpy(compressed_rows(path, data.astype(np.float32), indices, indptr, shape).toarray())


def row_normalise(x: Tensor) -> Tensor:
    r"""Every row divided by its sum if that exceeds one, :math:`x_i / \max(\sum_j x_{ij}, 1)`.

    This is ``NormalizeFeatures`` up to PyG 2.0.3, on which the published results of the robustness experiments rest;
    later versions subtract the global minimum first.

    Example:
        >>> row_normalise(torch.tensor([[1.0, 3.0], [0.25, 0.25]]))
        tensor([[0.2500, 0.7500],
                [0.2500, 0.2500]])
    """
    return x / x.sum(dim=-1, keepdim=True).clamp(min=1.0)


def node_ids(path: Path, ids: Array, nodes: int) -> Array:
    """Node numbers as int64, all within ``0 .. nodes - 1``."""
    ids = ids.astype(np.int64)
    bad = ids[(ids < 0) | (ids >= nodes)]
    if bad.size:
        raise GraphMendError(f"{path} names node {bad.flat[0]}, but the nodes are 0 to {nodes - 1}; {FETCH_AGAIN}")
    return ids


def undirected_edges(path: Path, source: Array, target: Array, nodes: int) -> Tensor:
    """Checked edges of a file, see :func:`graphmend.lab.data.edges.undirected`."""
    return undirected(node_ids(path, source, nodes) * nodes + node_ids(path, target, nodes), nodes)


def edge_pairs(path: Path, name: str, edges: Array) -> Array:
    """``edges``, provided that it has shape ``(2, E)``."""
    fits = edges.ndim == 2 and len(edges) == 2
    require(fits, f"{path}: {name} has shape {edges.shape}, not (2, E); {FETCH_AGAIN}")
    return edges


def node_labels(path: Path, labels: Array, nodes: int) -> Tensor:
    """One class per node."""
    require(labels.shape == (nodes,), f"{path} has labels of shape {labels.shape} for {nodes} nodes; {FETCH_AGAIN}")
    return torch.from_numpy(labels.astype(np.int64))


def plain_graph(path: Path, arrays: dict[str, Array]) -> Data:
    """The graph in our own layout: ``x`` as compressed rows, ``edge_index`` in both directions, ``y``."""
    x = dense_rows(path, *(arrays[name] for name in ROWS))
    source, target = edge_pairs(path, "edge_index", arrays["edge_index"])
    edge_index = undirected_edges(path, source, target, x.size(0))
    return Data(x=x, edge_index=edge_index, y=node_labels(path, arrays["y"], x.size(0)))
