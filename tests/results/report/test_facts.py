"""The numbers on the page of a result are those of the result."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from sklearn.metrics import f1_score
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, global_mean_pool

import graphmend
from graphmend import GTrans, Identity, mend
from graphmend.lab.backbones import GCN
from graphmend.results.report import gather
from graphmend.results.report.facts import EDGES, Facts
from graphmend.results.report.gather import NEIGHBOURS, facts_of, gauges_of
from graphmend.results.report.scores import scores_of, wilson
from graphmend.results.verdict import Evidence, Verdict
from support.gate_cases import card_of, moved, planted, trained
from support.graphs import labelled
from support.untouched import assert_same, state_of

pytestmark = pytest.mark.usefixtures("one_thread")


def gtrans() -> graphmend.Adaptation:
    torch.manual_seed(0)
    return GTrans(steps=10, lr_feature=0.5)(GCN(5, 8, 3), labelled(40))


def test_predictions_move_as_they_do_in_the_result() -> None:
    result = gtrans()
    facts = facts_of(result).predictions
    assert facts is not None
    comparison = result.compare()
    assert {(move.before, move.after): move.nodes for move in facts.moves} == comparison.moves
    assert (facts.nodes, facts.changed) == (40, comparison.changed) and comparison.changed > 0
    assert Counter(dict(enumerate(facts.after))) == Counter(result.predictions.tolist())
    sure = result.logits.double().softmax(1).max(1).values
    assert facts.mean_after == pytest.approx(float(sure.mean()))
    assert list(facts.sure_after) == np.histogram(sure.numpy(), np.linspace(0, 1, 21))[0].tolist()


def test_changes_are_those_of_the_patch() -> None:
    result = gtrans()
    (change,) = facts_of(result).changes
    patch, before = result.patch, result.graph_before()
    counts = {name: count for name, count, _ in change.counts}
    assert counts["feature rows changed"] == patch.num_rows == 40
    assert counts["edge entries removed"] == patch.num_removed > 0
    distance = (result.data.x - before.x).double().norm(dim=1)
    assert [node for node, *_ in change.largest] == distance.argsort(descending=True)[:8].tolist()
    assert change.largest[0][1] == pytest.approx(float(distance.max()), rel=1e-5)
    columns = (result.data.x - before.x).abs().mean(0)
    assert [column for column, *_ in change.columns] == columns.argsort(descending=True).tolist()
    old = result.before.argmax(1)
    pairs = Counter((int(old[a]), int(old[b])) for a, b in patch.removed_edges().t().tolist())
    assert {(a, b): gone for a, b, gone, _ in change.pairs if gone} == pairs


def test_a_node_has_its_neighbours_and_its_explanation() -> None:
    result = gtrans()
    facts = facts_of(result)
    assert {node.node for node in facts.nodes} <= set(result.changed.tolist()) and len(facts.nodes) == 8
    node = facts.nodes[0]
    before = result.graph_before()
    around = set(before.edge_index[0, before.edge_index[1] == node.node].tolist())
    assert {other.node for other in node.neighbours} <= around
    assert len(node.neighbours) + node.more == len(around - {node.node}) and len(node.neighbours) <= NEIGHBOURS
    source, target = result.patch.removed_edges()
    gone = set(source[target == node.node].tolist())
    assert {other.node for other in node.neighbours if other.edge == "removed"} == gone
    why = result.explain(node.node)
    assert node.parts == tuple((part.label, part.effect) for part in why.parts) and node.margin == why.margin
    assert (node.before, node.after) == (why.before, why.after)


def test_every_node_of_the_map_has_its_neighbours_those_that_changed_first() -> None:
    result = gtrans()
    drawn = facts_of(result).map
    assert drawn is not None and len(drawn.around) == len(drawn.nodes) == 40
    before, moved = result.graph_before(), result.patch.feature_change(result.data.x)
    source, target = result.patch.removed_edges()
    for node, (total, *rest) in zip(drawn.nodes, drawn.around, strict=True):
        others = set(before.edge_index[0, before.edge_index[1] == node].tolist()) - {node}
        gone = set(source[target == node].tolist())
        some = [rest[k : k + 4] for k in range(0, len(rest), 4)]
        assert (
            total == len(others) and len(some) == min(total, gather.DRAWN) and {other for other, *_ in some} <= others
        )
        assert all(EDGES[kind] == ("removed" if other in gone else "kept") for other, _, kind, _ in some)
        assert all(group == int(result.predictions[other]) for other, group, _, _ in some)
        assert all(row == int(moved[other] > 0) for other, _, _, row in some)
        order = [(kind == 0, -float(moved[other])) for other, _, kind, _ in some]
        assert order == sorted(order)
    sure = result.logits.double().softmax(1).max(1).values
    assert list(drawn.sure[1::2]) == (100 * sure).round().int().tolist()
    assert list(drawn.rows_changed) == list(range(40)), "all rows changed"


def test_nodes_are_not_explained_for_longer_than_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "SECONDS", 0.0)
    nodes = facts_of(gtrans()).nodes
    assert len(nodes) > 0 and all(node.parts is None for node in nodes)


def test_of_many_nodes_some_are_drawn_and_those_looked_at_are_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "POINTS", 10)
    facts = facts_of(gtrans())
    drawn = facts.map
    assert drawn is not None and (drawn.drawn, drawn.total) == (10, 40)
    assert set(drawn.nodes) >= {node.node for node in facts.nodes} and list(drawn.nodes) == sorted(set(drawn.nodes))
    assert len(drawn.nodes) == len(drawn.old) == len(drawn.new) == len(drawn.before) // 2 == len(drawn.after) // 2
    assert min(drawn.before + drawn.after) >= 0 and max(drawn.before + drawn.after) <= 1000
    assert [k for k in range(len(drawn.nodes)) if drawn.old[k] != drawn.new[k]] == list(drawn.changed)


@pytest.mark.parametrize(
    ("value", "threshold", "above"), [(13.2, 4, True), (0, 1, True), (-0.8, 0.05, False), (4, 4, True), (0, 0, False)]
)
def test_a_gauge_is_on_the_side_of_its_limit_that_it_is_on(value: float, threshold: float, above: bool) -> None:
    item = Evidence("something", value, threshold, above)
    (gauge,) = gauges_of(Verdict("applied", (), "card", "applied: so", (item,)))
    assert 0 <= gauge.place <= 1 and gauge.holds == item.holds
    assert np.sign(gauge.place - 0.5) == np.sign(value - threshold)


def test_numbers_that_are_not_finite_have_a_place_too() -> None:
    items = tuple(Evidence("so", value, 1.0, True) for value in (float("inf"), float("-inf"), float("nan")))
    assert all(0 <= gauge.place <= 1 for gauge in gauges_of(Verdict("applied", (), "card", "applied: so", items)))


@pytest.mark.parametrize(("right", "total"), [(0, 5), (5, 5), (123, 300), (1, 1)])
def test_the_interval_is_wilsons(right: int, total: int) -> None:
    expected = binomtest(right, total).proportion_ci(method="wilson")
    assert wilson(right, total) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_scores_are_those_of_scikit_learn_and_intervals_hold_them() -> None:
    rng = torch.Generator().manual_seed(0)
    y = torch.randint(4, (200,), generator=rng)
    before, after = (torch.randn(200, 4, generator=rng) + k * torch.eye(4)[y] for k in (1, 3))
    mask = torch.rand(200, generator=rng) < 0.6
    accuracy, f1 = scores_of(before, after, y, mask)
    assert accuracy.after == pytest.approx(float((after.argmax(1) == y)[mask].double().mean()))
    assert f1.before == pytest.approx(f1_score(y[mask], before.argmax(1)[mask], average="macro"))
    for score in (accuracy, f1):
        for value, span in (
            (score.before, score.before_in),
            (score.after, score.after_in),
            (score.change, score.change_in),
        ):
            assert span is not None and span[0] <= value <= span[1] and span[1] - span[0] < 0.4
        assert score.change_in is not None and score.change_in[0] > 0, "a plain improvement is told from chance"


def test_questions_are_those_of_the_result() -> None:
    result = mend(trained("sage"), moved(planted(1)), card=card_of("sage"))
    facts = facts_of(result)
    assert facts.decision == "applied" and len(facts.gauges) == len(result.verdict.evidence)  # type: ignore[union-attr]
    assert [question.node for question in facts.questions] == result.questions(10).tolist() != []
    assert all(result.predictions[question.node] == question.after != question.before for question in facts.questions)


def test_nothing_is_changed_and_nothing_happened() -> None:
    net, data = GCN(5, 8, 3), labelled(40)
    result = Identity()(net, data)
    states = state_of(net, data)
    facts = facts_of(result, data.y, data.val_mask)
    assert_same(states, state_of(net, data))
    assert facts.decision == "left alone" and facts.nodes == () and facts.scored == 20
    assert all(count == 0 for _, count, _ in facts.changes[0].counts)


class PerGraph(nn.Module):
    def __init__(self, out: int) -> None:
        super().__init__()
        self.conv, self.out = GCNConv(5, 8), nn.Linear(8, out)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Any:
        return self.out(global_mean_pool(self.conv(x, edge_index).relu(), batch))


@pytest.mark.parametrize("task", ["labels", "numbers", "embedding", None])
def test_what_makes_no_sense_for_a_task_is_left_out(task: str | None) -> None:
    torch.manual_seed(0)
    data = labelled(40)
    del data.y
    if task == "labels":
        data.y = torch.randint(2, (40, 3)).float()
    result = graphmend.mend(GCN(5, 8, 3), data, **({} if task is None else {"task": task}))  # type: ignore[arg-type]
    facts = facts_of(result, data.get("y"))
    assert facts.predictions is None and facts.output and facts.map is not None and not facts.map.has_classes
    assert bool(facts.scores) == (task == "labels")


def test_where_graphs_are_predicted_graphs_are_counted() -> None:
    from torch_geometric.data import Batch

    torch.manual_seed(0)
    graphs = [labelled(12, seed) for seed in range(5)]
    for number, graph in enumerate(graphs):
        graph.y = torch.tensor([number % 2])
    batch = Batch.from_data_list(graphs)
    result = graphmend.mend(PerGraph(2), batch, GTrans(steps=2), task="classes")
    facts: Facts = facts_of(result, batch.y)
    assert facts.rows == "graphs" and facts.predictions is not None and facts.predictions.nodes == 5
    assert facts.map is not None and facts.map.total == 60 and facts.scored == 5
    assert all(node.parts is None and node.after is None for node in facts.nodes)
