"""The citation graphs Cora, CiteSeer and PubMed with their official split."""

from __future__ import annotations

import codecs
import copyreg
import functools
import pickle
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import index_to_mask

from graphmend.errors import GraphMendError, choose, require
from graphmend.files.files import BROKEN, Array, first_line
from graphmend.lab.data.catalogue import Dataset
from graphmend.lab.data.readers.arrays import (
    ROWS,
    compressed_rows,
    node_ids,
    plain_graph,
    read_named,
    row_normalise,
    undirected_edges,
)
from graphmend.lab.data.readers.sources import FETCH_AGAIN, Source, locate
from graphmend.lab.data.splits import MASKS, Splits

__all__ = ["DATASETS", "planetoid", "planetoid_graph", "read_pickle"]

PUBLISHED: dict[str, dict[str, Any]] = {
    "cora": {"nodes": 2708, "edges": 5278, "features": 1433, "classes": 7, "train": 140, "val": 500, "test": 1000},
    "citeseer": {"nodes": 3327, "edges": 4552, "features": 3703, "classes": 6, "train": 120, "val": 500, "test": 1000},
    "pubmed": {"nodes": 19717, "edges": 44324, "features": 500, "classes": 3, "train": 60, "val": 500, "test": 1000},
}
PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
_URL = "https://github.com/kimiyoung/planetoid/raw/master/data"


def planetoid(name: str, *, seed: int = 0, data_dir: str | Path | None = None, normalise: bool = True) -> Splits:
    """One of the graphs of `Yang, Cohen and Salakhutdinov <https://arxiv.org/abs/1603.08861>`_ as a transductive task.

    The split is the public one: 20 nodes per class to train on, 500 to validate, 1,000 to test.

    Args:
        name: ``"cora"``, ``"citeseer"`` or ``"pubmed"``.
        seed: Not used; nothing here is random.
        data_dir: Where ``planetoid_<name>.npz`` or the published ``ind.<name>.*`` lie.
        normalise: Divide the rows of features by their sums, see :func:`row_normalise`.
    """
    graph = planetoid_graph(name, data_dir)
    if normalise:
        graph.x = row_normalise(graph.x)
    classes = PUBLISHED[name]["classes"]
    graphs = {part: [name] for part in ("train", "val", "test")}
    meta = {"name": name, "classes": classes, "normalised": normalise, "graphs": graphs}
    return Splits.transductive(graph, meta=meta)


def planetoid_graph(name: str, data_dir: str | Path | None = None) -> Data:
    """The graph with its raw features and the three masks, from our ``.npz`` or the published files."""
    choose("Planetoid graph", name, PUBLISHED)
    npz = f"planetoid_{name}.npz"
    path = locate(_source(name, PARTS[0]), data_dir, plain=npz)
    if path.name != npz:
        return _published_graph(name, data_dir)
    arrays = read_named(path, [*ROWS, "y", "edge_index", *MASKS])
    graph = plain_graph(path, arrays)
    for mask in MASKS:
        fits = arrays[mask].dtype == bool and arrays[mask].shape == (graph.x.size(0),)
        require(fits, f"{path}: {mask} is not one truth value per node; {FETCH_AGAIN}")
        graph[mask] = torch.from_numpy(arrays[mask])
    return graph


def _published_graph(name: str, data_dir: str | Path | None) -> Data:
    """The graph from the published pickles, with their rows in node order, as in PyG.

    Nodes without a row have zero features and class 0.
    """
    files = {part: locate(_source(name, part), data_dir) for part in PARTS}
    test = _test_ids(files["test.index"])
    rest, tail = _rows(files["allx"]), _rows(files["tx"])
    y_rest, y_tail, y_train = (_one_hot(files[part]) for part in ("ally", "ty", "y"))
    where = files["test.index"].parent
    fits = len(test) == tail.shape[0] == len(y_tail) and rest.shape[0] == len(y_rest) >= len(y_train)
    require(fits, f"the files ind.{name}.* in {where} do not belong together; fetch all of them again")
    same = rest.shape[1] == tail.shape[1] and y_rest.shape[1] == y_tail.shape[1]
    require(same, f"the files ind.{name}.* in {where} differ in their columns; fetch all of them again")
    nodes = max(rest.shape[0], int(test.max()) + 1)
    require(int(test.min()) >= rest.shape[0], f"{files['test.index']} lists training nodes; {FETCH_AGAIN}")
    x = np.zeros((nodes, rest.shape[1]), dtype=np.float32)
    x[: rest.shape[0]], x[test] = rest.toarray(), tail.toarray()
    y = np.zeros(nodes, dtype=np.int64)
    y[: len(y_rest)], y[test] = y_rest.argmax(axis=1), y_tail.argmax(axis=1)
    edge_index = _edges(files["graph"], nodes)
    val_end = min(len(y_train) + 500, rest.shape[0])
    graph = Data(x=torch.from_numpy(x), edge_index=edge_index, y=torch.from_numpy(y))
    parts = (torch.arange(len(y_train)), torch.arange(len(y_train), val_end), torch.from_numpy(test))
    for mask, members in zip(MASKS, parts, strict=True):
        graph[mask] = index_to_mask(members, nodes)
    return graph


def _source(name: str, part: str) -> Source:
    return Source(f"ind.{name}.{part}", f"{_URL}/ind.{name}.{part}")


def _test_ids(path: Path) -> Array:
    try:
        ids = np.array(path.read_text(encoding="utf-8").split(), dtype=np.int64)
    except (ValueError, OverflowError) as error:  # a UnicodeDecodeError is a ValueError
        raise GraphMendError(f"{path} is not a list of node numbers ({first_line(error)}); {FETCH_AGAIN}") from error
    require(ids.size > 0 and len(np.unique(ids)) == ids.size, f"{path} is empty or repeats a node; {FETCH_AGAIN}")
    return node_ids(path, ids, 10_000_000)


def _rows(path: Path) -> Any:
    """A matrix of compressed rows, rebuilt and checked, because an unpickled matrix may be inconsistent."""
    matrix = read_pickle(path)
    state = vars(matrix) if isinstance(matrix, sp.csr_matrix) else {}
    arrays: tuple[Any, Any, Any] = (state.get("data"), state.get("indices"), state.get("indptr"))
    shape = state.get("_shape", state.get("shape"))
    require(
        all(isinstance(array, np.ndarray) and array.dtype.kind in "fiu" for array in arrays) and shape is not None,
        f"{path} holds no sparse matrix of compressed rows; {FETCH_AGAIN}",
    )
    return compressed_rows(path, *arrays, shape)


def _one_hot(path: Path) -> Array:
    labels: Array = read_pickle(path)
    fits = isinstance(labels, np.ndarray) and labels.ndim == 2 and labels.dtype.kind in "biuf"
    require(fits, f"{path} holds no matrix of one-hot labels; {FETCH_AGAIN}")
    return labels


def _edges(path: Path, nodes: int) -> Tensor:
    neighbours = read_pickle(path)
    require(isinstance(neighbours, dict), f"{path} holds no dictionary of neighbours; {FETCH_AGAIN}")
    try:
        pairs = np.array([(int(node), int(other)) for node, others in neighbours.items() for other in others])
        source, target = pairs.reshape(-1, 2).T
    except (TypeError, ValueError, OverflowError) as error:
        raise GraphMendError(f"{path} holds no lists of node numbers ({first_line(error)}); {FETCH_AGAIN}") from error
    return undirected_edges(path, source, target, nodes)


def _latin1(text: str, encoding: str) -> bytes:
    """Decode bytes as Python 3 writes them into an old pickle; no other codec is allowed."""
    require(encoding in ("latin1", "latin-1"), f"a pickle asks for the codec {encoding!r}; {FETCH_AGAIN}")
    return codecs.latin_1_encode(text)[0]


# Everything that the published files refer to, under the module names of old and new versions.
_RECONSTRUCT = np.zeros(1).__reduce__()[0]
ALLOWED: dict[tuple[str, str], Any] = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _RECONSTRUCT for core in ("core", "_core")},
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    **{(f"scipy.sparse.{module}", "csr_matrix"): sp.csr_matrix for module in ("csr", "_csr")},
    ("collections", "defaultdict"): defaultdict,
    **{(module, "_reconstructor"): copyreg._reconstructor for module in ("copy_reg", "copyreg")},  # type: ignore[attr-defined]
    **{
        (module, name): kind
        for module in ("__builtin__", "builtins")
        for name, kind in (("list", list), ("object", object))
    },
    ("_codecs", "encode"): _latin1,
}


class _Restricted(pickle.Unpickler):
    """Reads arrays, sparse matrices and dictionaries of lists; anything else is refused before it is imported."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise GraphMendError(f"it names {module}.{name}, which no file of arrays needs")
        return ALLOWED[module, name]


def read_pickle(path: Path) -> Any:
    """The content of a published pickle, which may hold arrays, sparse matrices and lists only."""
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy has deprecated the way in which old files store a dtype
            return _Restricted(file, encoding="latin1").load()
    except GraphMendError as error:
        raise GraphMendError(f"{path} is not read: {error}; get it from {_URL}") from error
    except (*BROKEN, pickle.UnpicklingError, AttributeError, ImportError, IndexError, TypeError, MemoryError) as error:
        raise GraphMendError(
            f"{path} is not a readable pickle of arrays ({first_line(error)}); {FETCH_AGAIN}"
        ) from error


DATASETS = {
    name: Dataset(
        name,
        "none (abnormal features, structure attacks)",
        functools.partial(planetoid, name),
        files=((f"planetoid_{name}.npz",), tuple(f"ind.{name}.{part}" for part in PARTS)),
        published={name: PUBLISHED[name]},
        note="public split; 15 nodes without features and label have zeros and class 0"
        if name == "citeseer"
        else "public split",
    )
    for name in PUBLISHED
}
