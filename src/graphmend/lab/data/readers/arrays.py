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
from graphmend.lab.data.readers.sources import FETCH_AGAIN

__all__ = ["undirected"]

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
        >>> import torch
        >>> from graphmend.lab.data import row_normalise
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
    """Checked edges of a file, see :func:`graphmend.lab.data.readers.arrays.undirected`."""
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


def undirected(keys: Array, nodes: int, *, sort_by_row: bool = True) -> Tensor:
    """``edge_index`` with both directions of every edge, sorted, without duplicates and self-loops.

    Graphs of :math:`10^8` stored edges pass through here, so arrays are filled in place.

    Args:
        keys: The edges as ``source * nodes + target``, in any order and direction.
        nodes: Number of nodes.
        sort_by_row: Sort by source, then target; otherwise by target, then source.

    Example:
        >>> import numpy as np
        >>> from graphmend.lab.data import undirected
        >>> undirected(np.array([1, 2, 4]), 3)  # 0 -> 1, 0 -> 2 and a self-loop at 1
        tensor([[0, 0, 1, 2],
                [1, 2, 0, 0]])
    """
    both = np.empty(2 * keys.size, np.int64)
    both[: keys.size] = keys
    np.remainder(keys, nodes, out=both[keys.size :])
    both[keys.size :] *= nodes
    both[keys.size :] += keys // nodes
    both.sort()
    wanted = both % (nodes + 1) != 0  # i * nodes + j is a multiple of nodes + 1 exactly where i = j
    wanted[1:] &= both[1:] != both[:-1]
    if not wanted.all():
        both = both[wanted]
    edge_index = np.empty((2, both.size), np.int64)
    first, second = edge_index if sort_by_row else edge_index[::-1]
    np.floor_divide(both, nodes, out=first)
    np.remainder(both, nodes, out=second)
    return torch.from_numpy(edge_index)
