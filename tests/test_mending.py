"""One call."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import graphmend
from graphmend import Adaptation, Gate, GraphMendError, GTrans, Identity, Limits, card
from graphmend.adapters import Align
from support.adapter_cases import N, assert_same_result, basic, make_graph, make_model, sage_with_batch_norm
from support.gate_cases import card_of, moved, planted, trained
from support.sample_models import TakesData
from support.untouched import assert_same, state_of

pytestmark = pytest.mark.usefixtures("one_thread")


def other_graph(dtype: torch.dtype) -> Data:
    """A graph like the usual one, with other features."""
    data = make_graph(dtype)
    return Data(x=(0.8 * data.x - 0.2).flip(0), edge_index=data.edge_index)


@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GIN", "GAT", "PNA", "EdgeCNN", "forward(data)"])
@pytest.mark.parametrize("how", ["blind", "card", "source"])
def test_one_call_works_for_any_model(name: str, how: str, caplog: pytest.LogCaptureFixture) -> None:
    model = make_model(torch.float32, TakesData if name == "forward(data)" else lambda: basic(name)).eval()
    data, train = make_graph(torch.float32), other_graph(torch.float32)
    given: dict[str, Any] = {
        "blind": {},
        "card": {"card": card(model, train, task="classes")},
        "source": {"source": train, "task": "classes"},
    }[how]
    before = state_of(model, data)
    result = graphmend.mend(model, data, **given)
    assert_same(before, state_of(model, data))
    assert result.reason is None and result.verdict is not None
    assert result.verdict.regime == ("blind" if how == "blind" else "card")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    with torch.no_grad():
        out = model(result.data) if name == "forward(data)" else model(result.data.x, result.data.edge_index)
    torch.testing.assert_close(out, result.logits, rtol=1e-3, atol=1e-4)


def test_without_an_adapter_the_gate_is_asked() -> None:
    model, data = trained("sage"), moved(planted(1))
    blind = graphmend.mend(model, data)
    assert blind.verdict is not None and blind.verdict.decision == "left alone"
    assert_same_result(blind, Gate()(model, data))
    expected = Gate()(model, data, card=card_of("sage"))
    assert expected.verdict is not None and expected.verdict.menders == ("align",)
    for given in ({"card": card_of("sage")}, {"source": planted()}, {"source": [planted()]}):
        result = graphmend.mend(model, data, **given)  # type: ignore[arg-type]
        assert_same_result(result, expected)
        assert result.verdict == expected.verdict


def test_several_training_graphs_are_one_source() -> None:
    model, graphs = trained("sage"), [planted(), planted(2)]
    result = graphmend.mend(model, moved(planted(1)), source=graphs)
    expected = Gate()(model, moved(planted(1)), card=card(model, graphs, task="classes"))
    assert_same_result(result, expected)
    assert result.verdict == expected.verdict != Gate()(model, moved(planted(1)), card=card_of("sage")).verdict


def test_a_card_and_a_source_are_one_too_many() -> None:
    with pytest.raises(GraphMendError, match="give a card or the source to make one from, not both"):
        graphmend.mend(trained("sage"), planted(), card=card_of("sage"), source=planted())
    with pytest.raises(GraphMendError, match="train_data is an empty list"):
        graphmend.mend(trained("sage"), planted(), source=[])
    with pytest.raises(GraphMendError, match="the source card belongs to another model"):
        graphmend.mend(trained("gcn"), planted(), card=card_of("sage"))


def test_one_call_passes_everything_on() -> None:
    model, data, seen = make_model(), make_graph(), []
    rows = torch.arange(N) < 4
    options: dict[str, Any] = {"seed": 5, "limits": Limits(frozen_nodes=rows)}
    result = graphmend.mend(model, data, GTrans(), callback=seen.append, **options)
    assert_same_result(result, GTrans()(model, data, **options))
    assert len(seen) == 10 and torch.equal(result.data.x[rows], data.x[rows]) and result.verdict is None
    shifted = moved(planted(1))
    frozen = Limits(frozen_nodes=torch.arange(shifted.x.size(0)) < 4)
    kept = graphmend.mend(trained("sage"), shifted, source=planted(), limits=frozen)
    assert kept.patch.num_rows > 0 and torch.equal(kept.data.x[:4], shifted.x[:4])


def test_an_adapter_is_given_the_card() -> None:
    model, data = trained("sage"), moved(planted(1))
    expected = Align()(model, data, card=card_of("sage"))
    assert_same_result(graphmend.mend(model, data, Align(), card=card_of("sage")), expected)
    assert_same_result(graphmend.mend(model, data, Align(), source=planted()), expected)
    calls: list[dict[str, Any]] = []

    def own(model: nn.Module, data: Data, **call: Any) -> Adaptation:
        calls.append(call)
        return Identity()(model, data)

    graphmend.mend(model, data, own)
    graphmend.mend(model, data, own, card=card_of("sage"), seed=3)
    assert calls == [{}, {"card": card_of("sage"), "seed": 3}]


def test_identity_predicts_and_changes_nothing() -> None:
    model, data = make_model(make=sage_with_batch_norm), make_graph()
    before = state_of(model, data)
    result = Identity()(model, data)
    assert_same(before, state_of(model, data))
    assert torch.equal(result.logits, model.eval()(data.x, data.edge_index))
    assert result.reason is None and result.history == [] and result.summary()["feature_rows_changed"] == 0
    assert result.patch.num_rows == result.patch.num_removed == result.patch.num_added == 0


@pytest.mark.parametrize("mark", ["input_id", "batch_size"])
def test_a_batch_of_a_loader_is_refused_with_the_way_to_go(mark: str) -> None:
    """NeighborLoader marks its batches so; the package that samples is not needed for that."""
    model, data = make_model(), make_graph()
    batch = data.clone()
    batch.n_id, batch[mark] = torch.arange(N), torch.arange(4) if mark == "input_id" else 4
    before = state_of(model, data)
    for call in (
        lambda: graphmend.mend(model, batch),
        lambda: GTrans()(model, batch),
        lambda: card(model, batch, task="classes"),
    ):
        with pytest.raises(GraphMendError, match=r"batch of a NeighborLoader.*whole graph, and load batches from resu"):
            call()
    assert_same(before, state_of(model, data))
    del batch.n_id
    assert graphmend.mend(model, batch).reason is None
