"""``graphmend mend`` with several processes writes what one process writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch_geometric.nn import GCN
from typer.testing import CliRunner

from graphmend.cli import app
from graphmend.files.graph_files import load_graph, save_graph
from graphmend.lab.data import abnormal_features, embedded

NAMES = ("one", "two", "three")
VARYING = ("seconds", "provenance", "history", "candidates", "engine", "checksum")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model and three harmed graphs."""
    folder = tmp_path_factory.mktemp("work")
    said("train", "--dataset", "wine", "--epochs", "20", "--out", folder / "gcn.safetensors", "-q")
    for seed, name in enumerate(NAMES):
        save_graph(folder / f"{name}.npz", abnormal_features(embedded("wine"), seed=seed).tests[0])
    return folder


def said(*arguments: Any) -> str:
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def mended(work: Path, *more: Any) -> list[dict[str, Any]]:
    graphs = [word for name in NAMES for word in ("--graph", work / f"{name}.npz")]
    command = ("mend", "--adapter", "gtrans", "--steps", 3, "--model", work / "gcn.safetensors", *graphs, "--json")
    reports: list[dict[str, Any]] = json.loads(said(*command, *more))
    return [{key: value for key, value in report.items() if key not in VARYING} for report in reports]


def test_processes_write_the_same_files_in_the_same_order(work: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert mended(work, "--out", one) == mended(work, "--out", two, "--jobs", 2)
    assert sorted(path.name for path in one.iterdir()) == sorted(path.name for path in two.iterdir())
    for name in NAMES:
        ours, theirs = load_graph(one / f"{name}.npz"), load_graph(two / f"{name}.npz")
        assert torch.equal(ours.x, theirs.x) and torch.equal(ours.edge_index, theirs.edge_index)
    before = {path: path.stat().st_mtime_ns for path in two.iterdir()}
    assert [report["graph"] for report in mended(work, "--out", two, "--jobs", 2)] == [f"{name}.npz" for name in NAMES]
    assert {path: path.stat().st_mtime_ns for path in two.iterdir()} == before  # all were skipped


def test_a_model_of_ones_own_is_built_in_every_process(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from torch_geometric.nn import GCN\ndef made():\n    return GCN(13, 8, 2, 3)\n"
    (tmp_path / "own_net_for_jobs.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    save_file(GCN(13, 8, 2, 3).state_dict(), tmp_path / "w.safetensors")
    model = ("--factory", "own_net_for_jobs:made", "--weights", "w.safetensors", "--adapter", "gtrans", "--steps", 2)
    graphs = ("--graph", work / "one.npz", "--graph", work / "two.npz")
    reports = json.loads(said("mend", *model, *graphs, "--out", tmp_path / "out", "--jobs", 2, "--json"))
    assert [report["graph"] for report in reports] == ["one.npz", "two.npz"]


@pytest.mark.parametrize("jobs", [0, -2])
def test_a_number_of_processes_that_makes_no_sense(work: Path, tmp_path: Path, jobs: int) -> None:
    command = ["mend", "--model", work / "gcn.safetensors", "--graph", work / "one.npz", "--out", tmp_path, "--jobs"]
    result = CliRunner().invoke(app, [*map(str, command), str(jobs)])
    assert result.exit_code == 2 and f"at least 1, or -1 for all cores (got {jobs})" in result.stderr
