"""Effects are what the model says without a part of the change; the model and the graph are left as they were."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GraphSAGE

from graphmend import GTrans, Identity, mend
from graphmend.adapters import Adapter, Proposal
from graphmend.errors import GraphMendError
from support.untouched import assert_same, state_of

NODES, WIDTH, CLASSES = 14, 6, 3


def graph() -> Data:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(NODES, (2, 30), generator=generator)
    edge_index = torch.cat([edges, edges.flip(0)], 1).unique(dim=1)
    return Data(
        x=torch.randn(NODES, WIDTH, generator=generator), edge_index=edge_index[:, edge_index[0] != edge_index[1]]
    )


def model(kind: Any = GCN) -> torch.nn.Module:
    torch.manual_seed(0)
    made: torch.nn.Module = kind(WIDTH, 8, 2, CLASSES)
    return made.eval()


class Both(Adapter):
    """Changes two rows, removes the first edge and adds one, both in one direction."""

    def propose(self, case: Any) -> Proposal:
        x = case.data.x.clone()
        x[[0, 1]] += 3
        return Proposal(x=x, removed=torch.tensor([0]), added=torch.tensor([[2], [0]]))


def log_odds(logits: torch.Tensor, new: int, old: int) -> float:
    return float(logits[new] - logits[old])


@pytest.mark.parametrize("kind", [GCN, GraphSAGE])
def test_effects_are_those_of_running_the_model_without_the_part(kind: Any) -> None:
    net, data = model(kind), graph()
    result = mend(net, data, Both(), task="classes")
    changed = [node for node in range(NODES) if result.explain(node).before != result.explain(node).after]
    assert changed, "the change is large enough to turn a prediction"
    before = state_of(net, data)
    for node in changed:
        explanation = result.explain(node)
        new, old = explanation.after, explanation.before
        total = log_odds(result.logits[node], new, old) - log_odds(result.before[node], new, old)
        assert explanation.margin == pytest.approx(total, abs=1e-4)
        assert sum(part.effect for part in explanation.parts) == pytest.approx(total, abs=1e-4)
        own = [part for part in explanation.parts if part.kind == "own row"]
        assert bool(own) == (node in (0, 1))
        for part in own:
            partly = copy.copy(result.data)
            partly.x = result.data.x.clone()
            partly.x[node] = data.x[node]
            with torch.no_grad():
                there = net(partly.x, partly.edge_index)[node]
            effect = log_odds(result.logits[node], new, old) - log_odds(there, new, old)
            assert part.effect == pytest.approx(effect, abs=1e-4)
    assert_same(before, state_of(net, data))


def test_edges_at_the_node_are_named() -> None:
    net, data = model(), graph()
    source, target = data.edge_index[:, 0].tolist()
    result = mend(net, data, Both(), task="classes")
    labels = {part.label for part in result.explain(0).parts}
    assert "added edge from 2" in labels and "own row" in labels
    assert f"removed edge from {source}" in {part.label for part in result.explain(target).parts}


def test_a_lone_change_accounts_for_everything() -> None:
    class OneRow(Adapter):
        def propose(self, case: Any) -> Proposal:
            x = case.data.x.clone()
            x[3] = 0
            return Proposal(x=x)

    explanation = mend(model(), graph(), OneRow(), task="classes").explain(3)
    effects = {part.kind: part.effect for part in explanation.parts}
    assert effects.pop("own row") == pytest.approx(explanation.margin, abs=1e-6)
    assert all(effect == pytest.approx(0, abs=1e-6) for effect in effects.values())
    assert {column for column, _, after in explanation.columns if after == 0} == {c for c, _, _ in explanation.columns}


def test_as_an_explanation_of_pyg_and_as_text() -> None:
    result = mend(model(), graph(), Both(), task="classes")
    explanation = result.explain(0)
    pyg = explanation.to_pyg()
    assert pyg.validate() and pyg.edge_mask.numel() == result.data.num_edges
    added = (result.data.edge_index == torch.tensor([[2], [0]])).all(0)
    assert bool((pyg.edge_mask[added] >= 0).all()) and float(pyg.node_mask[0].sum()) > 0
    assert "Node 0" in repr(explanation) and "<table>" in explanation._repr_html_()
    assert explanation.summary()["parts"]
    assert explanation.plot().axes


def test_pyg_draws_it(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    pytest.importorskip("networkx")
    pyg = mend(model(), graph(), Both(), task="classes").explain(0).to_pyg()
    pyg.visualize_graph(str(tmp_path / "graph.png"), backend="networkx")
    assert (tmp_path / "graph.png").read_bytes()[:4] == b"\x89PNG"
    pytest.importorskip("pandas")
    pyg.visualize_feature_importance(str(tmp_path / "features.png"), top_k=3)
    assert (tmp_path / "features.png").read_bytes()[:4] == b"\x89PNG"


def test_nothing_changed_nothing_to_explain() -> None:
    explanation = mend(model(), graph(), Identity(), task="classes").explain(2)
    assert explanation.parts == () and explanation.margin == 0 and explanation.before == explanation.after
    assert mend(model(), graph(), Identity(), task="classes").explain(torch.tensor(2)).node == 2


@pytest.mark.parametrize("node", [-1, NODES, 1.5, True, "a", None])
def test_nodes_that_do_not_exist(node: Any) -> None:
    with pytest.raises(GraphMendError, match=str(NODES - 1)):
        mend(model(), graph(), GTrans(steps=1), task="classes").explain(node)


def rows_of(column: int, result: Any) -> tuple[float, float]:
    return float(result.before[0, column]), float(result.logits[0, column])


@pytest.mark.parametrize("task", ["labels", "numbers"])
def test_of_labels_and_numbers_it_is_the_one_that_moved_most(task: str) -> None:
    result = mend(model(), graph(), Both(), task=task)
    why = result.explain(0)
    moves = torch.tensor(result.task.moves or [1.0] * CLASSES)
    distance = (result.logits[0] - result.before[0]).abs() / moves
    assert why.task == task and why.column == int(distance.argmax())
    old, new = rows_of(why.column, result)
    assert why.margin == pytest.approx(new - old, abs=1e-5)
    assert sum(part.effect for part in why.parts) == pytest.approx(why.margin, abs=1e-5)
    (own,) = [part for part in why.parts if part.kind == "own row"]
    data = copy.copy(result.data)
    data.x = data.x.clone()
    data.x[0] = graph().x[0]
    assert own.effect == pytest.approx(new - float(model()(data.x, data.edge_index).detach()[0, why.column]), abs=1e-4)
    text = repr(why)
    if task == "numbers":
        assert text.startswith(f"Number {why.column} of node 0 went from {old:.4g} to {new:.4g}")
        assert (why.before, why.after, why.confidence_before) == (pytest.approx(old), pytest.approx(new), None)
    else:
        assert text.startswith(f"Label {why.column} of node 0") and (why.before, why.after) == (old > 0, new > 0)
        assert why.confidence_after == pytest.approx(float(torch.tensor(abs(new)).sigmoid()), abs=1e-5)
    assert why.summary()["column"] == why.column and why.to_pyg().target == why.column


def test_what_predicts_no_nodes_is_not_explained() -> None:
    embedding = mend(model(), graph(), Both(), task="embedding")
    with pytest.raises(GraphMendError, match=r"the model's task is embedding; use result\.compare\(\)"):
        embedding.explain(0)
    unknown = mend(model(), graph(), Both())
    with pytest.raises(GraphMendError, match="name what the model's rows are"):
        unknown.explain(0)
    assert unknown.explain(0, task="numbers").task == "numbers"


class OfGraphs(GCN):
    def forward(self, x: Any, edge_index: Any) -> torch.Tensor:  # type: ignore[override]
        out: torch.Tensor = super().forward(x, edge_index).mean(0, keepdim=True)
        return out


def test_a_prediction_of_a_graph_is_none_of_a_node() -> None:
    result = mend(model(OfGraphs), graph(), Both(), task="classes")
    with pytest.raises(GraphMendError, match="the model's task is classes per graph"):
        result.explain(3)
