"""What ``graphmend train`` reads from a graph of one's own: masks in every type, classes that can be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from graphmend.cli import app
from support.graphs import labelled

pytestmark = pytest.mark.usefixtures("one_thread")


def write(path: Path, kind: str = "bool", label: int | None = None) -> Path:
    data = labelled(30)
    masks = {
        f"{part}_mask": (np.arange(30) // 3 % 3 == i).astype(kind) for i, part in enumerate(("train", "val", "test"))
    }
    y = data.y.numpy().copy()
    if label is not None:
        y[3] = label
    np.savez(path, x=data.x.numpy(), edge_index=data.edge_index.numpy(), y=y, **masks)
    return path


def test_masks_of_zeros_and_ones_train_the_same_model(tmp_path: Path) -> None:
    reports = []
    for kind in ("bool", "uint8", "int64"):
        path = write(tmp_path / f"{kind}.npz", kind)
        options = ["--graph", str(path), "--out", str(tmp_path / f"{kind}.safetensors"), "--epochs", "3", "--json"]
        result = CliRunner().invoke(app, ["train", *options])
        assert result.exit_code == 0, result.output
        reports.append({part: json.loads(result.stdout)[part] for part in ("train", "validation", "test")})
    assert reports[0] == reports[1] == reports[2]


def test_a_label_that_is_no_class_fills_no_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "graph.npz", label=20_000_000)
    result = CliRunner().invoke(app, ["train", "--graph", str(path), "--out", str(tmp_path / "model.safetensors")])
    assert result.exit_code != 0 and "20000000); number the classes from 0" in " ".join(result.output.split())
    assert not (tmp_path / "model.safetensors").exists()
