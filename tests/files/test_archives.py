"""What a file would take in memory is known before it is read, and a damaged archive is told from a whole one."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch_geometric.data import Data

from graphmend.files import archives
from graphmend.files.files import is_whole, read_arrays, write_arrays, write_safetensors
from graphmend.files.graph_files import load_graph, save_graph
from support.refusals import refused_cheaply

MB = 1 << 20


def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a megabyte were much, so that a bomb in a test is a small one."""
    monkeypatch.setattr(archives, "LARGE", MB)


def header(shape: str, kind: str = "|u1") -> bytes:
    buffer = io.BytesIO()
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    buffer.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + 1) + text.encode() + b"\n")
    return buffer.getvalue()


def archive(path: Path, method: int = zipfile.ZIP_DEFLATED, **entries: bytes) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in entries.items():
            file.writestr(f"{name}.npy", content)
    return path


def npy(array: object) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array))
    return buffer.getvalue()


GRAPH = {"x": npy(np.ones((5, 4), np.float32)), "edge_index": npy([[0, 1], [1, 2]])}


def refused(path: Path, expected: str, load: Callable[[Path], object] = load_graph) -> None:
    with refused_cheaply(expected, 4 * MB):
        load(path)


def test_what_is_out_of_proportion_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path / "g.npz", **GRAPH, zeros=npy(np.zeros(8 * MB, np.uint8)))
    assert path.stat().st_size < MB / 50
    load_graph(path)
    small_limits(monkeypatch)
    for load in (load_graph, read_arrays):
        refused(
            path, r"has \d+\.\d KiB, but its contents would take 8\.0 MiB of memory, which is out of proportion", load
        )
    assert not is_whole(path)


def test_our_own_conversions_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_limits(monkeypatch)
    for kind in (np.uint16, ">f4"):
        zeros = np.zeros(MB // 5, kind)  # less than a megabyte, but not as int64, or as two copies
        path = archive(tmp_path / "g.npz", **GRAPH, zeros=npy(zeros))
        read_arrays(path)
        refused(path, "out of proportion")


def test_a_member_that_claims_a_terabyte_is_refused_from_its_header(tmp_path: Path) -> None:
    claims = header("(1099511627776,)")
    path = archive(tmp_path / "g.npz", **GRAPH, big=claims + bytes(100))
    refused(path, r"'big' has the shape \(1099511627776,\), but 100 bytes")
    size = 0xFFFFFFF0  # the directory of the archive joins in the lie
    claims = header(f"({size - len(header(f'({size},)'))},)")
    raw = archive(path, **GRAPH, big=claims + bytes(100)).read_bytes()
    place = raw.rindex(b"big.npy") - 46 + 24
    path.write_bytes(raw[:place] + struct.pack("<L", size) + raw[place + 4 :])
    refused(path, r"would take 4\.0 GiB of memory, which is out of proportion")


def test_a_header_that_is_itself_a_bomb(tmp_path: Path) -> None:
    long = b"\x93NUMPY\x02\x00" + struct.pack("<L", 50 * MB) + bytes(50 * MB)
    refused(archive(tmp_path / "g.npz", **GRAPH, long=long), "the header of 'long' is damaged")


def test_more_than_the_free_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "g.npz"
    save_graph(path, Data(x=torch.rand(50, 40), edge_index=torch.tensor([[0], [1]])))
    monkeypatch.setattr(archives, "SMALL", 0)
    monkeypatch.setattr(archives, "available_memory", lambda device: 1000)
    refused(path, r"would take 7\.8 KiB of memory, but 1\.0 KiB are free; use a larger machine")


def test_a_large_array_is_stored_so_that_it_can_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmend.files.files.LARGE", MB)
    small_limits(monkeypatch)
    write_arrays(tmp_path / "a.npz", {"zeros": np.zeros(3 * MB, np.uint8)})
    assert read_arrays(tmp_path / "a.npz")["zeros"].shape == (3 * MB,)


def compressed(path: Path) -> Path:
    """The same archive, with every entry compressed."""
    with zipfile.ZipFile(path) as file:
        entries = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in entries.items():
            file.writestr(name, content)
    return path


def torch_file(path: Path, **attributes: object) -> Path:
    torch.save(Data(x=torch.ones(5, 4), edge_index=torch.tensor([[0, 1], [1, 2]]), **attributes), path)
    return path


def test_a_compressed_torch_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = compressed(torch_file(tmp_path / "g.pt", zeros=torch.zeros(2 * MB)))
    assert path.stat().st_size < MB / 50 and load_graph(path).zeros.shape == (2 * MB,)
    small_limits(monkeypatch)
    refused(path, "out of proportion")


def test_views_that_are_larger_than_what_they_show(tmp_path: Path) -> None:
    path = torch_file(tmp_path / "g.pt", huge=torch.zeros(1).expand(2**40))
    refused(path, r"would take 4096\.0 GiB of memory, which is out of proportion; .* \.contiguous\(\)")
    path = torch_file(tmp_path / "g.pt", hidden=[{"deep": torch.zeros(1).expand(2**40)}])
    refused(path, "out of proportion")
    path = torch_file(tmp_path / "g.pt", ones=torch.ones(1).expand(3))
    ones = load_graph(path).ones
    ones += torch.arange(3)  # which a view of one value does not allow
    assert ones.tolist() == [1, 2, 3]


def test_lists_that_hold_the_same_lists_again_and_again(tmp_path: Path) -> None:
    lists: list[object] = ["ha"] * 10
    for _ in range(15):
        lists = [lists] * 10
    refused(torch_file(tmp_path / "g.pt", laughs=lists), "lists that are out of proportion")
    lists.append(lists)
    refused(torch_file(tmp_path / "g.pt", circle=lists), "lists")


def test_files_that_are_whole_and_files_that_are_not(tmp_path: Path) -> None:
    tensors = {"w": torch.rand(40), "v": torch.rand(3, 3)}
    write_arrays(tmp_path / "a.npz", {"w": np.random.default_rng(0).random(100)})
    torch_file(tmp_path / "g.pt")
    write_safetensors(tmp_path / "t.safetensors", tensors, {"about": "them"})
    save_file(tensors, tmp_path / "foreign.safetensors")
    (tmp_path / "report.json").write_text("{}")
    assert not is_whole(tmp_path) and not is_whole(tmp_path / "none.npz")
    for path in sorted(tmp_path.iterdir()):
        assert is_whole(path), path
        raw = path.read_bytes()
        for length in (0, 1, len(raw) // 2, len(raw) - 1):
            path.write_bytes(raw[:length])
            assert not is_whole(path) or (path.suffix == ".json" and length)
        middle = raw.find(bytes(2), 1) if path.suffix == ".json" else len(raw) // 2
        path.write_bytes(raw[:middle] + bytes([raw[middle] ^ 16]) + raw[middle + 1 :])
        assert not is_whole(path) or path.stem in ("foreign", "report"), path
