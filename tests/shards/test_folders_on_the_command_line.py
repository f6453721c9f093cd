"""Every command that takes a graph takes a graph folder, with the same result."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch_geometric.data import Data
from typer.testing import CliRunner

from graphmend import load_graph, save_graph
from graphmend.cli import app
from graphmend.lab.backbones import GCN, save_model


def good(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_commands_take_folders(tmp_path: Path) -> None:
    torch.manual_seed(0)
    edges = torch.randint(80, (2, 300))
    edges = edges[:, (edges[1] * 80 + edges[0]).argsort()]  # as a folder has them
    data = Data(x=torch.rand(80, 4), edge_index=edges, y=torch.randint(2, (80,)))
    save_graph(tmp_path / "train.npz", data)
    data.x[:5] *= 1000
    save_graph(tmp_path / "test.npz", data)
    save_model(GCN(4, 8, 2), tmp_path / "gcn.safetensors")
    for name in ("train", "test"):
        good("pack", tmp_path / f"{name}.npz", "--out", tmp_path / "packed" / name)
    packed = tmp_path / "packed"

    digests = []
    for graph in (tmp_path / "train.npz", packed / "train"):
        card = tmp_path / f"{graph.stem}{len(digests)}.card.safetensors"
        model = ("--model", tmp_path / "gcn.safetensors")
        digests.append(json.loads(good("card", *model, "--graph", graph, "--out", card, "--json"))["digest"])
    assert digests[0] == digests[1]

    facts = [json.loads(good("info", graph, "--json")) for graph in (tmp_path / "test.npz", packed / "test")]
    assert facts[0] == facts[1]

    reports = []
    for graph, out in ((tmp_path / "test.npz", "a"), (packed / "test", "b")):
        call = ("mend", "--graph", graph, *model, "--card", card, "--out", tmp_path / out, "--json")
        reports.append(json.loads(good(*call))[0])
    assert reports[0]["verdict"] == reports[1]["verdict"]
    mended = load_graph(tmp_path / "b" / "test.npz")
    assert torch.equal(mended.x, load_graph(tmp_path / "a" / "test.npz").x)

    patch = tmp_path / "b" / "test.patch.safetensors"
    good("apply", patch, packed / "test", "--out", tmp_path / "again.npz")
    assert torch.equal(load_graph(tmp_path / "again.npz").x, mended.x)
    good("pack", tmp_path / "again.npz", "--out", packed / "again")
    good("revert", patch, packed / "again")
    assert torch.equal(load_graph(packed / "again.reverted.npz").x, data.x)
