"""Every experiment runs and can be shown, on embedded data for a few epochs. They share what they have in common."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphmend.cli import app
from graphmend.lab.bench.experiments import EXPERIMENTS
from graphmend.lab.bench.store import Store

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("smoke")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_runs_and_renders(name: str, folder: Path, tmp_path: Path) -> None:
    place = ["--smoke", "--store", str(folder)]
    result = CliRunner().invoke(app, ["bench", name, *place], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 80 or "failed" in result.stdout
    store, experiment = Store(folder), EXPERIMENTS[name]
    for run in experiment.runs(experiment.choice.for_smoke(experiment.setting)):
        record = store.read(run)
        assert record is not None and record["status"] == "done", record
    result = CliRunner().invoke(app, ["bench", "render", name, *place, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    endings = {path.suffix for path in tmp_path.iterdir()}
    table = {".md", ".csv", ".tex"} if experiment.render else set()
    assert endings == table | ({".png", ".svg"} if experiment.figure else set())
    assert all(path.stat().st_size for path in tmp_path.iterdir())
