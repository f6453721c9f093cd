"""Columns for data frames, against loops; pandas itself is optional."""

from __future__ import annotations

import importlib.util
import math

import pytest
import torch

from graphmend import GTrans
from graphmend.errors import GraphMendError, optional_module
from graphmend.lab.backbones import GCN
from graphmend.results.adaptation import Adaptation
from graphmend.results.history import Step, Steps
from graphmend.results.tables import frame, node_columns, step_columns
from support.graphs import labelled

pytestmark = pytest.mark.usefixtures("one_thread")
has_pandas = importlib.util.find_spec("pandas") is not None


@pytest.fixture(scope="module")
def result() -> Adaptation:
    torch.manual_seed(0)
    return GTrans(steps=10, edge_steps=3, lr_edge=0.9, lr_feature=0.5, budget=0.3)(GCN(5, 8, 3), labelled(40))


def test_a_row_per_node(result: Adaptation) -> None:
    data, columns = labelled(40), node_columns(result)
    assert list(columns) == ["node", "before", "after", "changed", "feature_change", "edges_removed", "edges_added"]
    assert all(column.shape == (40,) for column in columns.values()) and columns["edges_removed"].sum() > 0
    removed = result.patch.removed_edges().t().tolist()
    for node in range(40):
        distance = math.dist(data.x[node].tolist(), result.data.x[node].tolist())
        assert columns["feature_change"][node] == pytest.approx(distance, rel=1e-6)
        assert columns["edges_removed"][node] == sum(target == node for _, target in removed)
        assert columns["before"][node] == int(result.before[node].argmax())
        assert columns["after"][node] == int(result.logits[node].argmax())
    assert columns["changed"].nonzero()[0].tolist() == result.changed.tolist()


def test_a_row_per_step() -> None:
    steps = Steps(
        [Step(0, "feature", 3.0, {"a": 1.0, "b": 2.0}, 0.5, 0.0, 0.1), Step(1, "edge", 1.0, {"a": 1.0}, 0.4, 2.0, 0.2)]
    )
    columns = step_columns(steps)
    assert columns["index"] == [0, 1] and columns["kind"] == ["feature", "edge"] and columns["loss"] == [3.0, 1.0]
    assert columns["loss_a"] == [1.0, 1.0] and columns["loss_b"][0] == 2.0 and math.isnan(columns["loss_b"][1])
    assert (
        columns["flipped"] == [0.0, 2.0] and columns["seconds"] == [0.1, 0.2] and columns["gradient_norm"] == [0.5, 0.4]
    )


@pytest.mark.skipif(has_pandas, reason="pandas is here")
def test_without_pandas_there_is_a_remedy(result: Adaptation) -> None:
    for make in (result.to_frame, result.history.to_frame):
        with pytest.raises(GraphMendError, match=r"a data frame needs pandas .*pip install pandas"):
            make()


@pytest.mark.skipif(not has_pandas, reason="pandas is not here")
def test_with_pandas_there_are_frames(result: Adaptation) -> None:
    assert result.to_frame().shape == (40, 7) and len(result.history.to_frame()) == 10
    assert list(frame({"a": [1]}).columns) == ["a"]


def test_a_missing_module_is_named() -> None:
    with pytest.raises(GraphMendError, match=r"a picture needs no_such_module .*; buy one"):
        optional_module("no_such_module.part", "a picture", "buy one")
