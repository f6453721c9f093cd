"""Every file of a graph ends in a valid ``Data`` or in one sentence, and what is saved comes back as it was."""

from __future__ import annotations

import io
import logging
import string
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.data.storage import GlobalStorage

from graphmend import GraphMendError
from graphmend.files.graph_files import load_graph, save_graph
from graphmend.graph.checks import check_graph

XE: dict[str, Any] = {"x": np.ones((5, 4), np.float32), "edge_index": np.array([[0, 1], [1, 2]])}


def graph(**more: Any) -> Data:
    return Data(x=torch.arange(20.0).view(5, 4), edge_index=torch.tensor([[0, 1], [1, 2]]), **more)


def npz(folder: Path, entries: dict[str, bytes] | None = None, **arrays: Any) -> Path:
    """Arrays under any name, and further entries."""
    path = folder / "g.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in {**XE, **arrays}.items():
            buffer = io.BytesIO()
            np.save(buffer, array, allow_pickle=True)
            archive.writestr(f"{name}.npy", buffer.getvalue())
        for name, content in (entries or {}).items():
            archive.writestr(name, content)
    return path


def complaint(path: Path) -> str:
    with pytest.raises(GraphMendError) as caught:
        load_graph(path)
    text = str(caught.value)
    assert text.isprintable() and len(text) < 500
    return text


CONVERTED: dict[str, tuple[Any, torch.dtype]] = {
    "big-endian floats": (np.arange(5, dtype=">f8"), torch.float64),
    "big-endian integers": (np.arange(5, dtype=">i4"), torch.int32),
    "long double": (np.arange(5, dtype=np.longdouble), torch.float64),
    "long complex": (np.arange(5, dtype=np.clongdouble), torch.complex128),
    "complex": (np.arange(5, dtype=np.complex64), torch.complex64),
    "half": (np.arange(5, dtype=np.float16), torch.float16),
    "bytes": (np.arange(5, dtype=np.uint8), torch.uint8),
    "wide unsigned": (np.arange(5, dtype=np.uint32), torch.int64),
    "one number": (np.float32(3), torch.float32),
    "no numbers": (np.empty((0, 3)), torch.float64),
    "columns first": (np.asfortranarray(np.arange(6.0).reshape(2, 3)), torch.float64),
}


@pytest.mark.parametrize("case", CONVERTED)
def test_arrays_that_torch_does_not_have(case: str, tmp_path: Path) -> None:
    array, dtype = CONVERTED[case]
    found = load_graph(npz(tmp_path, extra=array)).extra
    assert found.dtype == dtype and tuple(found.shape) == array.shape and found.is_contiguous()
    assert found.tolist() == array.tolist()


def test_edges_and_labels_of_any_integer_type(tmp_path: Path) -> None:
    for kind in (np.uint8, np.int8, ">i2", np.uint16, np.int32, ">u4", np.uint64):
        edges, labels = XE["edge_index"].astype(kind), np.arange(5).astype(kind)
        data = load_graph(npz(tmp_path, edge_index=edges, y=labels))
        assert data.edge_index.dtype == data.y.dtype == torch.int64 and data.y.tolist() == [0, 1, 2, 3, 4]


def test_a_truth_value_is_true_or_false(tmp_path: Path) -> None:
    strange = np.array([0, 1, 2, 255, 0], np.uint8).view(np.bool_)
    mask = load_graph(npz(tmp_path, train_mask=strange)).train_mask
    assert mask.view(torch.uint8).tolist() == [0, 1, 1, 1, 0]


def test_entries_that_are_no_arrays_are_left_aside(tmp_path: Path) -> None:
    path = npz(tmp_path, {"README.txt": b"hello", "folder/": b"", "picture.png": b"\x89PNG"})
    assert set(load_graph(path).keys()) == {"x", "edge_index"}


def test_any_name_that_pyg_does_not_need_itself(tmp_path: Path) -> None:
    data = load_graph(npz(tmp_path, **{"my mask": np.ones(5), "kwargs": np.ones(1), "a/b.npy": np.ones(2), "class": 1}))
    assert data["my mask"].shape == (5,) and {"kwargs", "a/b.npy", "class"} <= set(data.keys())
    assert load_graph(npz(tmp_path, num_nodes=np.array(5))).num_nodes == 5


REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    **{
        f"name {name!r}": (lambda d, name=name: npz(d, **{name: np.ones(5)}), "an attribute cannot have the name")
        for name in ("self", "keys", "num_edges", "to", "_store", "__class__", "items", "", "\x1b[31mred")
    },
    "number of nodes": (lambda d: npz(d, num_nodes=np.array(7)), "x has 5 rows but num_nodes is 7"),
    "numbers of nodes": (lambda d: npz(d, num_nodes=np.array([5, 5])), "num_nodes is a Tensor, not one whole number"),
    "number of nodes as text": (lambda d: npz(d, num_nodes=np.array("5")), "'num_nodes' holds text, not numbers"),
    "text": (lambda d: npz(d, names=np.array(["a", "b"])), "'names' holds text, not numbers; convert it or leave it"),
    "dates": (lambda d: npz(d, t=np.array(["2020-01-01"], "M8[D]")), "'t' holds datetime64[D], not numbers"),
    "records": (lambda d: npz(d, r=np.zeros(2, [("a", "f4"), ("b", "i4")])), "'r' holds records, not numbers"),
    "another version of arrays": (lambda d: npz(d, {"z.npy": b"\x93NUMPY\x03\x00"}), "not a readable .npz"),
    "objects": (lambda d: npz(d, o=np.array([print], object)), "'o' holds Python objects"),
    "complex features": (lambda d: npz(d, x=np.ones((5, 4), complex)), "x holds complex numbers"),
    "features beyond float64": (lambda d: npz(d, x=np.full((5, 4), np.longdouble("1e4000"))), "20 infinite values"),
    "integers beyond int64": (lambda d: npz(d, big=np.array([2**63], np.uint64)), "'big' holds integers above 2^63"),
    "no array": (lambda d: npz(d, {"z.npy": b"hello"}), "not a readable .npz"),
    "an empty entry": (lambda d: npz(d, {"z.npy": b""}), "not a readable .npz"),
    "a damaged note": (lambda d: npz(d, {"graphmend.json": b"{"}), "its graphmend.json is damaged"),
    "another note": (lambda d: npz(d, {"graphmend.json": b"[]"}), "not of the format graphmend-graph-1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_arrays_that_are_refused(case: str, tmp_path: Path) -> None:
    make, expected = REFUSED[case]
    assert expected in complaint(make(tmp_path))


@pytest.mark.parametrize("note", ['{"a": "complex256"}', '{"x": "float64"}', '{"x": ["float32"]}', "3"])
def test_types_that_a_note_cannot_name(note: str, tmp_path: Path) -> None:
    content = f'{{"format": "graphmend-graph-1", "types": {note}, "values": {{}}}}'
    assert "g.npz" in complaint(npz(tmp_path, {"graphmend.json": content.encode()}))


def test_an_encrypted_archive(tmp_path: Path) -> None:
    raw = bytearray(npz(tmp_path).read_bytes())
    for mark, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        place = raw.find(mark)
        while place >= 0:
            raw[place + offset] |= 1
            place = raw.find(mark, place + 1)
    (tmp_path / "g.npz").write_bytes(raw)
    assert "is encrypted; decrypt it first" in complaint(tmp_path / "g.npz")


def test_an_unusual_compression_and_two_entries_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("x.npy", b"1")
    assert "unusual method" in complaint(path)
    with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("x.npy", b"1")
        archive.writestr("x.npy", b"2")
    assert "two entries of one name" in complaint(path)


class Own(Data):
    """A class that a file may not name."""


def torch_file(folder: Path, value: object, **options: Any) -> Path:
    torch.save(value, folder / "g.pt", **options)
    return folder / "g.pt"


def quantised() -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch will drop them one day
        return torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)


def with_store(store: object) -> Data:
    data = graph()
    data.__dict__["_store"] = store
    return data


def with_mapping(mapping: Any) -> Data:
    data = graph()
    data._store._mapping = mapping
    return data


TORCH: dict[str, tuple[Callable[[], Any], str]] = {
    "meta": (lambda: graph(a=torch.ones(2, device="meta")), "'a' is on the device meta, so it has no values"),
    "float8": (lambda: graph(a=torch.ones(2).to(torch.float8_e4m3fn)), "'a' holds torch.float8_e4m3fn; convert it"),
    "float8 features": (lambda: Data(x=graph().x.to(torch.float8_e5m2), edge_index=graph().edge_index), "float8"),
    "quantised": (lambda: graph(a=quantised()), "quantised; convert it with dequantize()"),
    "sparse edges": (lambda: Data(x=graph().x, edge_index=torch.eye(5).to_sparse()), "'edge_index' is stored as"),
    "a list": (lambda: [graph()], "holds a list, not a torch_geometric.data.Data"),
    "a dictionary": (lambda: graph().to_dict(), "holds a dict, not a torch_geometric.data.Data"),
    "a class of one's own": (lambda: Own(x=torch.ones(2, 2)), "it holds test_graph_files.Own"),
    "a batch": (lambda: Batch.from_data_list([graph(), graph()]), "it holds torch_geometric.data.batch."),
    "an array": (lambda: graph(a=np.ones(3)), "it holds numpy"),
    "no storage": (lambda: with_store(3), "without attributes"),
    "names that are numbers": (lambda: with_mapping({3: torch.ones(2)}), "without attributes"),
    "a name of PyG": (lambda: with_mapping({**graph()._store._mapping, "to": 3}), "cannot have the name 'to'"),
    "number of nodes": (lambda: graph(num_nodes="five"), "num_nodes is a str"),
    "labels as a list": (lambda: graph(y=[1, 2]), "y has shape ()"),
}


@pytest.mark.parametrize("case", TORCH)
def test_torch_files_that_are_refused(case: str, tmp_path: Path) -> None:
    make, expected = TORCH[case]
    assert expected in complaint(torch_file(tmp_path, make()))


def test_a_file_from_before_torch_1_6(tmp_path: Path) -> None:
    path = torch_file(tmp_path, graph(), _use_new_zipfile_serialization=False)
    assert "was not written by torch.save of version 1.6 or later" in complaint(path)


def test_a_flipped_bit_in_a_torch_file_is_found(tmp_path: Path) -> None:
    """Torch itself reads past it."""
    path = torch_file(tmp_path, graph())
    raw = path.read_bytes()
    place = raw.index(graph().x.numpy().tobytes()) + 5
    path.write_bytes(raw[:place] + bytes([raw[place] ^ 4]) + raw[place + 1 :])
    assert not torch.equal(torch.load(path, weights_only=False).x, graph().x)
    assert "Bad CRC-32" in complaint(path)


def test_edges_in_a_sparse_matrix_alone_become_an_edge_list(tmp_path: Path) -> None:
    matrix = torch.tensor([[0.0, 0.5], [0.0, 0.0]]).to_sparse_csr()
    data = load_graph(torch_file(tmp_path, Data(x=torch.ones(2, 3), adj_t=matrix)))
    assert data.edge_index.tolist() == [[1], [0]] and data.edge_weight.tolist() == [0.5] and "adj_t" not in data
    path = torch_file(tmp_path, Data(x=torch.ones(3, 3), adj_t=matrix))
    assert r"adj_t has shape (2, 2), but there are 3 nodes" in complaint(path)


def test_what_is_unusual_but_sound(tmp_path: Path) -> None:
    rotating = torch.view_as_complex(torch.arange(4.0).view(2, 2))
    more = {"conj": rotating.conj(), "negative": rotating.clone().conj().imag, "t": torch.arange(6).view(2, 3).t()}
    data = load_graph(
        torch_file(tmp_path, graph(weight=nn.Parameter(torch.ones(2)), adj=torch.eye(5).to_sparse(), **more))
    )
    assert not data.conj.is_conj() and data.conj.tolist() == [-1j, 2 - 3j]
    assert not data.negative.is_neg() and data.negative.tolist() == [-1, -3]
    assert type(data.weight) is Tensor and not data.weight.requires_grad
    assert data.t.is_contiguous() and data.t.shape == (3, 2) and data.adj.layout == torch.sparse_coo


PLAIN = {"name": "Cora", "k": 3, "rate": 0.5, "is_new": True, "names": ["a", "b"], "about": {"year": [2023, None]}}


@pytest.mark.parametrize("ending", [".npz", ".pt", ".pth", ".NPZ"])
def test_attributes_that_are_no_tensors_are_kept(ending: str, tmp_path: Path) -> None:
    path, again = tmp_path / "g.pt", tmp_path / f"again{ending}"
    torch.save(graph(**PLAIN), path)
    save_graph(again, load_graph(path))
    for file in (path, again):
        found = load_graph(file).to_dict()
        assert {name: found[name] for name in PLAIN} == PLAIN
        assert {name: type(found[name]) for name in PLAIN} == {name: type(value) for name, value in PLAIN.items()}


def test_what_a_file_cannot_hold_is_left_out_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = graph(pair=(1, 2), parts=[torch.ones(1)], adj=torch.eye(5).to_sparse(), thing=print, kept="yes")
    with caplog.at_level(logging.WARNING, "graphmend"):
        save_graph(tmp_path / "g.npz", data)
        save_graph(tmp_path / "g.pt", data)
    assert [record.message.partition("left out: ")[2] for record in caplog.records] == [
        "pair, parts, adj, thing",
        "thing",
    ]
    assert set(load_graph(tmp_path / "g.npz").keys()) == {"x", "edge_index", "kept"}
    assert load_graph(tmp_path / "g.pt").pair == (1, 2)


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    sparse = Data(x=torch.eye(5).to_sparse(), edge_index=graph().edge_index)
    for data, name, expected in [
        (graph(), "g.csv", "unknown ending of a graph file '.csv'; choose one of .npz, .pt, .pth"),
        ({"x": 1}, "g.npz", r"must be a torch_geometric.data.Data \(got dict\)"),
        (sparse, "g.npz", "cannot hold the graph: x is torch.float32; convert it to a dense tensor"),
        (Data(x=graph().x.to("meta"), edge_index=graph().edge_index), "g.pt", "cannot hold the graph: x is"),
        (with_mapping({"keys": torch.ones(2)}), "g.npz", "cannot have the name 'keys'"),
    ]:
        with pytest.raises(GraphMendError, match=expected):
            save_graph(tmp_path / name, data)
    assert not list(tmp_path.iterdir())


def test_a_plain_graph_is_a_plain_file(tmp_path: Path) -> None:
    """Anybody can read it with NumPy, and nobody finds more in it than the arrays."""
    save_graph(tmp_path / "g.npz", graph(y=torch.arange(5), train_mask=torch.ones(5, dtype=torch.bool)))
    with np.load(tmp_path / "g.npz") as file:
        assert sorted(file.files) == ["edge_index", "train_mask", "x", "y"]
        assert file["x"].tolist() == graph().x.tolist()


def test_attributes_that_share_memory(tmp_path: Path) -> None:
    x = graph().x
    for ending in (".npz", ".pt"):
        save_graph(tmp_path / f"g{ending}", Data(x=x, edge_index=graph().edge_index, same=x, bits=x.view(torch.int32)))
        data = load_graph(tmp_path / f"g{ending}")
        data.x += 1
        assert torch.equal(data.same, x) and torch.equal(data.bits, x.view(torch.int32))


def test_a_part_of_something_large_is_saved_without_the_rest(tmp_path: Path) -> None:
    secret = torch.full((10_000, 4), 7.0)
    save_graph(tmp_path / "g.pt", Data(x=secret[:5], edge_index=graph().edge_index))
    assert (tmp_path / "g.pt").stat().st_size < 10_000


FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64]
OTHERS = [torch.bool, torch.complex64, torch.complex128]
LETTERS = st.text(string.ascii_letters + "é _./", min_size=1, max_size=8)
NAMES = LETTERS.filter(lambda name: not (name[0] == "_" or hasattr(Data, name) or hasattr(GlobalStorage, name)))
SCALARS = st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
).filter(lambda value: value is not None)


@st.composite
def tensors(draw: st.DrawFn, dtypes: list[torch.dtype], *shape: int) -> Tensor:
    """Any bits, of which features and weights keep only what is finite."""
    dtype = draw(st.sampled_from(dtypes))
    shape = shape or tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    seed = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    if dtype == torch.bool:
        return torch.rand(shape, generator=seed) < 0.5
    size = torch.empty((), dtype=dtype).element_size()
    raw = torch.randint(0, 256, (*shape, size), dtype=torch.uint8, generator=seed).view(dtype).view(shape)
    return raw.nan_to_num(0.0, 1.0, -1.0) if dtype in FLOATS else raw


@st.composite
def graphs(draw: st.DrawFn) -> Data:
    nodes, columns, edges = (draw(st.integers(1, 4)) for _ in range(3))
    data = Data(x=draw(tensors(FLOATS, nodes, columns)), edge_index=torch.randint(nodes, (2, edges)))
    if draw(st.booleans()):
        data.y = draw(tensors([*INTEGERS, *FLOATS, torch.bool], nodes))
    if draw(st.booleans()):
        data.edge_weight = draw(tensors(FLOATS, edges))
    for name in draw(st.sets(NAMES, max_size=3)):
        data[name] = draw(tensors([*INTEGERS, *FLOATS, *OTHERS]) | VALUES)
    return data


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(found, Tensor):
        assert found.dtype == expected.dtype and found.shape == expected.shape
        bits = [value.contiguous().reshape(-1).view(torch.uint8) for value in (found, expected)]
        assert torch.equal(*bits)
    else:
        assert found == expected and repr(found) == repr(expected)


@given(data=graphs(), ending=st.sampled_from([".npz", ".pt"]))
@settings(max_examples=100)
def test_what_is_saved_comes_back_as_it_was(data: Data, ending: str) -> None:
    check_graph(data)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"g{ending}"
        save_graph(path, data)
        found = load_graph(path)
    assert set(found.keys()) == set(data.keys())
    for name, value in data.to_dict().items():
        assert_same(found[name], value)
