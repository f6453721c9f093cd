"""Graph files, ``.npz`` and ``.pt``: damaged, forged, or full of things that do not belong there."""

from __future__ import annotations

import functools
import io
import os
import pickle
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData

from fuzz.cases import Case, Violation
from fuzz.damage import MEGABYTE, archive_of, bomb, damaged, members_of, with_field
from fuzz.graph_defects import CLASSES, odd_graph, specimen_graph
from graphmend import Identity
from graphmend.files.graph_files import load_graph
from graphmend.lab.backbones import GCN

Made = tuple[str, bytes]


@functools.cache
def _valid_arrays() -> dict[str, bytes]:
    """The members of a valid ``.npz``."""
    return arrays_of(specimen_graph())


def arrays_of(data: Data) -> dict[str, bytes]:
    """The tensors of a graph as members of an ``.npz``."""
    return {name: npy(value.numpy()) for name, value in data.to_dict().items()}


def npy(array: Any) -> bytes:
    """An array in NumPy's format."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asanyarray(array), allow_pickle=True)
    return buffer.getvalue()


def forged_npy(header: str, payload: bytes, version: int = 1) -> bytes:
    """A member of an ``.npz`` with any header."""
    text = header.encode("latin1", "replace") + b"\n"
    length = struct.pack("<H", len(text) % 2**16) if version == 1 else struct.pack("<I", len(text))
    return b"\x93NUMPY" + bytes((version, 0)) + length + text + payload


def valid_npz(rng: random.Random) -> bytes:
    """A graph file without faults."""
    return packed(rng, _valid_arrays())


def packed(rng: random.Random, members: dict[str, bytes]) -> bytes:
    """Members as an ``.npz``, compressed or not."""
    return archive_of([(f"{name}.npy", member) for name, member in members.items()], rng.random() < 0.5)


ARRAYS: dict[str, Callable[[], Any]] = {
    "big-endian": lambda: np.ones((12, 5), ">f4"),
    "big-endian integers": lambda: np.zeros((2, 4), ">i8"),
    "long double": lambda: np.ones((12, 5), np.longdouble),
    "half": lambda: np.ones((12, 5), np.float16),
    "complex": lambda: np.ones((12, 5), np.complex128),
    "text": lambda: np.array([["a", "b"]]),
    "bytes": lambda: np.array([b"a", b"\x1b[31m"]),
    "dates": lambda: np.zeros(12, "M8[s]"),
    "durations": lambda: np.zeros(12, "m8[s]"),
    "raw": lambda: np.zeros(12, "V8"),
    "records": lambda: np.zeros(12, [("a", "f4"), ("b", "i8", (2,))]),
    "objects": lambda: np.array([{}, None], dtype=object),
    "booleans": lambda: np.ones((12, 5), bool),
    "large unsigned": lambda: np.full((2, 4), 2**64 - 1, np.uint64),
    "small unsigned": lambda: np.zeros((2, 4), np.uint8),
    "short": lambda: np.zeros((2, 4), np.int16),
    "no dimension": lambda: np.float32(1),
    "no entries": lambda: np.ones((0, 5), np.float32),
    "no columns": lambda: np.ones((12, 0), np.float32),
    "many dimensions": lambda: np.ones((1,) * 32, np.float32),
    "large and empty": lambda: np.ones((2**40, 0), np.float32),
    "NaN": lambda: np.full((12, 5), np.nan, np.float32),
    "Fortran order": lambda: np.asfortranarray(np.ones((12, 5), np.float32)),
    "negative": lambda: np.full((2, 4), -(2**63)),
    "huge labels": lambda: np.full(12, 2**62),
}
SHAPES = (
    "(2, 4)", "(12, 5)", "(12,)", "()", "(0,)", "(-1, 5)", "(1000000000, 1000000000)", "(4611686018427387904,)",
    "(100000000,)", "(True, 5)", "(12.0, 5)", "('a',)", "(None,)", "12", "(9223372036854775807, 2)", f"{(1,) * 70}",
    "(1000000000, 0)", "(18446744073709551616,)", "(2, -4)",
)  # fmt: skip
TYPES = (
    "'<f4'", "'>f8'", "'<f16'", "'|O'", "'<c8'", "'|S1000000000'", "'<U999999999'", "'|V0'", "'<f3'", "'nonsense'",
    "''", "None", "4", "[('x', '<f4')]", "[('x', '<f4')] * 1000", "('<f4', (1000000000,))", "'<i8'", "'|b1'", "'<M8'",
    "'<f4,<f4'", "'=f4'", "'\x1b[31m'",
)  # fmt: skip
HEADERS = (
    "(" * 9000, "[" * 90, "{" * 3000, "{'descr': " + "(" * 5000, "-" * 9000 + "1", "", "\x00" * 50, "None", "\xe9" * 40,
    "{'descr': '<f4'}", "{'shape': (1,), 'fortran_order': 7, 'descr': '<f4'}", "__import__('os')", "9" * 5000,
    "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "9" * 4800 + ",)}", "1" + "+1" * 4500, "{**{}}",
    "lambda: 0",
)  # fmt: skip
NAMES = (
    "self", "num_nodes", "edge_index/../x", "../x", "x.npy", "", "keys", "_store", "to_dict", "ptr", "batch", "adj_t",
    "face", "num_edges", "num_features", "__class__", "__dict__", "is_undirected", "stores", "\x1b[31mred", "time",
    "[bold]x[/]", "x\x00y", "/etc/x", "y", "x", "pos", "edge_attr", "edge_weight", "update", "size", "mapping", "a b",
    "_edge_attr_cls", "frozen_nodes", "train_mask", "node_type", "validate", "\u202etxt", "data", "__init__", "None",
    "n" * 300, "is_cuda",
)  # fmt: skip


def _other_array(rng: random.Random) -> Made:
    members, name, kind = (
        dict(_valid_arrays()),
        rng.choice(("x", "edge_index", "y", "train_mask")),
        rng.choice(list(ARRAYS)),
    )
    members[name] = npy(ARRAYS[kind]())
    return f"{name} is {kind}", packed(rng, members)


def _forged_header(rng: random.Random) -> Made:
    members, name = dict(_valid_arrays()), rng.choice(("x", "edge_index", "y"))
    shape, kind, order = rng.choice(SHAPES), rng.choice(TYPES), rng.choice(("False", "True", "0", "None"))
    header = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}"
    if rng.random() < 0.3:
        header = rng.choice(HEADERS)
    payload = bytes(rng.choice((0, 8, 64, 240, 4096)))
    members[name] = forged_npy(header, payload, rng.choice((1, 1, 2, 3, 9)))
    return f"{name} has the header {header[:80]}", packed(rng, members)


def _other_name(rng: random.Random) -> Made:
    members, name = list(_valid_arrays().items()), rng.choice(NAMES)
    member = rng.choice([content for _, content in members] + [npy(np.ones(12)), npy(12), npy("text")])
    if rng.random() < 0.3:
        members.pop(rng.randrange(len(members)))
    members.insert(rng.randrange(len(members) + 1), (name, member))
    ending = rng.choice((".npy", ".npy", ".npy", "", ".NPY", "/"))
    return f"a member {name + ending!r}", archive_of(
        [(key + (ending if key == name else ".npy"), value) for key, value in members]
    )


def _other_member(rng: random.Random) -> Made:
    members, name = dict(_valid_arrays()), rng.choice(("x", "edge_index", "y", "notes"))
    contents = (
        b"",
        b"plain text",
        pickle.dumps({"a": 1}),
        valid_npz(rng),
        b"\x93NUMPY",
        b"\x93NUMPY\x01\x00",
        rng.randbytes(99),
    )
    members[name] = rng.choice(contents)
    return f"{name} is no array", packed(rng, members)


def _damaged_member(rng: random.Random) -> Made:
    members, name = dict(_valid_arrays()), rng.choice(("x", "edge_index", "y", "train_mask"))
    told, members[name] = damaged(rng, members[name][: rng.choice((128, 10**6))])
    return f"{name}: {told}", packed(rng, members)


def _swapped(rng: random.Random) -> Made:
    names, members = list(_valid_arrays()), list(_valid_arrays().values())
    rng.shuffle(members)
    return "members swapped", packed(rng, dict(zip(names, members, strict=True)))


def _bomb(rng: random.Random) -> Made:
    size = rng.choice((4, 4, 16, 16, 64, 256, 6 * 1024)) * MEGABYTE
    rows = rng.choice((size // 20, size // 4, 2**50))
    shape = rng.choice(((rows, 5), (rows,), (2, rows)))
    head = forged_npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}", b"")
    name = rng.choice(("x.npy", "edge_index.npy", "notes.npy", "notes.txt"))
    return f"{name} unpacks to {size // MEGABYTE} MiB", bomb(name, head, size)


NPZ: dict[str, tuple[int, Callable[[random.Random], Made]]] = {
    "no fault": (3, lambda rng: ("", valid_npz(rng))),
    "damaged bytes": (15, lambda rng: damaged(rng, valid_npz(rng))),
    "damaged fields": (10, lambda rng: with_field(rng, valid_npz(rng))),
    "damaged member": (15, _damaged_member),
    "another array": (15, _other_array),
    "a forged header": (20, _forged_header),
    "another name": (15, _other_name),
    "another member": (8, _other_member),
    "members swapped": (3, _swapped),
    "unpacks to much": (4, _bomb),
    "another kind of file": (
        4,
        lambda rng: ("", rng.choice((b"", b"text", npy(np.ones(3)), valid_pt(), rng.randbytes(500)))),
    ),
}


class _RunsCode:
    """Pickled, it writes a file when it is loaded by a careless reader."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.path),))


def saved(thing: Any, legacy: bool = False) -> bytes:
    """What torch writes, in its present or its old form."""
    buffer = io.BytesIO()
    torch.save(thing, buffer, _use_new_zipfile_serialization=not legacy)
    return buffer.getvalue()


@functools.cache
def valid_pt() -> bytes:
    """A valid graph, saved with torch."""
    return saved(specimen_graph())


def _graph(**changes: Any) -> Data:
    data = specimen_graph()
    for name, value in changes.items():
        data[name] = value(data) if callable(value) else value
    return data


OBJECTS: dict[str, Callable[[], Any]] = {
    "tensor": lambda: torch.ones(3),
    "dictionary": lambda: {"x": torch.ones(3, 5), "edge_index": torch.zeros(2, 4, dtype=torch.long)},
    "list": lambda: [_graph(), _graph()],
    "None": lambda: None,
    "weights": lambda: GCN(5, 4, 3).state_dict(),
    "model": lambda: torch.nn.Linear(2, 2),
    "empty Data": Data,
    "heterogeneous graph": HeteroData,
    "batch": lambda: Batch.from_data_list([_graph(), _graph()]),
    "meta tensor": lambda: _graph(x=torch.ones(12, 5, device="meta")),
    "meta edges": lambda: _graph(edge_index=lambda d: d.edge_index.to("meta")),
    "float8": lambda: _graph(x=lambda d: d.x.to(torch.float8_e4m3fn)),
    "complex": lambda: _graph(x=lambda d: d.x.to(torch.complex64)),
    "conjugate": lambda: _graph(x=lambda d: d.x.to(torch.complex64).conj()),
    "imaginary part": lambda: _graph(x=lambda d: d.x.to(torch.complex64).conj().imag),
    "sparse": lambda: _graph(x=lambda d: d.x.to_sparse()),
    "sparse edges": lambda: _graph(edge_index=lambda d: d.edge_index.to_sparse()),
    "sparse labels": lambda: _graph(y=lambda d: d.y.to_sparse()),
    "compressed rows": lambda: _graph(adj_t=torch.eye(12).to_sparse_csr()),
    "expanded": lambda: _graph(x=lambda d: torch.ones(1, 1).expand(d.x.size(0), 5)),
    "expanded far": lambda: _graph(x=torch.ones(1, 1).expand(10**6, 10**6)),
    "expanded edges": lambda: _graph(edge_index=torch.zeros(1, 1, dtype=torch.long).expand(2, 10**12)),
    "expanded weights": lambda: _graph(edge_weight=lambda d: torch.ones(1).expand(d.edge_index.size(1))),
    "quantised": lambda: _graph(x=lambda d: torch.quantize_per_tensor(d.x, 0.1, 0, torch.qint8)),
    "nested": lambda: _graph(x=torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])),
    "parameter": lambda: _graph(x=lambda d: torch.nn.Parameter(d.x)),
    "text": lambda: _graph(name="[bold]\x1b[31mname"),
    "text for x": lambda: _graph(x="x"),
    "strange attributes": lambda: _graph(extra={"a": [1, (2, None)]}, more=[Data(), 3], **{"with space": 1.5}),
    "number of nodes": lambda: _graph(num_nodes=10**12),
    "text for a number": lambda: _graph(num_nodes="many"),
    "tensor for a number": lambda: _graph(num_nodes=torch.ones(3)),
    "unsigned": lambda: _graph(y=lambda d: d.y.to(torch.uint16)),
    "large unsigned": lambda: _graph(edge_index=lambda d: d.edge_index.to(torch.uint64)),
    "set": lambda: _graph(extra={1, 2}),
    "NumPy": lambda: _graph(x=np.ones((12, 5))),
    "size": lambda: _graph(extra=torch.Size([1])),
    "type": lambda: _graph(extra=torch.float32),
}  # fmt: skip


def _other_object(rng: random.Random) -> Made:
    kind = rng.choice(list(OBJECTS))
    return kind, saved(OBJECTS[kind](), rng.random() < 0.2)


def _odd_data(rng: random.Random) -> Made:
    told, data = odd_graph(rng)
    try:
        return told, saved(data, rng.random() < 0.2)
    except Exception:  # torch cannot save everything that can be in a graph
        return "a sound graph", valid_pt()


def _damaged_record(rng: random.Random) -> Made:
    """One record of the archive is damaged, or missing, or there is another one; checksums fit."""
    members = members_of(valid_pt())
    at = rng.choices(range(len(members)), weights=[12 if name.endswith("data.pkl") else 1 for name, _ in members])[0]
    name, content = members[at]
    kind = rng.choice(("damaged", "damaged", "damaged", "emptied", "missing", "swapped", "repeated"))
    if kind == "damaged":
        kind, content = damaged(rng, content)
    elif kind == "emptied":
        content = b""
    elif kind == "swapped":
        content = rng.choice(members)[1]
    members[at] = (name, content)
    if kind == "missing":
        members.pop(at)
    if kind == "repeated":
        members.append((name, content))
    return f"{name}: {kind}", archive_of(members)


PT: dict[str, tuple[int, Callable[[random.Random], Made]]] = {
    "no fault": (2, lambda rng: ("", valid_pt())),
    "damaged bytes": (12, lambda rng: damaged(rng, valid_pt())),
    "damaged bytes of the old form": (12, lambda rng: damaged(rng, saved(_graph(), legacy=True))),
    "damaged fields": (8, lambda rng: with_field(rng, valid_pt())),
    "damaged record": (30, _damaged_record),
    "another object": (20, _other_object),
    "an odd graph": (20, _odd_data),
    "another kind of file": (4, lambda rng: ("", rng.choice((b"", b"text", valid_npz(rng), rng.randbytes(500))))),
}


def odd_file(rng: random.Random, kinds: dict[str, tuple[int, Callable[[random.Random], Made]]]) -> Made:
    """A file of one of these kinds."""
    kind = rng.choices(list(kinds), weights=[weight for weight, _ in kinds.values()])[0]
    told, content = kinds[kind][1](rng)
    return f"{kind}: {told}" if told else kind, content


def npz_files(rng: random.Random, folder: Path) -> Case:
    """Reading ``.npz`` files."""
    told, content = odd_file(rng, NPZ)
    path = folder / "graph.npz"
    path.write_bytes(content)
    return Case(f"npz, {told}", lambda: _use(path))


def pt_files(rng: random.Random, folder: Path) -> Case:
    """Reading files that torch wrote."""
    mark = folder / "code ran"
    if rng.random() < 0.05:
        thing = rng.choice((_RunsCode(mark), _graph(extra=_RunsCode(mark)), [_RunsCode(mark)]))
        told, content = "code", saved(thing, rng.random() < 0.5)
    else:
        told, content = odd_file(rng, PT)
    path = folder / rng.choice(("graph.pt", "graph.pth"))
    path.write_bytes(content)

    def run() -> None:
        try:
            _use(path)
        finally:
            if mark.exists():
                raise Violation("reading the file ran code that is in it")

    return Case(f"pt, {told}", run)


def _use(path: Path) -> None:
    """A graph that can be read can be worked on."""
    data = load_graph(path)
    columns = data.x.size(1)
    if columns > 10_000 or not isinstance(data.x, Tensor):
        return
    with torch.random.fork_rng():
        model = GCN(columns, 4, CLASSES).to(data.x.dtype)
    Identity()(model, data)
