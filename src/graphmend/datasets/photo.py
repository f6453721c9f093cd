"""Amazon-Photo, and what every graph that is kept as compressed rows in a file needs on its way to tensors."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.datasets.sources import Source, find, locate
from graphmend.errors import GraphMendError, require
from graphmend.files import BROKEN, first_line

__all__ = ["PHOTO", "array_names", "dense_rows", "node_ids", "photo_graph", "read_named", "undirected"]

Array = np.ndarray[Any, Any]

NPZ = "amazon_photo.npz"
PHOTO = Source(
    "amazon_electronics_photo.npz",
    "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/amazon_electronics_photo.npz",
)


def photo_graph(data_dir: str | Path | None = None) -> Data:
    """The co-purchase graph of photo equipment of `Shchur et al. <https://arxiv.org/abs/1811.05868>`_.

    7,650 products, 119,081 undirected edges, 745 binary words, 8 classes; no split belongs to it. It is read from
    ``amazon_photo.npz`` or, as published, from ``amazon_electronics_photo.npz``. Self-loops are dropped.
    """
    found = find([NPZ, PHOTO.path], data_dir)
    if found is not None and found.name == NPZ:
        return plain_graph(found, read_named(found, ["y", "edge_index", *_ROWS]))
    path = found or locate(PHOTO, data_dir)
    arrays = read_named(path, ["labels", *(f"{kind}_{part}" for kind in ("adj", "attr") for part in _PARTS)])
    x = dense_rows(path, *(arrays[f"attr_{part}"] for part in _PARTS))
    adjacency = compressed_rows(path, *(arrays[f"adj_{part}"] for part in _PARTS)).tocoo()
    edge_index = undirected(path, adjacency.row, adjacency.col, x.size(0))
    labels = _labels(path, arrays["labels"], x.size(0))
    return Data(x=(x > 0).float(), edge_index=edge_index, y=labels)


def plain_graph(path: Path, arrays: dict[str, Array]) -> Data:
    """The graph in our own layout: ``x`` as compressed rows, ``edge_index`` in both directions, ``y``."""
    x = dense_rows(path, *(arrays[name] for name in _ROWS))
    edges = arrays["edge_index"]
    require(edges.ndim == 2 and len(edges) == 2, f"{path}: edge_index has shape {edges.shape}, not (2, E); {AGAIN}")
    return Data(
        x=x, edge_index=undirected(path, edges[0], edges[1], x.size(0)), y=_labels(path, arrays["y"], x.size(0))
    )


_PARTS = ("data", "indices", "indptr", "shape")
_ROWS = tuple(f"x_{part}" for part in _PARTS)
AGAIN = "fetch the file again"


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
    proper = source != target
    source, target = source[proper], target[proper]
    keys = np.unique(np.concatenate([source * nodes + target, target * nodes + source]))
    return torch.from_numpy(np.stack([keys // nodes, keys % nodes]))


def _labels(path: Path, labels: Array, nodes: int) -> Tensor:
    require(labels.shape == (nodes,), f"{path} has labels of shape {labels.shape} for {nodes} nodes; {AGAIN}")
    return torch.from_numpy(labels.astype(np.int64))
