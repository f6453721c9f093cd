"""The verdict does not depend on what means nothing: the order of nodes, the unit of the features, the time."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from graphmend import Gate, card
from graphmend.results.verdict import Evidence, Verdict
from support.adapter_cases import assert_same_result
from support.gate_cases import IN, N, card_of, moved, planted, trained, with_bad_rows, with_features, with_other_classes
from support.graphs import rng

GRAPHS: dict[str, Callable[[], Data]] = {
    "fresh": lambda: planted(1),
    "moved": lambda: moved(planted(1)),
    "rows": lambda: with_bad_rows(planted(1)),
    "classes": with_other_classes,
}
graphs = pytest.mark.parametrize("what", GRAPHS)
models = pytest.mark.parametrize("name", ["gcn", "stock GraphSAGE"])


def verdict(model: nn.Module, data: Data, train: Data | None) -> Verdict:
    known = None if train is None else card(model, train, task="classes")
    result = Gate()(model, data, card=known, task="classes").verdict
    assert result is not None
    return result


def assert_same_verdict(one: Verdict, other: Verdict, tolerance: float) -> None:
    assert (one.decision, one.menders, one.regime) == (other.decision, other.menders, other.regime)
    assert [item.name for item in one.evidence] == [item.name for item in other.evidence]
    for first, second in zip(one.evidence, other.evidence, strict=True):
        assert first.value == pytest.approx(second.value, rel=tolerance, abs=tolerance), first.name
        assert first.threshold == pytest.approx(second.threshold, rel=tolerance, abs=tolerance), first.name
    assert one.flips == pytest.approx(other.flips, abs=tolerance)


@graphs
@models
@pytest.mark.parametrize("with_card", [True, False], ids=["card", "blind"])
def test_the_same_call_gives_the_same_verdict(name: str, what: str, with_card: bool) -> None:
    data, made = GRAPHS[what](), card_of(name) if with_card else None
    first = Gate()(trained(name), data, card=made)
    torch.rand(5)
    second = Gate()(trained(name), copy.deepcopy(data), card=made)
    assert first.verdict == second.verdict
    assert_same_result(first, second)


@graphs
@models
def test_the_unit_of_the_features_does_not_matter(name: str, what: str) -> None:
    """Features ten times as large and a first layer ten times as small are the same model on the same graph."""
    model, train, data = copy.deepcopy(trained(name)).double(), planted(), GRAPHS[what]()
    train, data = (with_features(graph, graph.x.double()) for graph in (train, data))
    other = copy.deepcopy(model)
    with torch.no_grad():
        for key, weight in other.named_parameters():
            if weight.dim() == 2 and IN in weight.shape and key.startswith("convs.0"):
                weight.div_(10)
    larger = [with_features(graph, 10 * graph.x) for graph in (train, data)]
    torch.testing.assert_close(other(larger[1].x, data.edge_index), model(data.x, data.edge_index))
    first, second = verdict(model, data, train), verdict(other, larger[1], larger[0])
    assert (first.decision, first.menders) == (second.decision, second.menders)
    assert_same_verdict(first, second, 0.2)  # random halves and groups of nodes are drawn by what is in the rows


@graphs
@models
@pytest.mark.parametrize("with_card", [True, False], ids=["card", "blind"])
def test_the_order_of_the_nodes_does_not_matter(name: str, what: str, with_card: bool) -> None:
    model = copy.deepcopy(trained(name)).double()
    train, data = (with_features(graph, graph.x.double()) for graph in (planted(), GRAPHS[what]()))
    order = torch.randperm(N, generator=rng(3))
    place = order.argsort()
    other = Data(x=data.x[order], edge_index=place[data.edge_index])
    first, second = (verdict(model, graph, train if with_card else None) for graph in (data, other))
    assert_same_verdict(first, second, 1e-6)


@graphs
@pytest.mark.parametrize("with_card", [True, False], ids=["card", "blind"])
def test_the_verdict_can_be_written_as_json(what: str, with_card: bool) -> None:
    result = Gate()(trained("gcn"), GRAPHS[what](), card=card_of("gcn") if with_card else None)
    assert result.verdict is not None
    read = json.loads(json.dumps(result.summary(), allow_nan=False))["verdict"]
    assert read["decision"] == result.verdict.decision and read["menders"] == list(result.verdict.menders)
    assert [item["holds"] for item in read["evidence"]] == [item.holds for item in result.verdict.evidence]
    assert str(result.verdict) == read["sentence"]


def test_evidence_says_on_which_side_it_is() -> None:
    item = Evidence("shift", 0.5, 0.4, above=True)
    assert item.holds and "0.5" in str(item) and "at least 0.4" in str(item)
    assert not replace(item, above=False).holds
    assert "above the limit" in str(replace(item, above=False)) and "at most 0.4" in str(replace(item, above=False))
    assert replace(item, value=0.4).holds and replace(item, value=0.4, above=False).holds
