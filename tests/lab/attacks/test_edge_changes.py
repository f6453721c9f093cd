"""The contract of everything that flips edges: the attacks and the random control."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.errors import GraphMendError
from graphmend.lab.attacks import GRBCD, PRBCD
from graphmend.lab.backbones import GCN, SAGE
from graphmend.lab.data.corruptions import RandomEdges
from support.graphs import DEVICES, labelled, pairs
from support.refusals import assert_refused, wrong

ATTACKS: dict[str, Callable[..., Any]] = {
    "adaptive": lambda model, **k: PRBCD(model, epochs=6, block_size=60, num_samples=4, **k),
    "official": lambda model, **k: PRBCD(model, epochs=6, block_size=60, num_samples=4, variant="official", **k),
    "port": lambda model, **k: PRBCD(model, epochs=6, block_size=60, num_samples=4, variant="port", **k),
    "whole block": lambda model, **k: PRBCD(model, epochs=4, num_samples=4, loss="masked_cross_entropy", **k),
    "greedy": lambda model, **k: GRBCD(model, epochs=4, block_size=60, **k),
    "random": lambda model, **k: RandomEdges(**k),
}


def gcn(seed: int = 0, device: str = "cpu") -> GCN:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return GCN(5, 8, 3, dropout=0.5).to(device)


def check(before: Data, after: Data, budget: int | None = None) -> int:
    assert after.is_undirected()
    assert after.is_coalesced()
    old, new = pairs(before.edge_index), pairs(after.edge_index)
    assert {i for i, j in old if i == j} == {i for i, j in new if i == j}  # self-loops neither added nor removed
    assert budget is None or len(old ^ new) <= budget
    for key in set(before.keys()) - {"edge_index"}:
        assert after[key] is before[key]
    return len(old ^ new)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ATTACKS)
def test_contract(name: str, device: str) -> None:
    data, model = labelled(loops=True, device=device), gcn(device=device).train()
    before, weights = data.clone(), copy.deepcopy(model.state_dict())
    torch.manual_seed(5)
    state, numpy_state = torch.get_rng_state(), str(np.random.get_state())  # noqa: NPY002
    attack = ATTACKS[name](model, rate=0.25, seed=3)
    first = attack(data)
    assert torch.equal(torch.get_rng_state(), state)
    assert str(np.random.get_state()) == numpy_state  # noqa: NPY002
    assert model.training
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    assert all(torch.equal(data[key], before[key]) for key in before.keys())  # noqa: SIM118
    budget = int(0.25 * sum(i < j for i, j in pairs(data.edge_index)))
    assert 0 < check(data, first, budget) <= budget
    assert first.edge_index.device == data.edge_index.device
    torch.rand(3)
    if device == "cpu":
        assert torch.equal(attack(data).edge_index, first.edge_index)
    assert not torch.equal(ATTACKS[name](model, rate=0.25, seed=4)(data).edge_index, first.edge_index) or (
        name == "whole block"
    )
    assert str(attack).count("tensor") == 0


@settings(max_examples=30)
@given(
    name=st.sampled_from(sorted(ATTACKS)),
    n=st.integers(2, 12),
    seed=st.integers(0, 10_000),
    density=st.floats(0.1, 0.9),
    loops=st.booleans(),
    rate=st.floats(0, 1),
    block=st.integers(1, 80),
)
def test_budget_and_symmetry_on_any_graph(
    name: str, n: int, seed: int, density: float, loops: bool, rate: float, block: int
) -> None:
    data = labelled(n, seed, density=density, loops=loops and n > 2, isolated=0)
    if data.num_edges == 0:
        return
    budget = int(rate * sum(i < j for i, j in pairs(data.edge_index)) + 1e-9)
    attack = ATTACKS[name](gcn(), rate=rate, seed=seed)
    if name not in ("whole block", "random"):
        attack = dataclasses.replace(attack, block_size=max(block, budget + 1))
    try:
        after = attack(data)
    except GraphMendError as error:
        assert name == "random" and "cannot be added" in str(error)
        return
    changed = check(data, after, budget)
    assert changed == budget or name != "random"


def test_random_edges_adds_exactly_so_many_non_edges() -> None:
    data = labelled()
    edges = sum(i < j for i, j in pairs(data.edge_index))
    more = RandomEdges(rate=0.5, seed=1)(data)
    assert pairs(data.edge_index) < pairs(more.edge_index)
    assert check(data, more) == edges // 2
    everything = RandomEdges(budget=190 - edges)(data)
    assert everything.num_edges == 380
    with pytest.raises(GraphMendError, match="cannot be added"):
        RandomEdges(budget=191 - edges)(data)


def test_greedy_only_flips_what_the_gradient_favours() -> None:
    data = labelled()
    frozen = gcn()
    with torch.no_grad():
        for parameter in frozen.parameters():
            parameter.zero_()
    assert check(data, GRBCD(frozen, rate=0.5)(data)) == 0  # no gradient, no flips


@pytest.mark.parametrize(
    "model",
    [
        lambda: pyg.GraphSAGE(5, 8, 2, 3),
        lambda: pyg.GAT(5, 8, 2, 3),
        lambda: pyg.GIN(5, 8, 2, 3),
        lambda: SAGE(5, 8, 3),
        lambda: pyg.GCN(5, 8, 2, 1),  # one binary logit
    ],
)
def test_stock_models(model: Callable[[], nn.Module]) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        victim = model()
    data = labelled()
    data.y = data.y.clamp(max=1)
    for attack in (ATTACKS["adaptive"], ATTACKS["port"], ATTACKS["greedy"]):
        assert check(data, attack(victim, budget=5)(data), 5) > 0


def test_a_model_without_edge_gradients_is_named() -> None:
    class Top(pyg.MessagePassing):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            out: Tensor = self.propagate(edge_index, x=x)
            return out

    with pytest.raises(GraphMendError, match="gradients for edges"):
        PRBCD(Top(aggr="max"))(labelled())


@wrong(rate=[1.3], budget=[-1, 0.5], epochs=[0], block_size=[0], loss=["margin"], variant=["new"], lr=[0.0])
def test_wrong_settings(setting: str, value: Any) -> None:
    assert_refused(PRBCD, setting, value, model=gcn())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"block_size": 3, "budget": 5}, "exceed the budget of 5"),
        ({"num_samples": 0}, "got 0"),
        ({"resampling_epochs": 500}, "got 500"),
        ({"nodes": torch.zeros(20, dtype=torch.bool)}, "nodes .*no node"),
        ({"labels": torch.zeros(20, 2)}, "labels must have one label per node, 20 in all"),
        ({"labels": torch.full((20,), 20_000_000)}, r"0\.\.2 \(got 20000000"),
        ({"labels": torch.full((20,), 3)}, r"0\.\.2 \(got 3\.\.3\)"),
        ({"known": torch.ones(3, dtype=torch.bool)}, "known"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphMendError, match=message):
        PRBCD(gcn(), **arguments)(labelled())


@pytest.mark.parametrize("attack", [PRBCD, GRBCD])
def test_a_single_epoch_is_enough_to_flip_edges(attack: Any) -> None:
    data = labelled()
    after = attack(gcn(), budget=3, epochs=1, block_size=190)(data)
    assert 0 < len(pairs(data.edge_index) ^ pairs(after.edge_index)) <= 3


@pytest.mark.parametrize("attack", [PRBCD, GRBCD])
@pytest.mark.parametrize("kind", [torch.uint8, torch.int64])
def test_masks_of_zeros_and_ones_mean_what_booleans_mean(attack: Any, kind: torch.dtype) -> None:
    """``train_mask`` and ``val_mask`` of the graph, too: PR-BCD's port chooses by the latter."""
    data, other = labelled(), labelled()
    other.train_mask, other.val_mask = data.train_mask.to(kind), data.val_mask.to(kind)
    nodes = torch.arange(20) % 3 > 0
    more = {"variant": "port"} if attack is PRBCD else {}
    options: dict[str, Any] = {"budget": 5, "epochs": 3, "block_size": 100, **more}
    expected = attack(gcn(), nodes=nodes, **options)(data)
    assert torch.equal(attack(gcn(), nodes=nodes.to(kind), **options)(other).edge_index, expected.edge_index)
    other.train_mask = torch.arange(20)
    with pytest.raises(GraphMendError, match=r"train_mask must hold 0 and 1 only"):
        attack(gcn(), nodes=nodes, **options)(other)


@pytest.mark.parametrize("name", ["adaptive", "greedy", "random"])
def test_bad_graphs(name: str) -> None:
    data, attack = labelled(), ATTACKS[name](gcn())
    up = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    cases = {
        "undirected": {"edge_index": up},
        "repeated": {"edge_index": torch.cat([data.edge_index, data.edge_index], dim=1)},
        "unweighted": {"edge_weight": torch.ones(data.num_edges)},
        "node 20": {"edge_index": torch.tensor([[0, 20], [20, 0]])},
        "non-finite": {"x": data.x * torch.nan},
    }
    for message, change in cases.items():
        with pytest.raises(GraphMendError, match=message):
            attack(copy.copy(data).update(change))


def test_labels_by_which_the_port_chooses_are_checked_before_the_search() -> None:
    data = labelled()
    for y in (data.y + 20_000_000, data.y + 0.5):
        with pytest.raises(GraphMendError, match=r"(val_mask must lie in|y holds 1\.5)"):
            PRBCD(gcn(), variant="port", epochs=1)(copy.copy(data).update({"y": y, "train_mask": None}))
