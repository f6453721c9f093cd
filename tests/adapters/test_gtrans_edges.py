"""GTrans: the discrete graphs, their budget, directed edges, and what edges carry."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from graphmend import FrozenGNN, GraphMendError, GTrans
from graphmend.surrogates import Backbone, Contrastive
from support.adapter_cases import N, PerStep, gone, make_graph, make_model, num_pairs, pairs_of


def test_the_score_of_the_unchanged_edges_can_be_repeated() -> None:
    model, data = make_model(), make_graph()
    result = GTrans(steps=10, lr_edge=0.5, budget=5)(model, data, seed=9)
    assert [c.name for c in result.candidates] == ["identity", "top", *(f"sample {k}" for k in range(1, 6))]
    assert result.candidates[0].flips == 0 and result.candidates[1].flips == 5
    with FrozenGNN(model, data) as frozen, torch.no_grad():
        ones = torch.ones(data.edge_index.size(1), dtype=torch.float64)
        graph = Data(x=result.data.x, edge_index=data.edge_index, edge_weight=ones)
        loss = float(Contrastive()(frozen, graph, torch.Generator().manual_seed(9)))
    assert result.candidates[0].loss == pytest.approx(loss, rel=1e-12)


def test_the_best_candidate_wins() -> None:
    model, data = make_model(), make_graph()
    for seed in range(5):
        result = GTrans(steps=10, lr_edge=0.5, budget=5, num_samples=8)(model, data, seed=seed)
        best = min(result.candidates, key=lambda c: c.loss)
        assert result.patch.num_removed == 2 * best.flips


def test_no_flip_wins_where_flips_harm() -> None:
    """Downhill at first, uphill after all: the relaxed edges move, the discrete ones should not."""
    model, data = make_model(), make_graph()
    adapter = GTrans(lambda m, d: (2 * gone(d) ** 2 - gone(d)).sum(), steps=3, feature_steps=0, budget=5)
    result = adapter(model, data)
    assert result.history[-1].flipped > 1
    assert min(result.candidates, key=lambda c: c.loss).name == "identity"
    assert torch.equal(result.data.edge_index, data.edge_index) and result.reason is None


def test_the_whole_budget_is_used_where_flips_help() -> None:
    model, data = make_model(), make_graph()
    adapter = GTrans(lambda m, d: -gone(d).sum(), steps=3, feature_steps=0, budget=5)
    result = adapter(model, data)
    assert result.patch.num_removed == 10 and num_pairs(result.data) == num_pairs(data) - 5
    assert (3, 3) in pairs_of(result.data.edge_index), "a self-loop is no candidate"


@settings(max_examples=40, deadline=None)
@given(
    budget=st.one_of(st.integers(0, 60), st.floats(0, 1)),
    seed=st.integers(0, 1000),
    directed=st.sampled_from(["undirected", "delete", "reverse"]),
    space=st.sampled_from(["existing", "random_block"]),
    update=st.sampled_from(["adam", "sign", "gradient"]),
)
def test_the_discrete_graph_respects_the_budget(
    budget: float, seed: int, directed: str, space: str, update: str
) -> None:
    model, data = make_model(), make_graph(directed=directed != "undirected")
    adapter = GTrans(
        lambda m, d: m(d.x, d.edge_index, d.edge_weight).square().mean(),
        steps=2,
        feature_steps=0,
        lr_edge=5.0,
        budget=budget,
        space=space,
        block_size=20,
        directed=directed.replace("undirected", "delete"),
        edge_update=update,
    )
    result = adapter(model, data, seed=seed)
    before, after = pairs_of(data.edge_index), pairs_of(result.data.edge_index)
    assert len(after) == result.data.edge_index.size(1), "no edge twice"
    changed = before ^ after
    assert not any(i == j for i, j in changed)
    edges = data.edge_index.size(1) - 1  # without the loop
    if directed == "undirected":
        total, count = edges // 2, len(changed) / 2
        assert {(j, i) for i, j in changed} == changed
    elif directed == "reverse":
        total, count = (edges + 1) / 2, len({(min(pair), max(pair)) for pair in changed})
    else:
        total, count = edges, len(changed)
    assert count <= (budget if isinstance(budget, int) else math.floor(budget * total + 1e-9))
    if space == "existing" and directed != "reverse":
        assert after <= before
    assert all(
        c.flips <= count or c.flips <= (budget if isinstance(budget, int) else budget * total)
        for c in result.candidates
    )
    assert torch.equal(result.patch.revert(result.data).edge_index, data.edge_index)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("edge_steps", [0, 1])
def test_the_result_fits_together(dtype: torch.dtype, edge_steps: int) -> None:
    model, data = (
        make_model(dtype),
        make_graph(dtype, edge_weight=0.5 + torch.rand(make_graph().edge_index.size(1)).to(dtype)),
    )
    result = GTrans(steps=10, edge_steps=edge_steps, lr_feature=0.05, lr_edge=0.5, budget=6)(model, data)
    assert result.reason is None and result.model is model and result.data is not data
    assert result.data.x.dtype == dtype and result.logits.dtype == dtype
    assert not result.data.x.requires_grad and not result.logits.requires_grad
    with torch.no_grad():
        own = model(result.data.x, result.data.edge_index, result.data.edge_weight)
    torch.testing.assert_close(result.logits, own)
    again, back = result.patch.apply(data), result.patch.revert(result.data)
    for name in data.keys():  # noqa: SIM118 (Data is no dict)
        assert torch.equal(again[name], result.data[name])
        assert torch.equal(back[name], data[name])
    assert result.patch.num_rows == N
    assert (result.patch.num_removed > 0) is bool(edge_steps)


def test_kept_edges_keep_their_weights_and_attributes() -> None:
    size = make_graph().edge_index.size(1)
    data = make_graph(
        edge_weight=torch.rand(size, dtype=torch.float64), edge_attr=torch.rand(size, 3), mark=torch.arange(size)
    )
    result = GTrans(lambda m, d: -gone(d).sum(), steps=2, feature_steps=0, budget=4)(make_model(), data)
    assert result.data.edge_index.size(1) == size - 8
    kept = result.data.mark
    for name in ("edge_weight", "edge_attr"):
        assert torch.equal(result.data[name], data[name][kept])
    assert torch.equal(result.data.edge_index, data.edge_index[:, kept])


def test_an_edge_of_weight_w_becomes_w_times_one_minus_p() -> None:
    """The relaxed graph of one edge step, computed by hand with the model's own weights."""
    weight = 0.5 + torch.rand(make_graph().edge_index.size(1), dtype=torch.float64)
    model, data = make_model(), make_graph(edge_weight=weight)
    outputs = PerStep()

    def surrogate(m: Backbone, d: Data) -> Tensor:
        out = m(d.x, d.edge_index, d.edge_weight)
        outputs.note((d.edge_weight.detach().clone(), out.detach().clone()))
        return out.square().mean()

    GTrans(surrogate, steps=3, feature_steps=0, lr_edge=0.3, budget=8)(model, data, callback=outputs)
    presence, out = outputs.steps[2]
    assert 0 < float(presence.min()) < 1
    with torch.no_grad():
        torch.testing.assert_close(out, model(data.x, data.edge_index, weight * presence))


def test_directed_edges_are_deleted_one_way() -> None:
    data = make_graph(directed=True)
    result = GTrans(lambda m, d: -gone(d).sum(), steps=2, feature_steps=0, budget=5)(make_model(), data)
    before, after = pairs_of(data.edge_index), pairs_of(result.data.edge_index)
    assert after < before and len(before - after) == 5


def test_directed_edges_are_reversed_as_the_released_code_does() -> None:
    data = make_graph(directed=True)
    number = data.edge_index.size(1)
    surrogate: Callable[[Any, Data], Tensor] = lambda m, d: -gone(d)[:number].sum()  # noqa: E731
    result = GTrans(surrogate, steps=2, feature_steps=0, budget=5, directed="reverse")(make_model(), data)
    before, after = pairs_of(data.edge_index), pairs_of(result.data.edge_index)
    assert len(before - after) == 5 and {(j, i) for i, j in before - after} == after - before
    assert all(i < j for i, j in before - after), "only pairs stored from the lower to the higher node change"


def test_random_block_can_add_edges() -> None:
    data = make_graph()
    number = data.edge_index.size(1)

    def surrogate(model: Backbone, graph: Data) -> Tensor:
        return -graph.edge_weight[number:].sum()

    adapter = GTrans(surrogate, steps=2, feature_steps=0, budget=6, space="random_block", block_size=50, lr_edge=2.0)
    result = adapter(make_model(), data)
    before, after = pairs_of(data.edge_index), pairs_of(result.data.edge_index)
    assert before < after and len(after - before) == 12
    assert {(j, i) for i, j in after - before} == after - before, "both directions"
    assert result.patch.num_added == 12 and torch.equal(result.patch.revert(result.data).edge_index, data.edge_index)
    torch.testing.assert_close(result.logits, make_model()(result.data.x, result.data.edge_index).detach())


def test_edges_listed_twice_are_an_error_only_where_edges_are_learned() -> None:
    data = make_graph()
    data.edge_index = torch.cat([data.edge_index, data.edge_index[:, :2]], 1)
    with pytest.raises(GraphMendError, match=r"2 edges more than once.*coalesce"):
        GTrans()(make_model(), data)
    assert GTrans(edge_steps=0, steps=2)(make_model(), data).reason is None


def test_pairs_of_nodes_beside_the_edges_are_no_edge_attributes() -> None:
    data = make_graph()
    data.edge_label_index = data.edge_index.flip(1)
    result = GTrans(budget=0.2)(make_model(), data)
    assert result.reason is None and torch.equal(result.data.edge_label_index, data.edge_label_index)
