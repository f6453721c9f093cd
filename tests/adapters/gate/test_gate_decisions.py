"""What the gate does with graphs of which it is known what is wrong with them."""

from __future__ import annotations

import json

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import Data

from graphmend import Adaptation, Gate, GraphMendError, Limits, card
from graphmend.results.verdict import Verdict
from support.gate_cases import (
    ATTACKED,
    BAD_ROWS,
    CLASSES,
    IN,
    MODELS,
    N,
    accuracy,
    attacked,
    card_of,
    moved,
    plain_logits,
    planted,
    reading_circles,
    trained,
    with_bad_rows,
    with_features,
    with_other_classes,
    with_unseen_columns,
)
from support.graphs import rng
from support.untouched import assert_same, state_of

carded = pytest.mark.parametrize("with_card", [True, False], ids=["card", "blind"])
models = pytest.mark.parametrize("name", MODELS)


def ask(name: str, data: Data, with_card: bool = True, limits: Limits | None = None) -> Adaptation:
    return Gate()(trained(name), data, card=card_of(name) if with_card else None, limits=limits)


def verdict_of(result: Adaptation) -> Verdict:
    assert result.verdict is not None
    return result.verdict


def assert_left_alone(result: Adaptation, name: str, data: Data) -> None:
    assert verdict_of(result).decision == "left alone" and verdict_of(result).menders == ()
    assert verdict_of(result).sentence.startswith("left alone: ")
    assert result.reason is None and result.patch.num_rows == result.patch.num_removed == result.patch.num_added == 0
    assert torch.equal(result.data.x, data.x) and torch.equal(result.data.edge_index, data.edge_index)
    torch.testing.assert_close(result.logits, plain_logits(trained(name), data))


@models
def test_graphs_that_the_model_was_trained_on_are_left_alone_however_they_differ(name: str) -> None:
    graphs = [planted(0), moved(planted(0))]
    both = card(trained(name), graphs, task="classes")
    assert verdict_of(ask(name, graphs[1])).decision == "applied", (
        "to a card of the first one the other one has shifted"
    )
    for data in graphs:
        assert_left_alone(Gate()(trained(name), data, card=both), name, data)


@models
@carded
@pytest.mark.parametrize("seed", [0, 1], ids=["the training graph", "a fresh draw"])
def test_a_graph_that_has_not_shifted_is_left_alone(name: str, with_card: bool, seed: int) -> None:
    data = planted(seed)
    before = state_of(trained(name), data)
    result = ask(name, data, with_card)
    assert_same(before, state_of(trained(name), data))
    assert_left_alone(result, name, data)


@models
def test_moved_features_are_aligned(name: str) -> None:
    data = moved(planted(1))
    before = state_of(trained(name), data)
    result = ask(name, data)
    assert_same(before, state_of(trained(name), data))
    assert (verdict_of(result).decision, verdict_of(result).menders) == ("applied", ("align",))
    assert result.patch.num_rows == N and result.patch.num_removed == 0
    torch.testing.assert_close(result.logits, plain_logits(trained(name), result.data), rtol=1e-3, atol=1e-3)
    if name != "single logit":
        assert accuracy(result.logits, data) > accuracy(plain_logits(trained(name), data), data) + 0.05


def test_without_a_card_aligning_with_a_batch_normalisation_is_only_proposed() -> None:
    data = moved(planted(1))
    result = ask("gcn", data, with_card=False)
    assert_left_alone(result, "gcn", data)
    assert verdict_of(result).regime == "blind" and result.alternative is not None
    nodes = result.questions(25)
    settled = result.decide(data.y[nodes])
    assert verdict_of(settled).menders == ("align",)
    assert accuracy(settled.logits, data) > accuracy(plain_logits(trained("gcn"), data), data) + 0.05


def test_without_batch_normalisation_and_card_there_is_nothing_to_propose() -> None:
    data = moved(planted(1))
    result = ask("sage", data, with_card=False)
    assert_left_alone(result, "sage", data)
    assert result.alternative is None and result.questions().numel() == 0
    assert "graphmend.card" in verdict_of(result).next_step


@models
@carded
def test_abnormal_rows_are_imputed(name: str, with_card: bool) -> None:
    data = with_bad_rows(planted(1))
    result = ask(name, data, with_card)
    assert (verdict_of(result).decision, verdict_of(result).menders) == ("applied", ("impute",))
    changed = (result.data.x != data.x).any(1)
    assert torch.equal(changed, BAD_ROWS), "these rows and no others"
    torch.testing.assert_close(result.logits, plain_logits(trained(name), result.data))
    if name != "single logit":
        assert accuracy(result.logits, data) > accuracy(plain_logits(trained(name), data), data) + 0.2


def test_edges_of_an_attack_are_cut() -> None:
    model, made, data = attacked()
    result = Gate()(model, data, card=made)
    assert (verdict_of(result).decision, verdict_of(result).menders) == ("applied", ("purify",))
    assert result.patch.num_rows == 0 and result.patch.num_removed > 0
    torch.testing.assert_close(result.logits, plain_logits(model, result.data))
    clean = {tuple(edge) for edge in reading_circles().edge_index.t().tolist()}
    cut = [tuple(edge) for edge in data.edge_index[:, result.patch.removed].t().tolist()]
    wrong = sum(edge not in clean for edge in cut) / len(cut)
    inserted = sum(tuple(edge) not in clean for edge in data.edge_index.t().tolist()) / data.edge_index.size(1)
    assert wrong > 2 * inserted, "mostly those of the attacker"
    before, after = (
        accuracy(logits[ATTACKED], Data(y=data.y[ATTACKED])) for logits in (plain_logits(model, data), result.logits)
    )
    assert after > before


def test_the_graph_before_the_attack_is_left_alone() -> None:
    model, made, _ = attacked()
    result = Gate()(model, reading_circles(), card=made)
    assert verdict_of(result).decision == "left alone" and result.patch.num_removed == 0


@pytest.mark.parametrize("name", ["gcn", "sage", "stock GCN", "stock GraphSAGE", "stock GAT", "log-softmax"])
def test_other_class_shares_are_no_error(name: str) -> None:
    data = with_other_classes()
    result = ask(name, data)
    assert_left_alone(result, name, data)
    assert not verdict_of(result).evidence[-1].holds


@pytest.mark.parametrize("name", ["gcn", "stock GIN"])
@carded
def test_other_class_shares_harm_nobody(name: str, with_card: bool) -> None:
    data = with_other_classes()
    assert_left_alone(ask(name, data, with_card), name, data)


def test_other_shares_of_groups_within_a_class_are_no_error_either() -> None:
    """The model knows two classes of two groups each; an alignment would cost it 14 points of accuracy."""
    data = with_other_classes()
    assert_left_alone(ask("single logit", data), "single logit", data)


def test_columns_that_the_model_has_never_seen_vary() -> None:
    data = with_unseen_columns(moved(planted(1)))
    result = ask("gcn", data)
    assert_left_alone(result, "gcn", data)
    assert "never varied" in verdict_of(result).evidence[-1].name, "nothing else was looked at"
    broken = with_features(data, torch.where(BAD_ROWS.unsqueeze(1), 1e3 * data.x, with_bad_rows(planted(1)).x))
    assert "impute" in verdict_of(ask("gcn", broken)).menders, "unless only broken rows say something there"


@pytest.mark.parametrize("what, with_card", [("rows", True), ("rows", False), ("moved", True)])
def test_limits_hold_for_features(what: str, with_card: bool) -> None:
    rows, columns = torch.arange(N) % 4 == 0, torch.arange(IN) == 1
    data = with_bad_rows(planted(1)) if what == "rows" else moved(planted(1), 0.5, 1.5)
    lowest = float(data.x.min())
    free = ask("gcn", data, with_card)
    result = ask("gcn", data, with_card, Limits(frozen_nodes=rows, frozen_columns=columns, minimum=lowest))
    assert verdict_of(free).menders[0] == verdict_of(result).menders[0] == ("impute" if what == "rows" else "align")
    assert torch.equal(result.data.x[rows], data.x[rows])
    assert torch.equal(result.data.x[:, columns], data.x[:, columns])
    assert float(result.data.x.min()) >= lowest
    assert what == "rows" or float(free.data.x.min()) < lowest, "otherwise the minimum is not tested"
    torch.testing.assert_close(result.logits, plain_logits(trained("gcn"), result.data), rtol=1e-3, atol=1e-3)


@carded
def test_where_no_row_may_change_none_is_said_to_be_replaced(with_card: bool) -> None:
    data = with_bad_rows(planted(1))
    result = ask("sage", data, with_card, Limits(frozen_nodes=torch.ones(N, dtype=torch.bool)))
    assert_left_alone(result, "sage", data)


def test_limits_hold_for_edges() -> None:
    model, made, data = attacked()
    free = Gate()(model, data, card=made).patch.removed
    frozen = torch.zeros(data.edge_index.size(1), dtype=torch.bool)
    frozen[free[::2]] = True
    result = Gate()(model, data, card=made, limits=Limits(frozen_edges=frozen))
    assert not bool(frozen[result.patch.removed].any())
    nothing = Gate()(model, data, card=made, limits=Limits(frozen_edges=torch.ones_like(frozen)))
    assert verdict_of(nothing).decision == "left alone" and nothing.patch.num_removed == 0


SICK = {
    "one node": lambda data: Data(x=data.x[:1], edge_index=torch.zeros(2, 1, dtype=torch.long)),
    "two nodes": lambda data: Data(x=data.x[:2], edge_index=torch.tensor([[0, 1], [1, 0]])),
    "constant features": lambda data: with_features(data, torch.full_like(data.x, 0.3)),
    "no features at all": lambda data: with_features(data, torch.zeros_like(data.x)),
}


@models
@carded
@pytest.mark.parametrize("what", SICK)
@pytest.mark.filterwarnings("error")
def test_degenerate_graphs_are_left_alone(name: str, with_card: bool, what: str) -> None:
    data = SICK[what](planted(1))
    result = ask(name, data, with_card)
    assert_left_alone(result, name, data)
    assert bool(result.logits.isfinite().all())
    json.dumps(result.summary(), allow_nan=False)


@pytest.mark.parametrize("what", ["two nodes", "constant features"])
def test_a_card_of_a_degenerate_graph_leaves_that_graph_alone(what: str) -> None:
    data, model = SICK[what](planted()), trained("gcn")
    result = Gate()(model, data, card=card(model, data, task="classes"))
    assert_left_alone(result, "gcn", data)


def test_a_graph_without_any_features_has_no_card() -> None:
    with pytest.raises(GraphMendError, match=r"the node features do not vary: .* check x"):
        card(trained("gcn"), SICK["no features at all"](planted()), task="classes")


@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GAT", "GIN"])
def test_stock_models_with_batch_normalisation_can_be_asked_in_both_ways(name: str) -> None:
    torch.manual_seed(0)
    model: nn.Module = getattr(pyg, name)(IN, 8, num_layers=2, out_channels=CLASSES, norm="BatchNorm")
    made = card(model.eval(), planted(), task="classes")
    for data in (planted(1), moved(planted(1)), with_bad_rows(planted(1))):
        for given in (made, None):
            before = state_of(model, data)
            result = Gate()(model, data, card=given)
            assert_same(before, state_of(model, data))
            assert result.reason is None and verdict_of(result).regime == ("blind" if given is None else "card")
            json.dumps(result.summary(), allow_nan=False)


def test_a_model_with_edge_weights_and_a_graph_that_has_them() -> None:
    data = moved(planted(1))
    data.edge_weight = 0.5 + torch.rand(data.edge_index.size(1), generator=rng(1))
    train = planted()
    train.edge_weight = torch.ones(train.edge_index.size(1))
    model = trained("gcn")
    result = Gate()(model, data, card=card(model, train, task="classes"))
    assert verdict_of(result).menders == ("align",) and torch.equal(result.data.edge_weight, data.edge_weight)
    with torch.no_grad():
        expected = model(result.data.x, data.edge_index, data.edge_weight)
    torch.testing.assert_close(result.logits, expected, rtol=1e-3, atol=1e-3)
