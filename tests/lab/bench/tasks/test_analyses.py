"""CMD, t-SNE and gradient correlation as tasks agree with the library called by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmend import GTrans
from graphmend.lab.bench.execute import execute
from graphmend.lab.bench.recipes import adapt_run, train_run
from graphmend.lab.bench.store import Run, Store
from graphmend.lab.bench.workspace import Workspace
from graphmend.lab.metrics import cmd, gradient_correlation

FEW = {"name": "erm", "epochs": 5}
SHIFT = train_run("digits-shift", "gcn", 0, FEW)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def done(run: Run, store: Store) -> tuple[dict[str, Any], Workspace]:
    execute([run], store)
    return store.require(run), Workspace(store, torch.device("cpu"))


@torch.no_grad()
def test_the_shift_of_each_test_graph_is_its_cmd_to_the_training_graph(store: Store) -> None:
    found, workspace = done(Run("cmd", SHIFT.settings, (SHIFT,)), store)
    settings = dict(SHIFT.settings)
    splits, model = workspace.splits(settings), workspace.model(settings).eval()
    z = [model.embed(data.x, data.edge_index) for data in (*splits.train, *splits.val, *splits.test)]
    assert [found["validation"], *found["tests"]] == pytest.approx([cmd(z[0], other) for other in z[1:]], rel=1e-5)


def test_groups_of_test_graphs_count_as_one(store: Store) -> None:
    train = train_run("elliptic-size", "gcn", 0, {"name": "erm", "epochs": 1})
    found, _ = done(Run("cmd", train.settings, (train,)), store)
    assert len(found["tests"]) == 9


@pytest.mark.parametrize("surrogate", [{"name": "contrastive"}, {"name": "entropy", "nodes": 1000}])
def test_the_path_of_the_correlation_is_that_of_gtrans(store: Store, surrogate: dict[str, Any]) -> None:
    own = {"surrogate": surrogate, "lr": 0.01, "steps": 4, "graph": 1}
    found, workspace = done(Run("correlation", {**SHIFT.settings, **own}, (SHIFT,)), store)
    settings = dict(SHIFT.settings)
    model, data = workspace.model(settings), workspace.splits(settings).test[1]
    name = str(surrogate["name"])
    gtrans = GTrans(name, edge_steps=0, steps=5, lr_feature=0.01, feature_scale="absolute")
    losses = [step.loss for step in gtrans(model, data, mode="eager").history]
    assert found["surrogate"] == pytest.approx(losses, abs=1e-4)
    assert found["rho"][0] == pytest.approx(gradient_correlation(model, data, name, data.y), abs=1e-4)
    assert len(found["test"]) == 5


def test_the_plane_shows_the_test_nodes_of_the_adapted_graph(store: Store) -> None:
    train = train_run("wine", "gcn", 0, FEW)
    adapt = adapt_run(train, {"name": "gtrans", "steps": 3, "surrogate_weight": 0.1}, abnormal=0.3)
    found, workspace = done(replace(adapt, task="tsne"), store)
    data = workspace.splits(dict(train.settings)).test[0]
    nodes = int(data.test_mask.sum())
    assert len(found["before"]) == len(found["after"]) == len(found["abnormal"]) == nodes
    assert found["labels"] == data.y[data.test_mask].tolist()
    assert sum(found["abnormal"]) == pytest.approx(0.3 * nodes, abs=1)
    execute([adapt], store)
    assert found["scores"][1] == pytest.approx(store.require(adapt)["score"], abs=1e-9)
