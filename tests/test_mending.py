"""One call."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import graphmend
from graphmend import Adaptation, Gate, GraphMendError, GTrans, Identity, Limits, card
from graphmend.adapters import ADAPTERS, Align, Case, Proposal
from graphmend.adapters.registry import adapter_of
from graphmend.model.comparing import is_close
from support.adapter_cases import N, assert_same_result, basic, make_graph, make_model, sage_with_batch_norm
from support.gate_cases import card_of, moved, planted, trained
from support.processes import run_python
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
    assert is_close(result.logits, model.eval()(data.x, data.edge_index))
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


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_by_name_by_class_or_as_it_is(name: str) -> None:
    kind = ADAPTERS[name]
    for given in (name, kind, kind()):
        made = adapter_of(given)
        assert type(made) is kind
    assert getattr(graphmend, kind.__name__) is kind and kind.__name__ in graphmend.__all__


def test_the_three_ways_to_name_an_adapter_give_the_same_result() -> None:
    model, data = trained("sage"), moved(planted(1))
    expected = graphmend.mend(model, data, Align(), card=card_of("sage"))
    for given in ("align", Align, graphmend.Align):
        assert_same_result(graphmend.mend(model, data, given, card=card_of("sage")), expected)
        assert torch.equal(graphmend.Mend(model, given, card=card_of("sage"))(data).x, expected.data.x)


class Asks:
    """An adapter of somebody's own, that cannot be made without an argument."""

    def __init__(self, strength: float) -> None:
        self.strength = strength

    def propose(self, case: Case) -> Proposal:
        return Proposal(case.data.x * self.strength)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("gtrance", r"unknown adapter 'gtrance'; choose one of airgnn_tune, align, "),
        (Asks, r"Asks cannot be made without arguments .*strength.*; give Asks\(\.\.\.\)"),
        (
            card_of("sage"),
            r"the third argument is the adapter; give a card by its name: mend\(model, data, card=\.\.\.\)",
        ),
        ("gcn.card.safetensors", "the third argument is the adapter"),
        (Path("gcn.card.safetensors"), "the third argument is the adapter"),
        (3, "an adapter is one of graphmend.adapters"),
        (nn.Linear, "an adapter is one of graphmend.adapters"),
    ],
    ids=["name", "class", "card", "card file", "path", "number", "other class"],
)
def test_what_is_no_adapter_gets_a_sentence(given: Any, said: str) -> None:
    for call in (graphmend.mend, lambda model, data, adapter: graphmend.Mend(model, adapter)):
        with pytest.raises(GraphMendError, match=said):
            call(trained("sage"), planted(), given)


@pytest.mark.parametrize("kind", [str, Path])
def test_a_card_from_its_file(kind: Any, tmp_path: Path) -> None:
    model, data, path = trained("sage"), moved(planted(1)), tmp_path / "sage.card.safetensors"
    card_of("sage").save(path)
    expected = graphmend.mend(model, data, card=card_of("sage"))
    assert_same_result(graphmend.mend(model, data, card=kind(path)), expected)
    assert_same_result(Gate()(model, data, card=kind(path)), expected)
    assert_same_result(graphmend.mend(model, [data], card=kind(path)).mended[0], expected)
    transform = graphmend.Mend(model, card=kind(path))
    path.unlink()  # it was read when the transform was made
    assert torch.equal(transform(data).x, expected.data.x)


def test_model_and_graph_the_wrong_way_round_get_a_sentence() -> None:
    model, data = trained("sage"), planted()
    for call in (graphmend.mend, card, graphmend.mend_each):
        for given in (data, [data]):
            with pytest.raises(GraphMendError, match=r"the model comes first, then the graph .*; swap them"):
                call(given, model)  # type: ignore[operator]


def test_a_library_without_a_handler_says_nothing() -> None:
    code = """
import torch, logging, graphmend
from torch_geometric.data import Data
from torch_geometric.nn import GCN
data = Data(x=torch.rand(4, 3), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
class Stops:
    def propose(self, case):
        raise graphmend.adapters.Stopped("enough")
import sys, io
sys.stderr = io.StringIO()
assert graphmend.mend(GCN(3, 8, 2, 2), data, Stops()).reason == "enough"
print(repr(sys.stderr.getvalue()), logging.getLogger().handlers, logging.getLogger("graphmend").level)
"""
    assert run_python(code).strip() == "'' [] 0"
