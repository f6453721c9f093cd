"""Packing a graph into a folder: every format gives the graph that memory holds, a crash loses one part, and bad input
is one sentence."""

from __future__ import annotations

import csv
import gzip
import json
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data
from typer.testing import CliRunner

from graphmend import GraphMendError, save_graph
from graphmend.cli import app
from graphmend.shards import open_graph, pack

duckdb = pytest.importorskip("duckdb")


def graph(nodes: int = 30, edges: int = 120, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    return Data(
        x=torch.rand(nodes, 4, generator=generator),
        edge_index=torch.randint(nodes, (2, edges), generator=generator),
        edge_weight=torch.rand(edges, generator=generator),
        y=torch.randint(3, (nodes,), generator=generator),
        train_mask=torch.rand(nodes, generator=generator) < 0.5,
    )


def by_target(data: Data) -> Data:
    """The same graph with its edges in the order of a folder."""
    out = data.clone()
    order = (data.edge_index[1] * data.num_nodes + data.edge_index[0]).argsort(stable=True)
    out.edge_index = data.edge_index[:, order]
    if data.get("edge_weight") is not None:
        out.edge_weight = data.edge_weight[order]
    return out


def assert_same(found: Data, expected: Data) -> None:
    assert set(found.keys()) == set(expected.keys())
    for name, value in expected.to_dict().items():
        if isinstance(value, Tensor):
            assert found[name].dtype == value.dtype, name
            assert torch.equal(found[name], value), name
        else:
            assert found[name] == value


def write_csv(path: Path, header: list[str] | None, rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", newline="") if path.suffix == ".gz" else path.open("w", newline="") as file:
        writer = csv.writer(file)
        if header is not None:
            writer.writerow(header)
        writer.writerows(rows)
    return path


def names(data: Data) -> list[str]:
    return [f"user {7 * k % 1000} é" for k in range(data.num_nodes)]


def node_rows(data: Data, ids: list[Any]) -> list[list[Any]]:
    more = zip(data.x.tolist(), data.y.tolist(), data.train_mask.tolist(), strict=True)
    return [[name, *map(repr, row), y, mask] for name, (row, y, mask) in zip(ids, more, strict=True)]


def edge_rows(data: Data, ids: list[Any]) -> list[list[Any]]:
    source, target = data.edge_index.tolist()
    return [[ids[s], ids[t], repr(w)] for s, t, w in zip(source, target, data.edge_weight.tolist(), strict=True)]


NODES, EDGES = ["id", "f0", "f1", "f2", "f3", "y", "train_mask"], ["source", "target", "weight"]


def from_npz(data: Data, folder: Path, out: Path) -> None:
    save_graph(folder / "g.npz", data)
    pack(out, folder / "g.npz", part=50)


def from_pt(data: Data, folder: Path, out: Path) -> None:
    save_graph(folder / "g.pt", data)
    pack(out, folder / "g.pt", part=50)


def from_data(data: Data, folder: Path, out: Path) -> None:
    pack(out, data, part=50)


def from_csv(data: Data, folder: Path, out: Path) -> None:
    ids = names(data)
    half = data.edge_index.size(1) // 2
    write_csv(folder / "edges" / "1.csv", EDGES, edge_rows(data, ids)[:half])
    write_csv(folder / "edges" / "2.csv", EDGES, edge_rows(data, ids)[half:])
    nodes = write_csv(folder / "nodes.csv.gz", NODES, node_rows(data, ids))
    pack(out, nodes=nodes, edges=folder / "edges", part=50)


def from_parquet(data: Data, folder: Path, out: Path) -> None:
    nodes = write_csv(folder / "nodes.csv", NODES, node_rows(data, list(range(100, 100 + data.num_nodes))))
    edges = write_csv(folder / "edges.csv", EDGES, edge_rows(data, list(range(100, 100 + data.num_nodes))))
    for path in (nodes, edges):
        duckdb.sql(f"COPY (SELECT * FROM '{path}') TO '{path.with_suffix('.parquet')}' (FORMAT parquet)")
    pack(out, nodes=nodes.with_suffix(".parquet"), edges=edges.with_suffix(".parquet"), part=50)


@pytest.mark.parametrize("write", [from_npz, from_pt, from_data, from_csv, from_parquet])
def test_every_format_gives_the_graph_in_memory(write: Callable[[Data, Path, Path], None], tmp_path: Path) -> None:
    data = graph()
    write(data, tmp_path, tmp_path / "packed")
    found = open_graph(tmp_path / "packed")
    assert_same(found, by_target(data))
    counts = torch.bincount(data.edge_index[1], minlength=30)
    assert torch.equal(found.offsets(), torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)]))
    assert not (tmp_path / "packed.partial").exists()


def test_ogbs_layout(tmp_path: Path) -> None:
    data = graph()
    raw, split = tmp_path / "ogbn" / "raw", tmp_path / "ogbn" / "split" / "time"
    write_csv(raw / "edge.csv.gz", None, data.edge_index.t().tolist())
    write_csv(raw / "node-feat.csv.gz", None, [list(map(repr, row)) for row in data.x.tolist()])
    write_csv(raw / "node-label.csv.gz", None, data.y.view(-1, 1).tolist())
    write_csv(raw / "num-node-list.csv.gz", None, [[30]])
    write_csv(split / "train.csv.gz", None, data.train_mask.nonzero().tolist())
    pack(tmp_path / "packed", tmp_path / "ogbn", both_directions=True)
    found = open_graph(tmp_path / "packed")
    source, target = data.edge_index
    back = data.edge_index[:, source != target].flip(0)
    data.edge_index = torch.cat([data.edge_index, back], dim=1)
    del data.edge_weight
    assert_same(found, by_target(data))
    assert found.is_symmetric


@settings(max_examples=15, deadline=None)
@given(nodes=st.integers(1, 12), edges=st.integers(1, 40), part=st.integers(1, 60), seed=st.integers(0, 999))
def test_parts_of_any_size_give_the_same_folder(
    tmp_path_factory: pytest.TempPathFactory, nodes: int, edges: int, part: int, seed: int
) -> None:
    data, folder = graph(nodes, edges, seed), tmp_path_factory.mktemp("packed")
    pack(folder / "g", data, part=part)
    assert_same(open_graph(folder / "g"), by_target(data))


def test_a_list_column_is_the_features(tmp_path: Path) -> None:
    file = tmp_path / "nodes.parquet"
    duckdb.sql(f"COPY (SELECT k AS id, [k, k + 0.5, 1.0] AS e FROM range(4) t(k)) TO '{file}' (FORMAT parquet)")
    edges = write_csv(tmp_path / "edges.csv", ["a", "b"], [[0, 1], [1, 2], [3, 0]])
    pack(tmp_path / "g", nodes=file, edges=edges)
    found = open_graph(tmp_path / "g")
    assert found.x.tolist() == [[k, k + 0.5, 1.0] for k in range(4)]


def test_an_empty_feature_is_missing(tmp_path: Path) -> None:
    nodes = write_csv(tmp_path / "nodes.csv", ["f"], [[1.5], [""], [2.5]])
    edges = write_csv(tmp_path / "edges.csv", ["source", "target"], [[0, 1]])
    pack(tmp_path / "g", nodes=nodes, edges=edges)
    assert open_graph(tmp_path / "g").x.isnan().view(-1).tolist() == [False, True, False]


KILLED = """
import os, signal, sys
from graphmend.shards import pack
from graphmend.shards.pack import _Packing
done, left = _Packing.done, [int(sys.argv[3])]
def counted(self, step, do):
    def killing():
        do()
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    done(self, step, killing)
_Packing.done = counted
pack(sys.argv[1], sys.argv[2], part=50)
"""


@pytest.mark.parametrize("after", [1, 3, 7, 11])
def test_a_killed_run_is_resumed_where_it_was(after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, file, out = graph(), tmp_path / "g.npz", tmp_path / "packed"
    save_graph(file, data)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(out), str(file), str(after)], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not out.exists()
    with pytest.raises(GraphMendError, match="no graph folder"):
        open_graph(out)
    from graphmend.shards.pack import _Packing

    steps: list[str] = []
    done = _Packing.done

    def counted(self: _Packing, step: str, do: Callable[[], object]) -> None:
        done(self, step, lambda: (steps.append(step), do()))

    monkeypatch.setattr(_Packing, "done", counted)
    pack(out, file, part=50)
    assert_same(open_graph(out), by_target(data))
    whole = tmp_path / "whole"
    resumed = len(steps)
    steps.clear()
    pack(whole, file, part=50)
    assert resumed == len(steps) - (after - 1)


def test_another_source_starts_anew(tmp_path: Path) -> None:
    data, other, file, out = graph(), graph(seed=1), tmp_path / "g.npz", tmp_path / "packed"
    save_graph(file, data)
    subprocess.run([sys.executable, "-c", KILLED, str(out), str(file), "5"], capture_output=True)
    save_graph(tmp_path / "other.npz", other)
    pack(out, tmp_path / "other.npz", part=50)
    assert_same(open_graph(out), by_target(other))


def small(folder: Path, nodes: Any = None, edges: Any = None) -> tuple[Path, Path]:
    node_file = write_csv(folder / "nodes.csv", ["id", "f"], nodes or [["a", 1.0], ["b", 2.0], ["c", 3.0]])
    return node_file, write_csv(folder / "edges.csv", ["source", "target"], edges or [["a", "b"], ["b", "c"]])


BAD_TABLES: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown id": ({"edges": [["a", "b"], ["b", "nobody"]]}, "row 1 of .*edges.csv .*'nobody'.*drop such edges"),
    "an id twice": ({"nodes": [["a", 1.0], ["a", 2.0]]}, "'a' is there more than once.*make ids unique"),
    "text as a feature": ({"nodes": [["a", "x"], ["b", "y"]]}, "f of .*nodes.csv hold no numbers"),
    "an infinite feature": ({"nodes": [["a", 1.0], ["b", "inf"]], "edges": [["a", "b"]]}, "feature 0 of node 1 is inf"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_bad_tables_are_one_sentence_with_the_row(name: str, tmp_path: Path) -> None:
    content, words = BAD_TABLES[name]
    nodes, edges = small(tmp_path, **content)
    with pytest.raises(GraphMendError, match=words):
        pack(tmp_path / "g", nodes=nodes, edges=edges)
    assert not (tmp_path / "g").exists()


def test_an_edge_out_of_range_is_named_by_its_row(tmp_path: Path) -> None:
    data = graph()
    data.edge_index[1, 77] = 30
    with pytest.raises(GraphMendError, match=r"row 77 .* to node 30, but the nodes are 0 to 29"):
        pack(tmp_path / "g", data, part=50)


def test_damaged_inputs_are_one_sentence(tmp_path: Path) -> None:
    save_graph(tmp_path / "g.npz", graph())
    content = (tmp_path / "g.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(GraphMendError, match=r"cut\.npz.*write"):
        pack(tmp_path / "out", tmp_path / "cut.npz")
    nodes, edges = small(tmp_path)
    packed = gzip.compress(edges.read_bytes() * 500)
    (tmp_path / "cut.csv.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(GraphMendError, match="cannot be packed"):
        pack(tmp_path / "out", nodes=nodes, edges=tmp_path / "cut.csv.gz")
    with pytest.raises(GraphMendError, match="there is no file"):
        pack(tmp_path / "out", tmp_path / "nothing.npz")
    assert not (tmp_path / "out").exists()


def test_the_command_packs_and_says_what(tmp_path: Path) -> None:
    nodes, edges = small(tmp_path)
    call = ["pack", "--nodes", str(nodes), "--edges", str(edges), "--out", str(tmp_path / "g"), "--both-directions"]
    done = CliRunner().invoke(app, [*call, "--json"])
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts == {"graph": str(tmp_path / "g"), "nodes": 3, "features": 1, "edges": 4}
    again = CliRunner().invoke(app, call)
    assert again.exit_code == 2 and "is there already" in again.output


def test_two_writers_and_a_target_that_is_there(tmp_path: Path) -> None:
    pack(tmp_path / "g", graph())
    with pytest.raises(GraphMendError, match="is there already; remove it or choose another"):
        pack(tmp_path / "g", graph())
    (tmp_path / "h.partial").mkdir()
    code = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "h.partial" / "work.duckdb")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert other.stdout is not None
    other.stdout.readline()
    with pytest.raises(GraphMendError, match="being written by another process; wait"):
        pack(tmp_path / "h", graph())
    other.communicate(b"")


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def renamed(path: Path) -> None:
    note = json.loads((path.parent / "graph.json").read_text())
    note["format"] = "graphmend-folder-99"
    (path.parent / "graph.json").write_text(json.dumps(note))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (flipped, "x.npy is damaged or was changed: its checksum is .*pack the graph again"),
        (cut, "x.npy has .* bytes instead of .*pack the graph again"),
        (renamed, "'graphmend-folder-99', this version reads"),
        (Path.unlink, "x.npy is no readable array.*pack the graph again"),
    ],
)
def test_a_damaged_folder_is_refused(damage: Callable[[Path], object], words: str, tmp_path: Path) -> None:
    pack(tmp_path / "g", graph())
    damage(tmp_path / "g" / "x.npy")
    with pytest.raises(GraphMendError, match=words):
        open_graph(tmp_path / "g")


def out_of_range(edges: Any, offsets: Any) -> None:
    edges[0, -2] = 30


def negative(edges: Any, offsets: Any) -> None:
    edges[0, 5] = -1


def unsorted(edges: Any, offsets: Any) -> None:
    edges[1, -1] = 0


def moved(edges: Any, offsets: Any) -> None:
    offsets[3] += 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (out_of_range, r"edge 118 \(counted from 0\) leads from node 30 to .*nodes are 0 to 29; pack the graph again"),
        (negative, r"edge 5 \(counted from 0\) leads from node -1 to .*nodes are 0 to 29"),
        (unsorted, r"edge 119 .* after an edge into a later node: the edges are not sorted by target; pack"),
        (moved, r"offsets.npy does not say where the edges of each target begin; pack"),
    ],
)
@pytest.mark.parametrize("at_once", [7, 10**6])
def test_edges_that_somebody_else_wrote_wrongly_are_named(
    change: Callable[[Any, Any], None], words: str, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their checksums are right, so only the numbers tell."""
    from graphmend.files.array_folders import checksum

    monkeypatch.setattr("graphmend.shards.folder.EDGES", at_once)
    folder = pack(tmp_path / "g", graph())
    open_graph(folder)
    arrays = [np.load(folder / f"{name}.npy") for name in ("edge_index", "offsets")]
    change(*arrays)
    note = json.loads((folder / "graph.json").read_text())
    for name, array in zip(("edge_index", "offsets"), arrays, strict=True):
        np.save(folder / f"{name}.npy", array)
        note["arrays"][name]["checksum"] = checksum(folder / f"{name}.npy")
    (folder / "graph.json").write_text(json.dumps(note))
    with pytest.raises(GraphMendError, match=words):
        open_graph(folder)


def test_what_is_written_into_an_open_graph_stays_there(tmp_path: Path) -> None:
    pack(tmp_path / "g", graph())
    open_graph(tmp_path / "g").x.zero_()
    assert_same(open_graph(tmp_path / "g"), by_target(graph()))


def test_an_interrupted_run_leaves_no_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphmend.shards import pack as module

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    packing = sys.modules["graphmend.shards.pack"]._Packing
    with monkeypatch.context() as patch:
        patch.setattr(packing, "_sort", interrupted)
        with pytest.raises(KeyboardInterrupt):
            module(tmp_path / "g", graph())
    assert not (tmp_path / "g").exists()
    pack(tmp_path / "g", graph())
    assert_same(open_graph(tmp_path / "g"), by_target(graph()))


def test_the_archive_is_not_needed_whole(tmp_path: Path) -> None:
    """Numbers and texts of a note are kept, too."""
    data = graph()
    data.name = "monday"
    save_graph(tmp_path / "g.npz", data)
    assert "graphmend.json" in zipfile.ZipFile(tmp_path / "g.npz").namelist()
    pack(tmp_path / "g", tmp_path / "g.npz")
    found = open_graph(tmp_path / "g")
    assert found.name == "monday" and np.asarray(found.x).shape == (30, 4)
