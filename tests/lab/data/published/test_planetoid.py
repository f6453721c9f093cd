"""The Planetoid loader on small files in the published format."""

from __future__ import annotations

import os
import pickle
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphmend.errors import GraphMendError
from graphmend.graph.checks import check_graph
from graphmend.lab.data.published.planetoid import planetoid, planetoid_graph, read_pickle
from graphmend.lab.data.readers.arrays import row_normalise
from support.graphs import pairs
from support.real_data import nowhere as nowhere_fixture

Array = np.ndarray[Any, Any]


nowhere = nowhere_fixture


def old_pickle(value: Any) -> bytes:
    """As Python 2 with the NumPy and SciPy of 2016 wrote it: protocol 0, byte strings, the module names of then."""

    def array(a: Array) -> bytes:
        shape = b"".join(b"I%d\n" % n for n in a.shape)
        kind = repr(a.dtype.str[1:]).encode()
        content = a.tobytes().decode("latin1").encode("unicode_escape").replace(b"'", b"\\'")
        return (
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n("
            + shape
            + b"tcnumpy\ndtype\n(S"
            + kind
            + b"\nI0\nI1\ntR(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbI00\nS'"
            + content
            + b"'\ntb"
        )

    if isinstance(value, np.ndarray):
        return array(value) + b"."
    if isinstance(value, dict):
        out = b"ccollections\ndefaultdict\n(c__builtin__\nlist\ntR"
        for node, others in value.items():
            out += b"I%d\n(l%ss" % (node, b"".join(b"I%d\na" % other for other in others))
        return out + b"."
    shape = b"(I%d\nI%d\nt" % value.shape
    out = b"ccopy_reg\n_reconstructor\n(cscipy.sparse.csr\ncsr_matrix\nc__builtin__\nobject\nNtR(d"
    for name in ("data", "indices", "indptr"):
        out += b"S'%s'\n" % name.encode() + array(getattr(value, name)) + b"s"
    return out + b"S'_shape'\n" + shape + b"sb."


def new_pickle(value: Any) -> bytes:
    return pickle.dumps(value, protocol=2)


# Nodes 0 to 5 come first (two of them for training), 9, 6 and 8 are tested, 7 has neither features nor label.
PLAIN_X = np.arange(40, dtype=np.float32).reshape(10, 4) % 3


PLAIN_Y = np.array([0, 1, 2, 0, 1, 2, 0, 0, 2, 1])


TEST = [9, 6, 8]


NEIGHBOURS = {0: [1, 1, 0], 1: [2], 2: [], 3: [9], 9: [3, 6], 6: [8], 8: [7], 7: [], 4: [5], 5: []}


EDGES = {(0, 1), (1, 2), (3, 9), (6, 9), (6, 8), (7, 8), (4, 5)}


def write_planetoid(folder: Path, dump: Callable[[Any], bytes], name: str = "citeseer") -> None:
    hot = np.eye(3, dtype=np.int32)[PLAIN_Y]
    parts = {
        "x": sp.csr_matrix(PLAIN_X[:2]),
        "allx": sp.csr_matrix(PLAIN_X[:6]),
        "tx": sp.csr_matrix(PLAIN_X[TEST]),
        "y": hot[:2],
        "ally": hot[:6],
        "ty": hot[TEST],
        "graph": defaultdict(list, NEIGHBOURS),
    }
    for part, value in parts.items():
        (folder / f"ind.{name}.{part}").write_bytes(dump(value))
    (folder / f"ind.{name}.test.index").write_text("".join(f"{node}\n" for node in TEST))


@pytest.mark.parametrize("dump", [old_pickle, new_pickle])
def test_planetoid(nowhere: Path, dump: Callable[[Any], bytes]) -> None:
    write_planetoid(nowhere, dump)
    graph = planetoid_graph("citeseer", nowhere)
    check_graph(graph)
    x, y = PLAIN_X.copy(), PLAIN_Y.copy()
    x[7], y[7] = 0, 0
    assert np.array_equal(graph.x.numpy(), x) and np.array_equal(graph.y.numpy(), y)
    assert pairs(graph.edge_index) == EDGES and graph.num_edges == 2 * len(EDGES) and graph.is_undirected()
    masks = [graph[f"{part}_mask"].nonzero().view(-1).tolist() for part in ("train", "val", "test")]
    assert masks == [[0, 1], [2, 3, 4, 5], [6, 8, 9]]
    splits = planetoid("citeseer", data_dir=nowhere)
    assert torch.equal(splits.train[0].x, row_normalise(graph.x))
    assert torch.equal(planetoid("citeseer", data_dir=nowhere, normalise=False).test[0].x, graph.x)
    assert torch.equal(splits.val[0].mask, graph.val_mask) and splits.val[0].x is splits.test[0].x


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("harm",)


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(Evil()),
        b"cposix\nsystem\n(S'true'\ntR.",
        b"c__builtin__\neval\n(S'1'\ntR.",
        b"cbuiltins\ngetattr\n.",
    ],
    ids=["reduce", "system", "eval", "getattr"],
)
def test_a_pickle_that_names_anything_else_is_refused(
    content: bytes,
    nowhere: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_planetoid(nowhere, new_pickle)
    (nowhere / "ind.citeseer.allx").write_bytes(content)
    with pytest.raises(GraphMendError, match=r"ind\.citeseer\.allx is not read: it names .*; get it from https"):
        planetoid("citeseer", data_dir=nowhere)
    assert not (tmp_path / "harm").exists()


def test_broken_pickles(nowhere: Path) -> None:
    write_planetoid(nowhere, new_pickle)
    path = nowhere / "ind.citeseer.allx"
    whole = path.read_bytes()
    for length in (0, 1, 30, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(GraphMendError, match=r"ind\.citeseer\.allx is not a readable pickle of arrays"):
            read_pickle(path)
    matrix = sp.csr_matrix(PLAIN_X[:6])
    matrix.indices = matrix.indices.copy()
    matrix.indices[0] = 99  # would be read beyond the end
    for wrong, said in (
        (matrix, "broken compressed rows"),
        ([1, 2], "holds no sparse matrix"),
        (np.zeros(3), "holds no sparse matrix"),
        (sp.csr_matrix(PLAIN_X[:5]), "do not belong together"),
        (sp.csr_matrix(PLAIN_X[:6, :3]), "differ in their columns"),
        (sp.csr_matrix(PLAIN_X[:6] * np.nan), "not finite"),
    ):
        path.write_bytes(new_pickle(wrong))
        with pytest.raises(GraphMendError, match=said):
            planetoid("citeseer", data_dir=nowhere)
    path.write_bytes(whole)
    for graph, said in (({0: [99]}, "names node 99, but the nodes are 0 to 9"), ({0: "x"}, "no lists of node numbers")):
        (nowhere / "ind.citeseer.graph").write_bytes(new_pickle(graph))
        with pytest.raises(GraphMendError, match=said):
            planetoid("citeseer", data_dir=nowhere)
    for text, said in (("", "is empty"), ("6\n6\n", "repeats"), ("six", "not a list of node numbers")):
        (nowhere / "ind.citeseer.test.index").write_text(text)
        with pytest.raises(GraphMendError, match=said):
            planetoid("citeseer", data_dir=nowhere)
