"""Every loader on small files in the format its data were published in."""

from __future__ import annotations

import json
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
from scipy.io import savemat
from torch_geometric.data import Data

from graphmend.datasets.published.citation import citation
from graphmend.datasets.published.fb100 import COLUMNS, SCHOOLS, fb100, one_hot
from graphmend.datasets.published.photo import photo_graph
from graphmend.datasets.published.planetoid import planetoid, planetoid_graph, read_pickle
from graphmend.datasets.published.twitch import COUNTRIES, twitch
from graphmend.datasets.readers.arrays import row_normalise, undirected_edges
from graphmend.datasets.readers.lazy import LazyGraphs
from graphmend.errors import GraphMendError
from graphmend.graph.checks import check_graph
from real_data import nowhere as nowhere_fixture

Array = np.ndarray[Any, Any]
nowhere = nowhere_fixture


def test_undirected_edges_are_sorted_without_loops_and_duplicates() -> None:
    source, target = np.array([2, 0, 1, 0, 3, 3], dtype=np.uint16), np.array([0, 1, 0, 1, 3, 2], dtype=np.uint16)
    edges = undirected_edges(Path("file"), source, target, 4)
    assert edges.tolist() == [[0, 0, 1, 2, 2, 3], [1, 2, 0, 0, 3, 2]] and edges.dtype == torch.int64
    assert undirected_edges(Path("file"), source[:0], target[:0], 4).shape == (2, 0)
    assert undirected_edges(Path("file"), source[4:5], target[4:5], 4).shape == (2, 0)


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


def pairs(edge_index: torch.Tensor) -> set[tuple[int, int]]:
    return {(u, v) for u, v in edge_index.t().tolist() if u < v}


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


def test_row_normalisation_is_the_old_rule() -> None:
    x = torch.tensor([[2.0, 6.0], [0.25, 0.5], [0.0, 0.0], [-1.0, 3.0]])
    expected = torch.tensor([[0.25, 0.75], [0.25, 0.5], [0.0, 0.0], [-0.5, 1.5]])
    assert torch.equal(row_normalise(x), expected)


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


def test_photo(nowhere: Path) -> None:
    adjacency = sp.csr_matrix(np.array([[1, 1, 0, 0], [1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]], dtype=np.float32))
    attributes = sp.csr_matrix(np.array([[1, 0, 2], [0, 0, 0], [0, 1, 0], [1, 1, 1]], dtype=np.float32))
    arrays = {
        f"{kind}_{part}": getattr(matrix, part)
        for kind, matrix in (("adj", adjacency), ("attr", attributes))
        for part in ("data", "indices", "indptr", "shape")
    }
    names = np.array(["lens", None], dtype=object)  # the published file holds such pickles; they are not touched
    np.savez(nowhere / "amazon_electronics_photo.npz", **arrays, labels=np.array([0, 7, 3, 1]), idx_to_attr=names)
    graph = photo_graph(nowhere)
    check_graph(graph)
    assert torch.equal(graph.x, torch.from_numpy((attributes.toarray() > 0).astype(np.float32)))
    assert pairs(graph.edge_index) == {(0, 1), (1, 3)} and graph.num_edges == 4
    assert graph.y.tolist() == [0, 7, 3, 1]
    np.savez(nowhere / "amazon_electronics_photo.npz", labels=np.zeros(4))
    with pytest.raises(GraphMendError, match="has no array adj_data and no adj_indices"):
        photo_graph(nowhere)


def write_twitch(folder: Path) -> None:
    for number, country in enumerate(COUNTRIES):
        place = folder / country
        place.mkdir(exist_ok=True)
        start = f"{country}/musae_{country}"
        rows = [
            "id,days,mature,views,partner,new_id",
            "77,1,True,5,False,2",
            "78,2,False,6,True,0",
            "79,3,True,1,False,1",
        ]
        if country == "FR":
            rows += ["79,3,True,1,False,1", "78,2,False,6,True,0"]
        (folder / f"{start}_target.csv").write_text("\n".join(rows) + "\n")
        (folder / f"{start}_edges.csv").write_text("from,to\n2,0\n0,1\n")
        lists = {"0": [3169, 5, 5], "2": [number], "1": []}
        (folder / f"{start}_features.json").write_text(json.dumps(lists))


def test_twitch(nowhere: Path) -> None:
    write_twitch(nowhere)
    splits = twitch(data_dir=nowhere)
    assert [len(part) for part in (splits.train, splits.val, splits.test)] == [1, 1, 5]
    assert splits.metric == "roc_auc" and splits.task == "binary"
    for number, graph in enumerate([*splits.train, *splits.val, *splits.test]):
        check_graph(graph)
        assert graph.y.tolist() == [0, 1, 1]  # by new_id
        assert graph.edge_index.tolist() == [[2, 0], [0, 1]]  # as listed
        assert graph.x.shape == (3, 3170) and graph.x.nonzero().tolist() == [[0, 5], [0, 3169], [2, number]]
    both = twitch(data_dir=nowhere, undirected=True).train[0].edge_index
    assert both.tolist() == [[0, 0, 1, 2], [1, 2, 0, 0]]


TWITCH_DAMAGE: dict[str, tuple[str, bytes, str]] = {
    "no column": ("target.csv", b"id,days,views\n1,2,3\n", "target.csv has no column 'mature' .its first line is"),
    "no edge column": ("edges.csv", b"from\n1\n", "edges.csv has no column 'to'"),
    "short line": ("edges.csv", b"from,to\n1\n", "edges.csv cannot be read as csv"),
    "node out of range": ("edges.csv", b"from,to\n1,3\n", "names node 3, but the nodes are 0 to 2"),
    "not a number": ("edges.csv", b"from,to\n1,x\n", "edges.csv cannot be read as csv .*'x'"),
    "not UTF-8": ("edges.csv", b"from,to\n1,\xff\xfe\n", "is not UTF-8 text"),
    "flag": ("target.csv", b"mature,new_id\nmaybe,0\n", "has mature = 'maybe', not True or False"),
    "numbering": ("target.csv", b"mature,new_id\nTrue,0\nTrue,7\n", "does not number its 2 nodes from 0"),
    "empty": ("target.csv", b"", "has no column 'mature'"),
    "no rows": ("target.csv", b"mature,new_id\n", "target.csv holds no rows"),
    "feature out of range": ("features.json", b'{"0": [3170]}', "names feature .3170., but they are 0 to 3169"),
    "feature node": ("features.json", b'{"9": [1]}', "names node 9"),
    "no JSON": ("features.json", b'{"0": [1', "is no JSON of feature lists"),
    "JSON list": ("features.json", b"[1]", "is no JSON of feature lists"),
    "features not UTF-8": ("features.json", b"\xff", "is not UTF-8 text"),
}


@pytest.mark.parametrize("kind, content, said", TWITCH_DAMAGE.values(), ids=TWITCH_DAMAGE.keys())
def test_damaged_twitch_files(nowhere: Path, kind: str, content: bytes, said: str) -> None:
    write_twitch(nowhere)
    (nowhere / f"ENGB/musae_ENGB_{kind}").write_bytes(content)
    with pytest.raises(GraphMendError, match=said) as caught:
        twitch(data_dir=nowhere)
    assert "fetch the file again" in str(caught.value) and "\n" not in str(caught.value)


def attributes_of(school: str, nodes: int) -> Array:
    rng = np.random.default_rng(sum(map(ord, school)))
    info = np.column_stack([rng.integers(0, 3, nodes) for _ in range(7)])
    info[:, COLUMNS["status"]] = rng.integers(0, 2, nodes)  # two values in all
    info[:, COLUMNS["year"]] = 2000 + len(school)
    return info


def write_school(folder: Path, school: str, nodes: int = 12, gender: int | None = None) -> Array:
    (folder / "facebook100").mkdir(exist_ok=True)
    info = attributes_of(school, nodes)
    if gender is not None:
        info[:, 1] = gender
    ring = np.roll(np.eye(nodes), 1, axis=1)
    savemat(
        folder / "facebook100" / f"{school}.mat",
        {"A": sp.csc_matrix(ring + ring.T), "local_info": info.astype(np.uint16)},
        do_compression=True,
    )
    return info


def test_facebook_with_all_schools(nowhere: Path) -> None:
    tables = {school: write_school(nowhere, school, 10 + i) for i, school in enumerate(SCHOOLS)}
    (nowhere / "facebook100/JohnsHopkins55.mat").rename(nowhere / "facebook100/Johns Hopkins55.mat")
    splits = fb100(data_dir=nowhere)
    assert splits.meta["name"] == "fb100" and splits.meta["stand_ins"] == {}
    assert sorted(splits.meta["schools"]) == sorted(SCHOOLS) and len(SCHOOLS) == 18
    assert splits.meta["graphs"]["test"] == ["Penn94", "Brown11", "Texas80"]
    values = {name: np.unique(np.concatenate([t[:, c] for t in tables.values()])) for name, c in COLUMNS.items()}
    width = sum(len(v) if len(v) > 2 else 1 for v in values.values())
    assert len(values["status"]) == 2 and width == splits.meta["features"]
    graphs = {"Penn94": splits.test[0], "JohnsHopkins55": splits.train[0], "Yale4": splits.val[1]}
    for school, graph in graphs.items():
        check_graph(graph)
        info = tables[school]
        assert graph.y.tolist() == [int(code == 2) for code in info[:, 1]]
        assert graph.num_edges == 2 * len(info) and graph.is_undirected()
        expected = np.concatenate(
            [info[:, :1] == 1, *[info[:, [c]] == values[name] for name, c in COLUMNS.items() if name != "status"]],
            axis=1,
        )
        assert np.array_equal(graph.x.numpy(), expected.astype(np.float32))


def test_facebook_with_stand_ins_and_other_triples(nowhere: Path) -> None:
    here = [school for school in SCHOOLS if school not in ("Texas80", "Reed98")]
    for school in (*here, "Oklahoma97", "Rutgers89"):
        write_school(nowhere, school)
    splits = fb100(data_dir=nowhere, triple=1)
    assert splits.meta["name"] == "fb100-standin" and splits.meta["stand_ins"] == {"Texas80": "Oklahoma97"}
    assert splits.meta["graphs"]["test"] == ["Penn94", "Brown11", "Oklahoma97"]
    assert splits.meta["graphs"]["train"] == ["Bingham82", "Duke14", "Princeton12"]
    assert sorted(splits.meta["schools"]) == sorted([*here, "Oklahoma97"])
    assert fb100(data_dir=nowhere, triple=2).meta["graphs"]["train"] == ["WashU32", "Brandeis99", "Carnegie49"]
    with pytest.raises(GraphMendError, match=r"triple must be 0, 1 or 2 .got 3"):
        fb100(data_dir=nowhere, triple=3)
    (nowhere / "facebook100/Yale4.mat").unlink()
    with pytest.raises(GraphMendError, match=r"cannot download .*Yale4\.mat.*put the file at facebook100/Yale4\.mat"):
        fb100(data_dir=nowhere)


def test_facebook_in_both_layouts_at_once(nowhere: Path) -> None:
    arrays: dict[str, Array] = {}
    for school in SCHOOLS:
        if school not in ("Penn94", "Texas80"):
            arrays[f"{school}_local_info"] = attributes_of(school, 12).astype(np.int32)
            arrays[f"{school}_edges"] = np.array([[0, 1], [1, 2]], dtype=np.uint16)
    np.savez(nowhere / "facebook100.npz", **arrays)
    for school in ("Penn94", "Texas80"):
        write_school(nowhere, school)
    splits = fb100(data_dir=nowhere)
    assert splits.meta["name"] == "fb100"
    assert splits.test[0].num_edges == 24 and splits.test[1].num_edges == 4
    assert splits.train[0].edge_index.dtype == torch.int64


def test_gender_is_not_among_the_features(nowhere: Path) -> None:
    for school in (*SCHOOLS[:8], *SCHOOLS[8:]):
        write_school(nowhere, school)
    before = fb100(data_dir=nowhere).test[0]
    for school in SCHOOLS:
        write_school(nowhere, school, gender=2)
    after = fb100(data_dir=nowhere).test[0]
    assert after.y.tolist() == [1] * 12 != before.y.tolist() and torch.equal(after.x, before.x)


def test_damaged_facebook_files(nowhere: Path) -> None:
    for school in SCHOOLS:
        write_school(nowhere, school)
    path = nowhere / "facebook100/Yale4.mat"
    whole = path.read_bytes()
    for content in (b"", b"MATLAB", whole[: len(whole) // 2], whole[:130]):
        path.write_bytes(content)
        with pytest.raises(GraphMendError, match=r"Yale4\.mat (is not a readable MATLAB file|has no variable)"):
            fb100(data_dir=nowhere)
    savemat(path, {"local_info": attributes_of("Yale4", 5)})
    with pytest.raises(GraphMendError, match=r"Yale4\.mat has no variable A; fetch"):
        fb100(data_dir=nowhere).val[1]
    savemat(path, {"local_info": np.zeros((3, 4))})
    with pytest.raises(GraphMendError, match="are not a table of seven columns"):
        fb100(data_dir=nowhere)
    savemat(path, {"local_info": attributes_of("Yale4", 5), "A": sp.csc_matrix(np.eye(4))})
    with pytest.raises(GraphMendError, match=r"A has shape \(4, 4\)"):
        fb100(data_dir=nowhere).val[1]


def test_one_hot_of_few_values() -> None:
    codes = np.zeros((3, 7), dtype=np.int64)
    codes[:, 5] = [1, 3, 3]
    x = one_hot(codes, {"year": np.array([1, 3]), "major": np.array([0])})
    assert x.tolist() == [[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]]


def test_lazy_graphs_are_lists_that_build_on_demand() -> None:
    built: list[int] = []

    def builder(index: int) -> Callable[[], Data]:
        def build() -> Data:
            built.append(index)
            return Data(x=torch.full((2, 1), float(index)))

        return build

    kept, passing = (LazyGraphs([builder(i) for i in range(3)], keep=keep) for keep in (True, False))
    assert isinstance(kept, list) and len(kept) == 3 and bool(kept) and not built
    assert kept[1] is kept[-2] and built == [1]
    assert [int(data.x[0]) for data in passing] == [0, 1, 2] and built == [1, 0, 1, 2]
    held = passing[2]
    assert passing[2] is held and built == [1, 0, 1, 2, 2]
    del held
    assert int(passing[2].x[0]) == 2 and len(built) == 6
    assert [int(data.x[0]) for data in [*kept[1:], *reversed(kept)]] == [1, 2, 2, 1, 0]
    assert len(kept + kept) == len(list(kept) + kept) == 6 and type(list(kept)) is list
    copied = pickle.loads(pickle.dumps(kept))
    assert type(copied) is list and len(copied) == 3
    with pytest.raises(IndexError):
        kept[3]
    assert "3 graphs" in repr(kept) and kept != passing


def write_citation(folder: Path) -> None:
    for name, seed in (("acmv9", 0), ("citationv1", 1)):
        rng = np.random.default_rng(seed)
        network = sp.csc_matrix(np.triu(rng.random((20, 20)) < 0.2) | np.eye(20, dtype=bool)).astype(np.uint8)
        group = np.zeros((20, 5), dtype=np.uint8)
        group[np.arange(20), np.arange(20) % 5] = 1
        group[0, 4] = 1  # two fields: the first counts
        savemat(
            folder / f"{name}.mat",
            {"network": network, "attrb": sp.csc_matrix(rng.integers(0, 3, (20, 7))), "group": group},
        )


def test_citation(nowhere: Path) -> None:
    write_citation(nowhere)
    there, back = citation(data_dir=nowhere), citation(data_dir=nowhere, source="Citationv1")
    for splits in (there, back):
        train, val, test = splits.train[0], splits.val[0], splits.test[0]
        for graph in (train, val, test):
            check_graph(graph)
            assert graph.is_undirected() and not graph.has_self_loops() and graph.x.shape == (20, 7)
        assert torch.equal(train.mask, ~val.mask) and int(val.mask.sum()) == 5 and "mask" not in test
        assert train.x is val.x and test.y.tolist() == [i % 5 for i in range(20)]
    assert torch.equal(there.train[0].x, back.test[0].x) and torch.equal(there.test[0].x, back.train[0].x)
    with pytest.raises(GraphMendError, match="unknown source graph 'dblp'; choose one of ACMv9, Citationv1"):
        citation(data_dir=nowhere, source="dblp")
    savemat(nowhere / "acmv9.mat", {"network": np.eye(3), "attrb": np.eye(3), "group": np.zeros((3, 5))})
    with pytest.raises(GraphMendError, match="does not give each of its 3 papers one of 5 fields"):
        citation(data_dir=nowhere)
