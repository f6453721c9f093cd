"""Every surrogate that can be made by name works on the command line; the others say what they need."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphmend.cli import app
from graphmend.files.graph_files import save_graph
from graphmend.lab.backbones import GCN, save_model
from graphmend.surrogates import SURROGATES
from support.graphs import labelled


def arguments(folder: Path, surrogate: str) -> list[str]:
    save_model(GCN(5, 8, 3), folder / "model.safetensors")
    save_graph(folder / "graph.npz", labelled())
    files = ["--model", str(folder / "model.safetensors"), "--graph", str(folder / "graph.npz")]
    return ["mend", *files, "--out", str(folder / "out"), "--adapter", "gtrans", "--surrogate", surrogate, "--json"]


@pytest.mark.parametrize("name", SURROGATES)
@pytest.mark.parametrize("labels", [False, True], ids=["alone", "beside labels"])
def test_the_command_line_takes_it_by_name(name: str, labels: bool, tmp_path: Path) -> None:
    more = ["--label-mask", "train_mask"] if labels else []
    done = CliRunner().invoke(app, [*arguments(tmp_path, name), *more, "--steps", "3"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)[0]
    assert len(report["history"]) == 3 and report["reason"] is None
    assert ("supervised" in report["history"][0]["terms"]) == labels


@pytest.mark.parametrize("name", ["slaps", "moments", "supervised"])
def test_the_others_say_what_they_need(name: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, arguments(tmp_path, name))
    assert done.exit_code != 0 and "cannot be made by name" in " ".join(done.output.split())
