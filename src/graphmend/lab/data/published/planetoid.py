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
_URL = "https://github.com/kimiyoung/planetoid/raw/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data"
CHECKSUMS = {
    "ind.cora.x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
    "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    "ind.citeseer.x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
    "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    "ind.pubmed.x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
    "ind.pubmed.tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
    "ind.pubmed.allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
    "ind.pubmed.y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
    "ind.pubmed.ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
    "ind.pubmed.ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
    "ind.pubmed.graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
    "ind.pubmed.test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
}
"""SHA-256 of the published files at that commit."""


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
    """The graph with its raw features and the three masks, from our ``.npz`` or the published files.

    Example:
        >>> from graphmend.lab.data import DATASETS, missing_files, planetoid_graph
        >>> if not missing_files(DATASETS["cora"]):  # its files have been fetched
        ...     assert planetoid_graph("cora").num_nodes == 2708
    """
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
    file = f"ind.{name}.{part}"
    return Source(file, f"{_URL}/{file}", CHECKSUMS[file])


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
