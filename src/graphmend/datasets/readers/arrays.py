"""From arrays in files to tensors: ``.npz`` and MATLAB files, compressed rows, edge lists."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
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
from graphmend.io.files import BROKEN, first_line

Array = np.ndarray[Any, Any]

PARTS = ("data", "indices", "indptr", "shape")
ROWS = tuple(f"x_{part}" for part in PARTS)
AGAIN = "fetch the file again"


def read_mat(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """Some variables of a MATLAB file; the others are not read."""
    try:
        found = loadmat(path, variable_names=list(names))
    except (*BROKEN, MatReadError, TypeError, IndexError, OverflowError, struct.error, MemoryError) as error:
        raise GraphMendError(f"{path} is not a readable MATLAB file ({first_line(error)}); {AGAIN}") from error
    missing = [name for name in names if name not in found]
    require(not missing, f"{path} has no variable {' and no '.join(missing)}; {AGAIN}")
    return {name: found[name] for name in names}


def read_named(path: Path, names: Iterable[str]) -> dict[str, Array]:
    """Some arrays of an ``.npz`` and only those: published ones hold pickles beside them, which stay untouched."""
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            wanted = list(names)
            missing = [name for name in wanted if name not in file.files]
            arrays = {} if missing else {name: file[name] for name in wanted}
    except (*BROKEN, AttributeError) as error:
        raise GraphMendError(f"{path} is not a readable .npz of plain arrays ({first_line(error)}); {AGAIN}") from error
    require(not missing, f"{path} has no array {' and no '.join(missing)}; {AGAIN}")
    return arrays


def array_names(path: Path) -> list[str]:
    """What an ``.npz`` holds."""
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            return list(file.files)
    except (*BROKEN, AttributeError) as error:
        raise GraphMendError(f"{path} is not a readable .npz of plain arrays ({first_line(error)}); {AGAIN}") from error


def compressed_rows(path: Path, data: Array, indices: Array, indptr: Array, shape: Any) -> Any:
    """A checked SciPy matrix of compressed rows."""
    try:
        size = tuple(int(n) for n in shape)
        matrix = sp.csr_matrix((data, indices.astype(np.int64), indptr.astype(np.int64)), shape=size)
        matrix.check_format(full_check=True)
    except (ValueError, TypeError, IndexError) as error:
        raise GraphMendError(f"{path} holds broken compressed rows ({first_line(error)}); {AGAIN}") from error
    return matrix


def dense_rows(path: Path, data: Array, indices: Array, indptr: Array, shape: Any) -> Tensor:
    """Features kept as compressed rows, as a dense float32 tensor."""
    matrix = compressed_rows(path, data.astype(np.float32), indices, indptr, shape)
    require(bool(np.isfinite(matrix.data).all()), f"{path} holds features that are not finite; {AGAIN}")
    return torch.from_numpy(matrix.toarray())


def node_ids(path: Path, ids: Array, nodes: int) -> Array:
    """Node numbers as int64, all within ``0 .. nodes - 1``."""
    ids = ids.astype(np.int64)
    bad = ids[(ids < 0) | (ids >= nodes)]
    require(
        bad.size == 0,
        f"{path} names node {bad.flat[0] if bad.size else ''}, but the nodes are 0 to {nodes - 1}; {AGAIN}",
    )
    return ids


def undirected(path: Path, source: Array, target: Array, nodes: int) -> Tensor:
    """``edge_index`` with both directions of every edge, sorted, without duplicates and self-loops."""
    source, target = node_ids(path, source, nodes), node_ids(path, target, nodes)
    both = np.empty((2, source.size), dtype=np.int64)  # filled in place: of a large graph every copy counts
    for keys, (first, second) in zip(both, ((source, target), (target, source)), strict=True):
        np.multiply(first, nodes, out=keys)
        keys += second
    keys = both.reshape(-1)
    keys.sort()
    wanted = keys % (nodes + 1) != 0  # i * nodes + j is a multiple of nodes + 1 exactly where i = j
    wanted[1:] &= keys[1:] != keys[:-1]
    keys = keys[wanted]
    return torch.from_numpy(np.stack([keys // nodes, keys % nodes]))


def node_labels(path: Path, labels: Array, nodes: int) -> Tensor:
    """One class per node."""
    require(labels.shape == (nodes,), f"{path} has labels of shape {labels.shape} for {nodes} nodes; {AGAIN}")
    return torch.from_numpy(labels.astype(np.int64))


def plain_graph(path: Path, arrays: dict[str, Array]) -> Data:
    """The graph in our own layout: ``x`` as compressed rows, ``edge_index`` in both directions, ``y``."""
    x = dense_rows(path, *(arrays[name] for name in ROWS))
    edges = arrays["edge_index"]
    require(edges.ndim == 2 and len(edges) == 2, f"{path}: edge_index has shape {edges.shape}, not (2, E); {AGAIN}")
    return Data(
        x=x, edge_index=undirected(path, edges[0], edges[1], x.size(0)), y=node_labels(path, arrays["y"], x.size(0))
    )
