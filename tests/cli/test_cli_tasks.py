"""The commands for models that predict labels or numbers: cards, scores, labels in a file, explanations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

import graphmend
from graphmend.files.graph_files import save_graph
from support.commands import run
from support.gate_cases import planted

pytestmark = pytest.mark.usefixtures("one_thread")

IN, COLUMNS = 16, {"numbers": 1, "labels": 3}
FACTORY = """
from torch_geometric.nn import GraphSAGE
def numbers():
    return GraphSAGE(16, 8, 2, 1)
def labels():
    return GraphSAGE(16, 8, 2, 3)
"""
every_task = pytest.mark.parametrize("task", sorted(COLUMNS))


def truth(task: str, x: torch.Tensor) -> torch.Tensor:
    return x[:, :5].sum(1) if task == "numbers" else (x[:, :3] > 0).float()


def graph(task: str, seed: int, share_broken: int = 0) -> Data:
    """A graph with its labels; every so many rows are broken."""
    plain = planted(seed)
    data = Data(x=plain.x.clone(), edge_index=plain.edge_index, y=truth(task, plain.x))
    data.test_mask = torch.arange(data.x.size(0)) % 2 == 0
    if share_broken:
        data.x[::share_broken] *= 50
    return data


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Models of both tasks, with a training graph, and one of today with labels and one without."""
    (tmp_path / "models_of_tasks.py").write_text(FACTORY)
    for task, columns in COLUMNS.items():
        torch.manual_seed(0)
        torch.save(GraphSAGE(IN, 8, 2, columns).state_dict(), tmp_path / f"{task}.pt")
        today = graph(task, 1, 9)
        save_graph(tmp_path / f"{task}_train.npz", graph(task, 0))
        save_graph(tmp_path / f"{task}_today.npz", today)
        del today.y
        save_graph(tmp_path / f"{task}_unlabelled.npz", today)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def of(task: str) -> list[str]:
    return ["--factory", f"models_of_tasks:{task}", "--weights", f"{task}.pt"]


def mended(task: str, name: str, *more: str) -> dict[str, Any]:
    done = run("mend", *of(task), "--graph", f"{task}_{name}.npz", "--out", "out", "--json", *more)
    assert done.exit_code == 0, done.output
    (report,) = json.loads(done.stdout)
    return dict(report)


def carded(task: str) -> None:
    done = run("card", *of(task), "--graph", f"{task}_train.npz")
    assert done.exit_code == 0 and f"the task {task}" in done.stdout, done.output


@every_task
def test_a_card_says_what_is_predicted_and_speaks_of_no_classes(task: str, work: Path) -> None:
    carded(task)
    done = run("info", f"{task}.card.safetensors")
    assert done.exit_code == 0 and task in done.stdout and "kinds of nodes" in done.stdout
    assert "class" not in done.stdout


@every_task
def test_a_graph_with_labels_is_scored_as_its_task_is(task: str, work: Path) -> None:
    carded(task)
    report = mended(task, "today")
    wanted = {"numbers": {"mae", "r2"}, "labels": {"roc_auc", "average_precision", "micro_f1"}}[task]
    assert set(report["test"]["before"]) == set(report["test"]["after"]) == wanted and report["task"] == task
    model = GraphSAGE(IN, 8, 2, COLUMNS[task]).eval()
    model.load_state_dict(torch.load(work / f"{task}.pt"))
    data = graph(task, 1, 9)
    expected = graphmend.mend(model, data, card=f"{task}.card.safetensors").compare(data.y, data.test_mask)
    assert report["test"]["before"] == pytest.approx(expected.before, abs=1e-6)
    assert report["test"]["after"] == pytest.approx(expected.after, abs=1e-6)
    stored = np.load(work / "out" / f"{task}_today.predictions.npz")["prediction"]
    assert (stored.dtype.kind == "f") == (task == "numbers")
    said = run("mend", *of(task), "--graph", f"{task}_today.npz", "--out", "again", "--report")
    assert said.exit_code == 0 and f"test {'mae' if task == 'numbers' else 'roc_auc'}" in said.stdout, said.output
    pytest.importorskip("jinja2")
    assert min(wanted) in (work / "again" / f"{task}_today.html").read_text()


@every_task
def test_a_graph_without_labels_needs_a_card_or_a_name_to_count_changes(task: str, work: Path) -> None:
    report = mended(task, "unlabelled", "--no-card")
    assert report["task"] == "unknown" and report["verdict"]["flips"] is None and report["feature_rows_changed"] == 45
    assert "prediction" not in np.load(work / "out" / f"{task}_unlabelled.predictions.npz")
    named = mended(task, "unlabelled", "--no-card", "--task", task)
    assert named["task"] == task and named["verdict"]["flips"] > 0


@every_task
def test_labels_in_a_file_are_rows_of_numbers(task: str, work: Path) -> None:
    carded(task)
    nodes = mended(task, "unlabelled", "--questions", "6")["questions"]
    y = truth(task, planted(1).x).reshape(-1, COLUMNS[task])
    rows = [",".join(map(str, [node, *y[node].tolist()])) for node in nodes]
    (work / "l.csv").write_text("\n".join(rows))
    report = mended(task, "unlabelled", "--labels", "l.csv")
    assert "speak for the change" in report["verdict"]["sentence"]
    assert mended(task, "unlabelled", "--labels", "l.csv") == report, "the same labels are the same work"
    (work / "l.csv").write_text(f"{nodes[0]},1.5,2")
    done = run("mend", *of(task), "--graph", f"{task}_unlabelled.npz", "--labels", "l.csv", "--out", "out")
    assert done.exit_code == 2 and f"gives node {nodes[0]} the label 1.5,2, but each node has" in done.stderr


@every_task
def test_a_change_is_explained_as_the_task_is(task: str, work: Path) -> None:
    carded(task)
    mended(task, "unlabelled")
    patch = f"out/{task}_unlabelled.patch.safetensors"
    asked = ["explain", "0", *of(task), "--graph", f"{task}_unlabelled.npz", "--patch", patch]
    told = run(*asked)
    words = "Number 0 of node 0 went from" if task == "numbers" else "Label"
    assert told.exit_code == 0 and words in told.stdout and "class" not in told.stdout, told.output
    (work / f"{task}.card.safetensors").unlink()
    told = run(*asked)
    assert told.exit_code == 2 and "(--task)" in told.stderr
    assert run(*asked, "--task", task).exit_code == 0
