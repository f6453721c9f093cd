"""``graphmend bench``, as a person uses it; that every experiment runs is in tests/bench/test_smoke.py."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from graphmend.cli import app
from graphmend.lab.bench.execute import Watch, ordered
from graphmend.lab.bench.experiments import EXPERIMENTS
from graphmend.lab.bench.store import Run, Store
from graphmend.lab.cli.bench import bench_app
from graphmend.lab.cli.bench_run import written

pytestmark = pytest.mark.usefixtures("one_thread")
NAME = "abnormal-methods"
PART = ("--smoke", "--method", "gcn", "--method", "jaccard")


def call(*arguments: Any, **variables: str) -> Any:
    words = ["bench", *map(str, arguments)]
    return CliRunner().invoke(app, words, env={"COLUMNS": "80", **variables})


def said(*arguments: Any, **variables: str) -> str:
    result = call(*arguments, **variables)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a part of an experiment."""
    place = tmp_path_factory.mktemp("bench")
    said(NAME, *PART, "--store", place)
    return place


def test_all_experiments_are_listed() -> None:
    words = " ".join(said("list").split())
    for name, experiment in EXPERIMENTS.items():
        assert f"{name} {experiment.item}" in words
    listed = json.loads(said("list", "--json"))
    assert listed == [{"name": name, "item": experiment.item} for name, experiment in EXPERIMENTS.items()]


def test_no_experiment_has_the_name_of_a_command() -> None:
    commands = {info.name or info.callback.__name__ for info in bench_app.registered_commands if info.callback}
    assert {"list", "run", "status", "render", "pack", "unpack", "verify"} == commands and not commands & set(
        EXPERIMENTS
    )


@pytest.mark.parametrize("words", [(NAME, *PART), ("run", NAME, *PART), (*PART, NAME)], ids=["name", "run", "last"])
def test_run_may_be_left_out(folder: Path, words: tuple[str, ...]) -> None:
    text = said(*words, "--store", folder)
    assert "3 runs: 3 were there before, 0 are new, 0 failed." in " ".join(text.split())
    assert "wine: abnormal nodes" in text and max(map(len, text.splitlines()[:-1])) <= 80


def test_the_folder_may_come_from_the_environment(folder: Path) -> None:
    assert "3 were there before" in said(NAME, *PART, GRAPHMEND_BENCH=str(folder))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing",), "unknown experiment 'nothing'; choose one of abnormal-features, "),
        (("status", "nothing"), "unknown experiment 'nothing'; choose one of abnormal-features, "),
        ((NAME, "--method", "magic"), "there is no magic among the methods here: airgnn, "),
        ((NAME, "--backbone", "cnn"), "there is no cnn among the backbones here: gcn"),
        ((NAME, "--smoke", "--dataset", "cora", "--seeds", "2"), "leave out --dataset and --seeds"),
        ((NAME, "--device", "tpu"), "unknown device 'tpu'"),
        ((NAME, "--jobs", "0"), "jobs must be at least 1"),
        ((NAME, "--ray", "auto", "--device", "cuda:1"), "Ray chooses among the GPUs by itself"),
        (("render", NAME, "--out", "tables", "--store", "nowhere"), "there are no results in nowhere"),
        (("unpack", "nothing.tar.xz"), "there is no file nothing.tar.xz"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call(*words)
    assert result.exit_code == 2 and message in result.stderr and result.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
@pytest.mark.parametrize("words", [(NAME, "--ray"), ("--ray", NAME), ("--ray", "10.0.0.1:6379", NAME)])
def test_without_ray_there_is_a_remedy(words: tuple[str, ...], tmp_path: Path) -> None:
    result = call(*words, *PART, "--store", tmp_path)
    assert result.exit_code == 2 and "pip install 'graphmend[ray]'" in result.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_failed_runs_are_named_and_tried_again_if_wanted(tmp_path: Path) -> None:
    store = Store(tmp_path)
    choice = EXPERIMENTS[NAME].choice.narrowed(methods=["gcn"]).for_smoke("robust")
    (run,) = set(EXPERIMENTS[NAME].runs(choice))
    store.write(run, {"status": "failed", "error": "the disk is full", "out_of_memory": False})
    words = (NAME, "--smoke", "--method", "gcn", "--store", tmp_path)
    text = said(*words)
    assert "failed: adapt wine gcn 0: the disk is full; --retry tries again" in text
    assert "2 runs: 1 were there before, 1 are new, 0 failed" in said(*words, "--retry")
    assert store.result(run) is not None


def test_a_table_is_written_in_three_formats(folder: Path, tmp_path: Path) -> None:
    text = said("render", NAME, *PART, "--store", folder, "--out", tmp_path / "new")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [f"{NAME}.{e}" for e in ("csv", "md", "tex")]
    assert str(tmp_path / "new" / f"{NAME}.md") in text
    assert "| jaccard |" in (tmp_path / "new" / f"{NAME}.md").read_text()


def test_a_figure_is_written_in_two_formats(tmp_path: Path) -> None:
    figure = pytest.importorskip("matplotlib.figure", reason="needs graphmend[plot]").Figure()
    figure.subplots().plot([1, 2])
    assert written(figure, tmp_path / "a.b") == [tmp_path / "a.b.png", tmp_path / "a.b.svg"]
    assert (tmp_path / "a.b.png").read_bytes()[1:4] == b"PNG" and "<svg" in (tmp_path / "a.b.svg").read_text()


def test_a_table_that_is_also_a_figure_is_written_as_both(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs graphmend[plot]")
    said("render", "attack", "--store", folder, "--out", tmp_path)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".csv", ".md", ".png", ".svg", ".tex"]


def test_the_results_of_one_experiment_are_packed(folder: Path, tmp_path: Path) -> None:
    """Those of all seeds and data sets, and none of other experiments; what lies here is a smoke test."""
    assert "0 results" in said("pack", tmp_path / "a.tar.xz", "--experiment", NAME, "--store", folder)
    store = Store(tmp_path / "some")
    one, other = (next(iter(EXPERIMENTS[name].runs(EXPERIMENTS[name].choice))) for name in (NAME, "ood-accuracy"))
    for run in (one, *one.needs, other):
        record(store, run, 1.0)
    assert "2 results" in said("pack", tmp_path / "b.tar.xz", "--experiment", NAME, "--store", store.folder)
    assert "3 results" in said("pack", tmp_path / "c.tar.xz", "--store", store.folder)
    wrong = call("pack", tmp_path / "d.tar.xz", "--experiment", "nothing", "--store", store.folder)
    assert wrong.exit_code == 2 and "nothing" in wrong.stderr


def test_results_travel_in_an_archive(folder: Path, tmp_path: Path) -> None:
    archive, other = tmp_path / "results.tar.xz", tmp_path / "other"
    assert "3 results" in said("pack", archive, "--store", folder)
    assert "3 new results" in said("unpack", archive, "--store", other)
    assert "0 new results" in said("unpack", archive, "--store", other)
    assert "3 were there before" in said(NAME, *PART, "--store", other)


def record(store: Store, run: Run, seconds: float) -> None:
    store.write(run, {"status": "done", "result": {}, "seconds": seconds})


def test_the_time_left_is_that_of_finished_runs_of_the_same_kind(tmp_path: Path) -> None:
    store = Store(tmp_path)
    near, far, other = (
        [Run("adapt", {"dataset": name, "seed": seed}) for seed in range(3)] for name in ("near", "far", "other")
    )
    runs = [*near, *far, *other]
    assert Watch(runs, store)(runs).seconds_left is None
    record(store, near[0], 1.0)
    record(store, far[0], 9.0)
    store.write(near[1], {"status": "failed", "error": "", "out_of_memory": False})
    status = Watch(runs, store)(runs)
    assert (status.total, status.done, status.failed) == (9, 2, 1)
    assert status.seconds_left == 1.0 + 2 * 9.0 + 3 * 5.0  # the mean of all where none of the same data set is done
    assert Watch(runs, store)(near).seconds_left == 1.0


def test_the_status_counts_what_each_experiment_needs(tmp_path: Path) -> None:
    experiment, store = EXPERIMENTS[NAME], Store(tmp_path)
    runs = [run for level in ordered(experiment.runs(experiment.choice)) for run in level]
    record(store, runs[0], 60.0)
    found = json.loads(said("status", NAME, "--json", "--store", tmp_path))
    assert found[NAME]["total"] == len(runs) and found[NAME]["done"] == 1 and found[NAME]["failed"] == 0
    text = said("status", "--store", tmp_path)
    assert all(name in text for name in EXPERIMENTS) and max(map(len, text.splitlines())) <= 80
