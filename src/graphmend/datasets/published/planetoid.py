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

from graphmend.datasets.catalogue import Dataset
from graphmend.datasets.readers.arrays import (
    AGAIN,
    ROWS,
    Array,
    compressed_rows,
    node_ids,
    plain_graph,
    read_named,
    undirected,
)
from graphmend.datasets.readers.sources import Source, find, locate
from graphmend.datasets.splits import MASKS, Splits
from graphmend.errors import GraphMendError, choose, require
from graphmend.io.files import BROKEN, first_line

__all__ = ["DATASETS", "planetoid", "planetoid_graph", "read_pickle", "row_normalise"]

PUBLISHED: dict[str, dict[str, Any]] = {
    "cora": {"nodes": 2708, "edges": 5278, "features": 1433, "classes": 7, "train": 140, "val": 500, "test": 1000},
    "citeseer": {"nodes": 3327, "edges": 4552, "features": 3703, "classes": 6, "train": 120, "val": 500, "test": 1000},
    "pubmed": {"nodes": 19717, "edges": 44324, "features": 500, "classes": 3, "train": 60, "val": 500, "test": 1000},
}
PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
_URL = "https://github.com/kimiyoung/planetoid/raw/master/data"


def planetoid(name: str, *, seed: int = 0, data_dir: str | Path | None = None, normalise: bool = True) -> Splits:
    """One of the graphs of `Yang, Cohen and Salakhutdinov <https://arxiv.org/abs/1603.08861>`_ as a transductive task.

    The split is the public one: 20 nodes per class to train on, 500 to validate, 1,000 to test. The three graphs share
    their tensors and differ in ``mask``; all carry ``train_mask``, ``val_mask`` and ``test_mask`` as well.

    Args:
        name: ``"cora"``, ``"citeseer"`` or ``"pubmed"``.
        seed: Not used; nothing here is random.
        data_dir: Where ``planetoid_<name>.npz`` or the published ``ind.<name>.*`` lie.
        normalise: Rows divided by their sums, see :func:`row_normalise`.
    """
    graph = planetoid_graph(name, data_dir)
    if normalise:
        graph.x = row_normalise(graph.x)
    classes = PUBLISHED[name]["classes"]
    graphs = {part: [name] for part in ("train", "val", "test")}
    meta = {"name": name, "classes": classes, "normalised": normalise, "graphs": graphs}
    return Splits.transductive(graph, meta=meta)


def row_normalise(x: Tensor) -> Tensor:
    r"""Every row divided by its sum where that is above one, :math:`x_i / \max(\sum_j x_{ij}, 1)`.

    This is ``NormalizeFeatures`` as it was up to PyG 2.0.3, which the published results of the robustness experiments
    rest on; later versions subtract the global minimum first.

    Example:
        >>> row_normalise(torch.tensor([[1.0, 3.0], [0.25, 0.25]]))
        tensor([[0.2500, 0.7500],
                [0.2500, 0.2500]])
    """
    return x / x.sum(dim=-1, keepdim=True).clamp(min=1.0)


def planetoid_graph(name: str, data_dir: str | Path | None = None) -> Data:
    """The graph with its raw features and the three masks, from our ``.npz`` or the published files."""
    choose("Planetoid graph", name, PUBLISHED)
    npz = f"planetoid_{name}.npz"
    found = find([npz, f"ind.{name}.graph"], data_dir)
    if found is None or found.name != npz:
        return _published_graph(name, data_dir)
    arrays = read_named(found, [*ROWS, "y", "edge_index", *MASKS])
    graph = plain_graph(found, arrays)
    for mask in MASKS:
        fits = arrays[mask].dtype == bool and arrays[mask].shape == (graph.x.size(0),)
        require(fits, f"{found}: {mask} is not one truth value per node; {AGAIN}")
        graph[mask] = torch.from_numpy(arrays[mask])
    return graph


def _published_graph(name: str, data_dir: str | Path | None) -> Data:
    """Training rows first, test rows put back in order; nodes without a row get zeros and class 0, as in PyG."""
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
    require(int(test.min()) >= rest.shape[0], f"{files['test.index']} lists training nodes; {AGAIN}")
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
        raise GraphMendError(f"{path} is not a list of node numbers ({first_line(error)}); {AGAIN}") from error
    require(ids.size > 0 and len(np.unique(ids)) == ids.size, f"{path} is empty or repeats a node; {AGAIN}")
    return node_ids(path, ids, 10_000_000)


def _rows(path: Path) -> Any:
    """A matrix of compressed rows, rebuilt from its arrays: what a pickle claims about itself is not trusted."""
    found = read_pickle(path)
    state = vars(found) if isinstance(found, sp.csr_matrix) else {}
    arrays: tuple[Any, Any, Any] = (state.get("data"), state.get("indices"), state.get("indptr"))
    shape = state.get("_shape", state.get("shape"))
    require(
        all(isinstance(array, np.ndarray) and array.dtype.kind in "fiu" for array in arrays) and shape is not None,
        f"{path} holds no sparse matrix of compressed rows; {AGAIN}",
    )
    matrix = compressed_rows(path, *arrays, shape)
    require(bool(np.isfinite(matrix.data).all()), f"{path} holds features that are not finite; {AGAIN}")
    return matrix


def _one_hot(path: Path) -> Array:
    found = read_pickle(path)
    fits = isinstance(found, np.ndarray) and found.ndim == 2 and found.dtype.kind in "biuf"
    require(fits, f"{path} holds no matrix of one-hot labels; {AGAIN}")
    array: Array = found
    return array


def _edges(path: Path, nodes: int) -> Tensor:
    found = read_pickle(path)
    require(isinstance(found, dict), f"{path} holds no dictionary of neighbours; {AGAIN}")
    try:
        pairs = np.array([(int(node), int(other)) for node, others in found.items() for other in others])
        source, target = pairs.reshape(-1, 2).T
    except (TypeError, ValueError, OverflowError) as error:
        raise GraphMendError(f"{path} holds no lists of node numbers ({first_line(error)}); {AGAIN}") from error
    return undirected(path, source, target, nodes)


def _latin1(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes into an old pickle; no other codec is admitted."""
    require(encoding in ("latin1", "latin-1"), f"a pickle asks for the codec {encoding!r}; {AGAIN}")
    return codecs.latin_1_encode(text)[0]


# All that the published files name, under the module names of old and new versions.
_RECONSTRUCT = np.zeros(1).__reduce__()[0]
ADMITTED: dict[tuple[str, str], Any] = {
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
    """Reads arrays, sparse matrices and dictionaries of lists; whatever else a pickle names is refused unseen."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise GraphMendError(f"it names {module}.{name}, which a file of arrays has no use for")
        return ADMITTED[module, name]


def read_pickle(path: Path) -> Any:
    """What a published pickle holds, provided that it is made of arrays, sparse matrices and lists only."""
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy finds the old way of writing a dtype deprecated
            return _Restricted(file, encoding="latin1").load()
    except GraphMendError as error:
        raise GraphMendError(f"{path} is not read: {error}; get it from {_URL}") from error
    except (*BROKEN, pickle.UnpicklingError, AttributeError, ImportError, IndexError, TypeError, MemoryError) as error:
        raise GraphMendError(f"{path} is not a readable pickle of arrays ({first_line(error)}); {AGAIN}") from error


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
