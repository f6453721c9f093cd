"""The same content makes the same file, and a report is trusted only with the very files that it is about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from graphmend.files.digest import is_sealed, sealed
from graphmend.files.files import read_safetensors, write_safetensors
from graphmend.lab.backbones import GCN, load_model, save_model

TENSORS = {name: torch.rand(2, 3) for name in "abcdefgh"}
HEADER = {name: f"text é \n {name}" for name in "hgfedcba"}


def test_the_same_content_makes_the_same_file(tmp_path: Path) -> None:
    for number in range(12):
        write_safetensors(tmp_path / f"{number}.safetensors", TENSORS, HEADER)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1
    tensors, header = read_safetensors(tmp_path / "0.safetensors")
    assert header == HEADER and all(torch.equal(tensors[name], value) for name, value in TENSORS.items())


def test_the_same_model_makes_the_same_file(tmp_path: Path) -> None:
    model = GCN(3, 4, 2)
    for number in range(12):
        save_model(model, tmp_path / f"{number}.safetensors", trainer={"name": "erm", "epochs": 3})
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1
    save_model(load_model(tmp_path / "0.safetensors"), tmp_path / "again.safetensors")
    load_model(tmp_path / "again.safetensors")


@pytest.mark.parametrize("change", ["nothing", "a number", "a further entry", "no checksum", "a file", "no file"])
def test_a_seal_is_of_one_report_and_its_files(change: str, tmp_path: Path) -> None:
    files = [tmp_path / "a", tmp_path / "b"]
    for path in files:
        path.write_text(path.name)
    report = json.loads(json.dumps(sealed({"seconds": 1.5, "loss": float("nan"), "by": {1: [2]}}, files)))
    if change == "a number":
        report["seconds"] = 1.0
    elif change == "a further entry":
        report["more"] = None
    elif change == "no checksum":
        del report["checksum"]
    elif change == "a file":
        files[1].write_text("A")
    elif change == "no file":
        files[1].unlink()
    assert is_sealed(report, files) == (change == "nothing")
