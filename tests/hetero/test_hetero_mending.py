"""Heterogeneous graphs: what is sound is left alone, what is broken is repaired, and nothing of the user's changes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

import graphmend
from graphmend import GraphMendError, GTrans, Limits
from graphmend.adapters import Align, Identity, Impute, Purify
from graphmend.adapters.tent import Tent
from graphmend.hetero import HeteroAdaptation, HeteroCard
from support.hetero_cases import MODELS, broken, contents, papers, scores, trained, with_gaps
from support.untouched import generator_states, snapshot

pytestmark = pytest.mark.usefixtures("one_thread")
every_model = pytest.mark.parametrize("name", sorted(MODELS))
every_type = pytest.mark.parametrize("kind", ["paper", "author"])


def mended(model: nn.Module, data: HeteroData, *arguments: Any, **options: Any) -> HeteroAdaptation:
    """The result, after a look at everything that has to be as it was and as it is said."""
    before = contents(data), snapshot(model), generator_states()
    result: Any = graphmend.mend(model, data, *arguments, **options)
    after = contents(data), snapshot(model), generator_states()
    assert before[0] == after[0]
    for old, new in zip(before[1] + before[2], after[1] + after[2], strict=True):
        assert torch.equal(old, new) if isinstance(old, Tensor) else old == new
    assert contents(result.patch.apply(data)) == contents(result.data)
    assert contents(result.patch.revert(result.data)) == contents(data)
    with torch.no_grad():
        assert torch.allclose(scores(model.eval(), result.data), result.logits, atol=1e-5)
    return result


@every_model
def test_a_clean_graph_is_left_alone(name: str) -> None:
    model, card = trained(name)
    for seed in (0, 5):
        result = mended(model, papers(seed), card=card)
        assert result.verdict is not None and result.verdict.decision == "left alone"
        assert result.patch.is_empty and torch.equal(result.logits, result.before)


@every_type
@every_model
def test_broken_rows_of_any_type_are_repaired(name: str, kind: str) -> None:
    model, card = trained(name)
    clean = papers(5)
    result = mended(model, broken(clean, kind), card=card)
    assert result.verdict is not None and result.verdict.menders == ("impute",)
    assert result.patch.nodes[kind].rows.tolist() == list(range(12)) and result.patch.num_rows == 12
    assert result.node_type == "paper" and result.data[kind].x.abs().max() < 20
    comparison = result.compare(clean["paper"].y)
    assert comparison.accuracy_after is not None and comparison.accuracy_before is not None
    assert comparison.accuracy_after >= comparison.accuracy_before


@every_model
def test_types_that_are_broken_together_are_repaired_together(name: str) -> None:
    model, card = trained(name)
    result = mended(model, broken(broken(papers(5), "paper"), "author"), card=card)
    assert {kind: patch.num_rows for kind, patch in result.patch.nodes.items()} == {"paper": 12, "author": 12}


@pytest.mark.parametrize("with_card", [True, False])
@every_model
def test_missing_values_of_all_types_are_filled(name: str, with_card: bool) -> None:
    model, card = trained(name)
    data = with_gaps(papers(5))
    result = mended(model, data, card=card if with_card else None)
    given = sum(int(data[kind].x.isnan().sum()) for kind in data.node_types)
    assert result.values_filled == given and result.verdict is not None and "missing values" in str(result.verdict)
    for kind in data.node_types:
        known = ~data[kind].x.isnan()
        assert torch.equal(result.data[kind].x[known], data[kind].x[known])
        assert bool(result.data[kind].x.isfinite().all())


@every_type
def test_a_shift_of_one_type_is_aligned(kind: str) -> None:
    model, card = trained("to_hetero")
    data = papers(5)
    data[kind].x = data[kind].x * 0.6 + 4
    result = mended(model, data, card=card)
    assert result.verdict is not None and result.verdict.menders == ("align",)
    assert result.patch.nodes[kind].num_rows > 0 and result.patch.num_rows == result.patch.nodes[kind].num_rows


def test_edges_between_different_types_are_not_judged_and_the_verdict_says_so() -> None:
    model, card = trained("to_hetero")
    verdict = mended(model, papers(5), card=card).verdict
    assert verdict is not None and "edges between different types are not judged" in verdict.sentence
    assert {item.name.split(":")[0] for item in verdict.evidence} == {"paper", "author"}


@pytest.mark.parametrize("adapter", [Identity(), Impute(), Align(), Purify(), Impute() >> Align()], ids=repr)
def test_other_adapters_work_on_one_type_after_the_other(adapter: Any) -> None:
    model, card = trained("HeteroConv")
    result = mended(model, broken(papers(5), "author"), adapter, card=card)
    assert result.verdict is None and set(result.by_type) == {"paper", "author"}
    removed = {"__".join(kind): patch.num_removed for kind, patch in result.patch.edges.items()}
    assert removed["author__writes__paper"] == removed["paper__rev_writes__author"] == 0


def test_cutting_edges_follows_their_attributes() -> None:
    model, card = trained("HeteroConv")
    data = papers(5)
    cites = data["paper", "cites", "paper"]
    rng = torch.Generator().manual_seed(1)
    more = torch.randint(160, (2, 400), generator=rng)
    cites.edge_index = torch.cat([cites.edge_index, more], dim=1)
    cites.since = torch.arange(cites.edge_index.size(1))
    result = mended(model, data, Purify(), card=card)
    patch = result.patch.edges["paper", "cites", "paper"]
    assert patch.num_removed > 0
    left = result.data["paper", "cites", "paper"]
    assert torch.equal(cites.edge_index[:, left.since], left.edge_index)


@every_model
def test_gtrans_learns_features_of_every_type(name: str) -> None:
    model, _ = trained(name)
    result = mended(model, papers(5), GTrans(steps=4))
    assert result.patch.num_rows == 160 + 70


def test_gtrans_learns_the_edges_of_a_type_with_itself_where_its_layer_takes_weights() -> None:
    model, _ = trained("HeteroConv")
    result = mended(model, papers(5), GTrans("entropy", steps=6, feature_steps=0, edge_steps=1, lr_edge=1.0))
    assert result.patch.num_rows == 0
    kinds = {step.kind for results in result.by_type.values() for r in results for step in r.history}
    assert kinds == {"edge"}


@every_model
def test_a_card_is_one_file_and_says_the_same_when_read(name: str, tmp_path: Any) -> None:
    model, card = trained(name)
    card.save(tmp_path / "c.safetensors")
    again = HeteroCard.load(tmp_path / "c.safetensors")
    assert again.summary() == card.summary() and set(again.cards) == {"paper", "author"}
    data = broken(papers(5), "author")
    first, second = mended(model, data, card=card), mended(model, data, card=tmp_path / "c.safetensors")
    assert torch.equal(first.logits, second.logits) and str(first.verdict) == str(second.verdict)


def test_several_graphs_are_mended_one_by_one_and_carded_together(tmp_path: Any) -> None:
    model, _ = trained("to_hetero")
    card = graphmend.card(model, [papers(0), papers(1)])  # type: ignore[list-item]
    graphs: Any = [papers(5), broken(papers(6), "author")]
    card.save(tmp_path / "card.safetensors")
    for given in (card, tmp_path / "card.safetensors"):
        decisions = [result.verdict.decision for result in graphmend.mend(model, graphs, card=given)]
        assert decisions == ["left alone", "applied"]


def test_the_same_graph_in_another_order_gets_the_same_answer() -> None:
    model, card = trained("to_hetero")
    data = broken(papers(5), "author")
    order = {
        kind: torch.randperm(data[kind].num_nodes, generator=torch.Generator().manual_seed(3)) for kind in order_of()
    }
    other = copy.copy(data)
    for kind in data.node_types:
        for name, value in data[kind].items():
            other[kind][name] = value[order[kind]]
    place = {kind: chosen.argsort() for kind, chosen in order.items()}
    for edge_type in data.edge_types:
        source, target = data[edge_type].edge_index
        other[edge_type].edge_index = torch.stack([place[edge_type[0]][source], place[edge_type[2]][target]])
    first, second = mended(model, data, card=card), mended(model, other, card=card)
    assert str(first.verdict) == str(second.verdict)
    assert torch.allclose(first.logits[order["paper"]], second.logits, atol=1e-4)


def order_of() -> list[str]:
    return ["paper", "author"]


def test_limits_by_node_type_hold() -> None:
    model, card = trained("to_hetero")
    data = broken(papers(5), "author")
    frozen = torch.zeros(70, dtype=torch.bool)
    frozen[:4] = True
    result = mended(model, data, card=card, limits={"author": Limits(frozen_nodes=frozen)})
    assert torch.equal(result.data["author"].x[:4], data["author"].x[:4]) and result.patch.num_rows == 8


class Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 3)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: Any) -> Tensor:
        return self.lin(x_dict["author"])


def no_y(data: HeteroData) -> HeteroData:
    out = copy.copy(data)
    del out["paper"].y
    return out


def same_size() -> HeteroData:
    return no_y(papers(0, 70, 70))


def with_attribute() -> HeteroData:
    edges = papers(5)["paper", "cites", "paper"].edge_index.size(1)
    return changed(("paper", "cites", "paper"), "edge_attr", torch.ones(edges, 2).to_sparse())


def changed(kind: Any, name: str, value: Any) -> HeteroData:
    data = copy.copy(papers(5))
    data[kind][name] = value
    return data


REFUSED = {
    "an infinite value": (lambda: changed("author", "x", torch.full((70, 6), torch.inf)), "author.*infinite"),
    "nothing but gaps": (lambda: changed("author", "x", torch.full((70, 6), torch.nan)), "author.*nothing but missing"),
    "an edge to nowhere": (
        lambda: changed(("paper", "cites", "paper"), "edge_index", torch.tensor([[0], [900]])),
        "paper__cites__paper.*node 900",
    ),
    "another width": (lambda: changed("author", "x", torch.rand(70, 9)), "author.*6 feature columns.*has 9"),
    "no features": (lambda: HeteroData(), "no node type has"),
    "a sparse attribute of edges": (lambda: with_attribute(), "paper__cites__paper.*edge_attr"),
    "a number of nodes that is none": (
        lambda: changed("author", "num_nodes", torch.ones(4)),
        "num_nodes of node type .author. must be a whole number",
    ),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_cannot_be_mended_is_refused_with_the_type_and_the_reason(case: str) -> None:
    model, card = trained("to_hetero")
    make, words = REFUSED[case]
    data, before = make(), snapshot(model)
    with pytest.raises(GraphMendError, match=words):
        graphmend.mend(model, data, card=card)  # type: ignore[arg-type]
    assert len(before) == len(snapshot(model))


def test_an_error_of_the_model_is_a_sentence_and_leaves_it_as_it_was() -> None:
    model = Fails()
    before, states = snapshot(model), generator_states()
    with pytest.raises(GraphMendError, match="cannot run on this graph"):
        graphmend.mend(model, papers(5))
    for old, new in zip(before + states, snapshot(model) + generator_states(), strict=True):
        assert torch.equal(old, new) if isinstance(old, Tensor) else old == new


def test_which_type_is_predicted_is_asked_for_where_nothing_tells() -> None:
    model, card = trained("HeteroConv")
    with pytest.raises(GraphMendError, match=r"author, paper; set y on the one"):
        graphmend.mend(model, same_size())
    assert graphmend.mend(model, papers(0, 70, 70)).node_type == "paper"  # type: ignore[attr-defined]
    assert graphmend.mend(model, same_size(), output="paper").node_type == "paper"  # type: ignore[attr-defined]
    assert graphmend.mend(model, same_size(), card=card).node_type == "paper"  # type: ignore[attr-defined]


@pytest.mark.parametrize("adapter", [Tent(), lambda model, data: None], ids=["an adapter of models", "a function"])
def test_adapters_that_do_not_serve_it_say_so(adapter: Any) -> None:
    model, _ = trained("to_hetero")
    with pytest.raises(GraphMendError, match="does not serve a HeteroData; use"):
        graphmend.mend(model, papers(5), adapter)


def test_missing_values_need_an_adapter_that_fills_them() -> None:
    model, _ = trained("to_hetero")
    with pytest.raises(GraphMendError, match=r"use Impute\(\) >> GTrans\(\)"):
        graphmend.mend(model, with_gaps(papers(5)), GTrans())


def test_a_model_that_has_never_run_is_a_sentence() -> None:
    with pytest.raises(GraphMendError, match="the model has never run"):
        graphmend.mend(MODELS["to_hetero"](), papers(5))


def test_an_embedding_is_named_with_a_word() -> None:
    model, _ = trained("HeteroConv")
    with pytest.raises(GraphMendError, match="embedding must be a text"):
        graphmend.card(model, papers(), embedding=torch.ones(3).numpy())  # type: ignore[arg-type]
