"""Theorem 2: class means of two views, and how compact representations are, against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from graphmend.lab.backbones import GCN
from graphmend.lab.bench.execute import execute
from graphmend.lab.bench.recipes import train_run
from graphmend.lab.bench.store import Run, Store
from graphmend.lab.bench.tasks.theory import Pull, class_gaps, spread
from graphmend.surrogates import Contrastive

Y = torch.tensor([0, 0, 1])


def test_rows_count_by_their_direction() -> None:
    """Class 0 has the means (1/2, 1/2) and (1, 0), class 1 has (1, 0) twice."""
    z = torch.tensor([[3.0, 0.0], [0.0, 0.5], [1.0, 0.0]])
    view = torch.tensor([[1.0, 0.0], [4.0, 0.0], [9.0, 0.0]])
    assert class_gaps(z, view, Y) == [0.5, 0.0]


def test_spread_is_small_within_classes_and_one_at_a_single_point() -> None:
    """Distances to the class means are 1/2, 1/2 and 0; the mean of all rows is (2/3, 1/3)."""
    found = spread(torch.tensor([[3.0, 0.0], [0.0, 0.5], [1.0, 0.0]]), Y)
    assert found == pytest.approx({"within": 1 / 3, "cosine": 5 / 9})
    assert spread(torch.tensor([[2.0, 2.0], [1.0, 1.0], [5.0, 5.0]]), Y) == pytest.approx({"within": 0, "cosine": 1})


def test_the_first_term_is_that_of_the_contrastive_loss() -> None:
    model, data = GCN(3, 8, 2), Data(x=torch.rand(5, 3), edge_index=torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]]))
    terms = [loss.terms(model, data, torch.Generator().manual_seed(0)) for loss in (Pull(), Contrastive())]
    assert list(terms[0]) == ["pull"] and torch.equal(terms[0]["pull"], terms[1]["pull"])


def test_the_first_term_alone_gathers_all_nodes_and_the_second_keeps_them_apart(tmp_path: Path) -> None:
    train = train_run("digits-shift", "gcn", 0, {"name": "erm", "epochs": 5})
    run = Run("class_means", {**train.settings, "graph": 0, "steps": [20], "lr": 0.1}, (train,))
    store = Store(tmp_path)
    execute([run], store)
    found = store.require(run)
    assert len(found["gaps"]) == 10 and found["pull 20"]["reason"] is None
    assert found["pull 20"]["cosine"] > found["before"]["cosine"] > found["both 20"]["cosine"]
    assert found["pull 20"]["within"] < found["before"]["within"]


def test_the_first_term_alone_collapses_and_both_do_not(tmp_path: Path) -> None:
    """On a small connected graph: all nodes come to one point, or spread out."""
    store, run = Store(tmp_path), Run("collapse", {"steps": [600], "lr": 0.03, "seed": 0})
    execute([run], store)
    found = store.require(run)
    assert found["pull"]["0"] == found["both"]["0"] < 0.9
    assert found["pull"]["600"] > 0.95 and found["both"]["600"] < 0.2
