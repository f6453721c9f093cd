"""Mended graphs and patches as folders: written a block at a time, resumed after a crash, never half there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend import GraphMendError, Patch
from graphmend.files import array_folders
from graphmend.files.array_folders import read_arrays, write_arrays
from graphmend.results.patch import as_bits
from graphmend.shards import open_graph, pack, save_folder

NODES = 40


def graph() -> Data:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(NODES, (2, 200), generator=generator)
    edges = edges[:, (edges[1] * NODES + edges[0]).argsort(stable=True)]
    weight = torch.rand(200, generator=generator)
    return Data(x=torch.rand(NODES, 4, generator=generator), edge_index=edges, edge_weight=weight, name="monday")


@pytest.mark.parametrize("large", [False, True], ids=["in memory", "on the disk"])
def test_a_patch_is_a_folder_that_leads_there_and_back(
    large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr("graphmend.graph.mapped.LARGE", 1)
        monkeypatch.setattr("graphmend.scratch.LEAST", 1)
        for module in ("scratch", "results.patch", "graph.edits"):
            monkeypatch.setattr(f"graphmend.{module}.ROWS", 30)
    data, removed = graph(), torch.tensor([3, 50, 51, 199])
    opened = open_graph(pack(tmp_path / "g", data))
    x = data.x.clone()
    x[5:9] += 1
    patch, mended = Patch.make(opened, x, removed)
    patch.save_folder(tmp_path / "patch")
    read = Patch.load(tmp_path / "patch")
    assert read.summary() == patch.summary()
    folder = save_folder(mended, tmp_path / "mended")
    again = open_graph(folder)
    assert torch.equal(again.x, x) and again.name == "monday"
    for found in (read.apply(opened), again):
        assert torch.equal(found.edge_index, mended.edge_index)
        assert torch.equal(found.edge_weight, mended.edge_weight)
    for back in (read.revert(again), patch.revert(mended)):
        assert torch.equal(as_bits(back.x), as_bits(data.x))
        assert torch.equal(back.edge_index, data.edge_index) and torch.equal(back.edge_weight, data.edge_weight)
    with pytest.raises(GraphMendError, match="was made for another graph"):
        read.apply(again)


def test_added_edges_are_sorted_into_the_folder(tmp_path: Path) -> None:
    opened = open_graph(pack(tmp_path / "g", graph()))
    first = opened.edge_index[:, :1]
    added = torch.cat([torch.tensor([[3, 4], [NODES - 1, 0]]), first, first], dim=1)  # some are there already
    patch, mended = Patch.make(opened, None, torch.tensor([5]), added, edge_weight=torch.rand(203))
    again = open_graph(save_folder(mended, tmp_path / "mended"))
    target = again.edge_index[1]
    assert again.edge_index.size(1) == 203 and bool((target[1:] >= target[:-1]).all())
    back = patch.revert(again)
    for name in ("x", "edge_index", "edge_weight"):
        assert torch.equal(back[name], opened[name])


def test_a_folder_without_the_added_edges_is_refused(tmp_path: Path) -> None:
    opened = open_graph(pack(tmp_path / "g", graph()))
    patch, _ = Patch.make(opened, None, torch.tensor([5, 6]), torch.tensor([[3, 4], [NODES - 1, 0]]))
    with pytest.raises(GraphMendError, match="did not make this graph"):
        patch.revert(opened)


def tensors() -> dict[str, Tensor]:
    return {"a": torch.arange(100.0).view(50, 2), "b": torch.arange(70), "c": torch.arange(3).bfloat16() / 3}


KILLED = """
import os, signal, sys, torch
from pathlib import Path
from graphmend.files import array_folders
array_folders.BLOCK = 80
write, left = array_folders.write_text, [int(sys.argv[2])]
def counted(path, text):
    write(path, text)
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
array_folders.write_text = counted
tensors = {"a": torch.arange(100.0).view(50, 2), "b": torch.arange(70)}
array_folders.write_arrays(sys.argv[1], tensors, {"of": "this"}, file="note.json")
"""


@pytest.mark.parametrize("after", [1, 4, 9, 11])
def test_a_killed_writer_loses_the_block_it_was_in(after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(out), str(after)], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not out.exists()
    written: list[str] = []
    write = array_folders.write_text
    monkeypatch.setattr(array_folders, "BLOCK", 80)
    monkeypatch.setattr(array_folders, "write_text", lambda path, text: (written.append(path.name), write(path, text)))
    whole = {"a": torch.arange(100.0).view(50, 2), "b": torch.arange(70)}
    write_arrays(out, whole, {"of": "this"}, file="note.json")
    blocks = 5 + 7
    assert written.count("journal.json") == blocks - after
    assert_holds(out, whole)
    assert sorted(path.name for path in out.iterdir()) == ["a.npy", "b.npy", "note.json"]


def assert_holds(folder: Path, expected: dict[str, Tensor]) -> None:
    note = json.loads((folder / "note.json").read_text())
    found = read_arrays(folder, note["arrays"], verify=True, file="note.json", remedy="write it again")
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and torch.equal(found[name], value)


def test_other_content_starts_anew(tmp_path: Path) -> None:
    out = tmp_path / "out"
    subprocess.run([sys.executable, "-c", KILLED, str(out), "4"], capture_output=True, check=False)
    write_arrays(out, tensors(), {"of": "that"}, file="note.json")
    assert_holds(out, tensors())


HOLDS = """
import fcntl, sys
with open(sys.argv[1], "w") as stream:
    fcntl.flock(stream, fcntl.LOCK_EX)
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_two_writers(tmp_path: Path) -> None:
    (tmp_path / "out.partial").mkdir()
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path / "out.partial" / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert other.stdout is not None
    other.stdout.readline()
    with pytest.raises(GraphMendError, match="is being written by another process; wait"):
        write_arrays(tmp_path / "out", tensors(), {}, file="note.json")
    other.communicate(b"")
    write_arrays(tmp_path / "out", tensors(), {}, file="note.json")
    with pytest.raises(GraphMendError, match="is there already; remove it"):
        write_arrays(tmp_path / "out", tensors(), {}, file="note.json")


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("bits.npy", flipped, "bits.npy is damaged or was changed: its checksum is .*write it again"),
        ("rows.npy", lambda path: path.write_bytes(path.read_bytes()[:-8]), "is cut off or was changed"),
        ("removed.npy", Path.unlink, "removed.npy is no readable array"),
        ("patch.json", lambda path: path.write_text(path.read_text().replace("patch-6", "patch-9")), "this version"),
    ],
)
def test_a_damaged_patch_is_refused(name: str, damage: Callable[[Path], object], words: str, tmp_path: Path) -> None:
    data = graph()
    Patch.make(data, data.x + 1, torch.tensor([1]))[0].save_folder(tmp_path / "patch")
    damage(tmp_path / "patch" / name)
    with pytest.raises(GraphMendError, match=words):
        Patch.load(tmp_path / "patch")
