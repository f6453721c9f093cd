"""``graphmend info`` tells what a file holds, or that it is damaged, whatever is in it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch_geometric.data import Data
from typer.testing import CliRunner

from graphmend import GTrans, mend
from graphmend.cards import card
from graphmend.cli import app
from graphmend.files.graph_files import save_graph
from graphmend.lab.backbones import GCN, save_model


def graph(**more: object) -> Data:
    edges = torch.tensor([[0, 1, 1, 2, 3, 2], [1, 0, 2, 1, 2, 3]])
    return Data(x=torch.rand(5, 4, generator=torch.Generator().manual_seed(0)), edge_index=edges, **more)


def told(path: Path, *options: str) -> str:
    result = CliRunner().invoke(app, ["info", str(path), *options], env={"COLUMNS": "400"})
    assert result.exit_code == 0, result.output
    return result.stdout


def complaint(path: Path) -> str:
    result = CliRunner().invoke(app, ["info", str(path)])
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit), result.output
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    assert result.stderr.rstrip("\n").isprintable() and len(result.stderr) < 600
    return result.stderr


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, model = tmp_path_factory.mktemp("files"), GCN(4, 8, 3).eval()
    paths = {name: folder / f"{name}.safetensors" for name in ("model", "card", "patch")}
    save_model(model, paths["model"])
    card(model, graph(), task="classes").save(paths["card"])
    mend(model, graph(), GTrans(steps=2)).patch.save(paths["patch"])
    return paths


def test_a_whole_file_is_described(files: dict[str, Path]) -> None:
    kinds = {name: json.loads(told(path, "--json"))["kind"] for name, path in files.items()}
    assert kinds == {"model": "GraphMend model", "card": "source card", "patch": "patch"}
    facts = json.loads(told(files["model"], "--json"))
    assert facts["backbone"] == "gcn" and facts["config"]["hidden_channels"] == 8 and facts["parameters"] == 67
    assert "feature rows changed" in json.loads(told(files["patch"], "--json"))["summary"]


@pytest.mark.parametrize("name", ["model", "card", "patch"])
def test_a_damaged_file_is_called_damaged(name: str, files: dict[str, Path], tmp_path: Path) -> None:
    raw = files[name].read_bytes()
    path = tmp_path / files[name].name
    path.write_bytes(raw[:-3] + bytes([raw[-3] ^ 1]) + raw[-2:])
    assert "is damaged: its checksum does not fit" in complaint(path)
    path.write_bytes(raw[: len(raw) // 2])
    assert "not a readable safetensors file" in complaint(path)


HEADERS = {
    "cut off": "{",
    "a list": "[]",
    "a number": "3",
    "nothing": "null",
    "deep": "[" * 100_000,
    "a format that is a number": '{"format": 3}',
    "a card without numbers": '{"format": "graphmend-card-2"}',
    "a card with a list": '{"format": "graphmend-card-2", "numbers": [], "checksum": {}}',
    "colours": '{"format": "\\u001b[31m"}',
    "colours in a version": '{"format": "graphmend-patch-99\\u001b[31m"}',
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_header_that_cannot_be_understood(case: str, files: dict[str, Path], tmp_path: Path) -> None:
    for tensors in (load_file(files["patch"]), load_file(files["card"]), {"x": torch.ones(2)}):
        save_file(tensors, tmp_path / "f.safetensors", {"graphmend": HEADERS[case]})
        complaint(tmp_path / "f.safetensors")


def test_a_header_is_shown_as_text(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    header = {"kind": "patch", "note": "[red]alarm[/red] [/nothing] \x1b[2J\x07 \u202eevil", "long": "y" * 10_000}
    save_file({"w": torch.ones(2, 3)}, path, {**header, "\x1b[31mkey": "value"})
    text = told(path)
    assert text.replace("\n", "").isprintable() and len(text) < 5000
    assert "[red]alarm[/red] [/nothing] \\x1b[2J\\x07 \\u202eevil" in text.replace("\\\\", "\\")
    facts = json.loads(told(path, "--json"))
    assert facts["kind"] == "weights" and facts["parameters"] == 6 and facts["header"]["kind"] == "patch"
    assert facts["header"]["\\x1b[31mkey"] == "value" and len(facts["header"]["long"]) < 300
    save_file({"w": torch.ones(2)}, path, {f"key{k}": "value" for k in range(10_000)})
    assert len(told(path)) < 20_000


def test_graphs_with_unusual_attributes(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    for more in (
        {"spectrum": torch.ones(5, dtype=torch.complex64)},
        {"y": torch.ones(5, 3, dtype=torch.bool), "edge_attr": torch.ones(6)},
        {"y": torch.ones(5, 0, dtype=torch.long)},
        {"[red]": torch.ones(6, 2), "name": "x"},
        {"edge_attr": torch.ones(6, 0), "edge_label_index": torch.ones(2, 3), "node": torch.tensor(3)},
    ):
        save_graph(path, graph(**more))
        assert "undirected" in told(path)
    save_graph(path, graph(**{"[red]": torch.ones(1)}))
    assert "[red]" in told(path)
    np.savez(path, x=np.ones((3, 2)), edge_index=np.zeros((2, 1), int), **{"\x1b[31m": np.ones(2)})
    assert "cannot have the name" in complaint(path)
