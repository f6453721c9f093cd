"""GTrans: Algorithm 1 against a slow reference, its promises, and the traps others fell into."""

from __future__ import annotations

import copy
import gc
import itertools
import logging
import math
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data

import graphmend
from graphmend import FrozenGNN, GraphMendError, GTrans, Identity, Limits
from graphmend.engine import optimizers as updates
from graphmend.engine import propagation
from graphmend.engine import view_batch as side_by_side
from graphmend.engine.adjacency import Adjacency
from graphmend.engine.propagation import gcn_norm
from graphmend.nn import BACKBONES, GCN, build
from graphmend.results.adaptation import Adaptation
from graphmend.results.history import Step
from graphmend.surrogates import Backbone, Contrastive, Supervised, Surrogate
from graphmend.transforms import DropEdge
from graphs import DEVICES

N, IN, HID, OUT = 16, 5, 8, 3


pytestmark = pytest.mark.usefixtures("one_thread")


def make_graph(dtype: torch.dtype = torch.float64, directed: bool = False, **extra: Tensor) -> Data:
    """Two communities with features of their own, shifted; one self-loop, one isolated node."""
    generator = torch.Generator().manual_seed(4)
    side = torch.arange(N) % 2
    chance = torch.where(side[:, None] == side, 0.45, 0.12)
    dense = torch.triu(torch.rand(N, N, generator=generator) < chance, diagonal=1)
    dense[:, -1] = False
    if directed:  # some one way, some the other
        dense = dense & (torch.arange(N)[:, None] % 3 > 0) | (dense & (torch.arange(N)[:, None] % 3 == 0)).t()
    else:
        dense = dense | dense.t()
    dense[3, 3] = True
    edge_index = dense.nonzero().t()
    edge_index = edge_index[:, torch.randperm(edge_index.size(1), generator=generator)].contiguous()
    x = torch.randn(N, IN, generator=generator, dtype=torch.float64) * 0.5 + 0.7 * side[:, None] + 0.3
    return Data(x=x.to(dtype), edge_index=edge_index, y=side.clone(), **extra)


class TwoLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = pyg.GCNConv(IN, HID), pyg.GCNConv(HID, OUT)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Any:
        return self.b(self.a(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


def make_model(dtype: torch.dtype = torch.float64, make: Callable[[], nn.Module] = TwoLayer) -> nn.Module:
    torch.manual_seed(1)
    model = make().to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.6)
    return model


def pairs_of(edge_index: Tensor) -> set[tuple[int, int]]:
    return {(int(i), int(j)) for i, j in edge_index.t()}


def num_pairs(data: Data) -> int:
    return len({(min(i, j), max(i, j)) for i, j in pairs_of(data.edge_index) if i != j})


def assert_same_result(a: Adaptation, b: Adaptation) -> None:
    assert a.reason == b.reason
    for name, value in a.data.to_dict().items():
        assert torch.equal(value, b.data[name]) or name == "y"
    assert torch.equal(a.logits, b.logits)
    assert a.candidates == b.candidates
    assert [(s.kind, s.loss, s.terms, s.gradient_norm, s.flipped) for s in a.history] == [
        (s.kind, s.loss, s.terms, s.gradient_norm, s.flipped) for s in b.history
    ]


# ------------------------------------------------------------------------------------------- the slow reference


class Reference(NamedTuple):
    losses: list[float]
    norms: list[float]
    flipped: list[float]
    x: Tensor
    candidates: list[tuple[int, float]]
    edges: set[tuple[int, int]]


def exact_projection(p: Tensor, budget: int) -> Tensor:
    """Onto {0 <= p <= 1, sum p <= budget}: the shift is found among the breakpoints of a piecewise linear function."""
    clipped = p.clamp(0, 1)
    if clipped.sum() <= budget:
        return clipped
    breaks = torch.cat([p, p - 1]).sort().values
    sums = torch.stack([(p - b).clamp(0, 1).sum() for b in breaks])
    k = int((sums > budget).sum())  # sums fall; the shift lies between breaks[k - 1] and breaks[k]
    slope = (sums[k] - sums[k - 1]) / (breaks[k] - breaks[k - 1])
    return (p - (breaks[k - 1] + (budget - sums[k - 1]) / slope)).clamp(0, 1)


def reference(
    model: nn.Module,
    data: Data,
    *,
    steps: int,
    tau: tuple[int, int],
    lr: tuple[float, float],
    budget: int,
    update: str = "adam",
    num_samples: int = 5,
    seed: int = 0,
    p_drop: float = 0.5,
    forget: str = "",
) -> Reference:
    """Algorithm 1 with dense matrices, dX as the leaf, and nothing of this library."""
    x0, (source, target) = data.x, data.edge_index
    keys = sorted({(min(i, j), max(i, j)) for i, j in pairs_of(data.edge_index) if i != j})
    place = {key: k for k, key in enumerate(keys)}
    entries = list(zip(source.tolist(), target.tolist(), strict=True))
    of_entry = torch.tensor([place.get((min(i, j), max(i, j)), -1) for i, j in entries])
    w1, b1 = model.a.lin.weight.detach(), model.a.bias.detach()

    def weights(p: Tensor) -> Tensor:
        return torch.where(of_entry < 0, 1.0, 1.0 - p[of_entry.clamp(min=0)])

    def z(x: Tensor, weight: Tensor) -> Tensor:
        dense = torch.zeros(N, N, dtype=x.dtype).index_put((target, source), weight)
        dense = dense - torch.diag(dense.diagonal()) + torch.eye(N, dtype=x.dtype)
        scale = dense.sum(1).pow(-0.5)
        return torch.relu((scale[:, None] * dense * scale) @ x @ w1.t() + b1)

    def distance(u: Tensor, v: Tensor) -> Tensor:
        return (1 - (u * v).sum(1) / (u.norm(dim=1) * v.norm(dim=1))).mean()

    def loss_of(x: Tensor, weight: Tensor, generator: torch.Generator) -> Tensor:
        keep = torch.rand(weight.numel(), generator=generator) >= p_drop
        order = torch.randperm(N, generator=generator)
        full = z(x, weight)
        return distance(z(x, weight * keep), full) - distance(z(x[order], weight), full)

    generator = torch.Generator().manual_seed(seed)
    dx = torch.zeros_like(x0).requires_grad_()
    p = torch.zeros(len(keys), dtype=x0.dtype).requires_grad_()
    adam_x, adam_p = torch.optim.Adam([dx], lr=lr[0]), torch.optim.Adam([p], lr=lr[1])
    out = Reference([], [], [], x0, [], set())
    for t in range(steps):
        loss = loss_of(x0 + dx, weights(p), generator)
        features = t % sum(tau) < tau[0]
        leaf = dx if features else p
        (leaf.grad,) = torch.autograd.grad(loss, [leaf])
        out.losses.append(float(loss.detach()))
        out.norms.append(float(leaf.grad.norm()))
        with torch.no_grad():
            if features:
                adam_x.step()
            elif update == "adam":
                adam_p.step()
            elif update == "sign":
                p -= lr[1] * p.grad / (p.grad.abs() + 1e-8)
            else:
                p -= lr[1] * p.grad
            if not features:
                p.copy_(exact_projection(p, budget))
                if "x" in forget:
                    adam_x = torch.optim.Adam([dx], lr=lr[0])
                if "p" in forget:
                    adam_p = torch.optim.Adam([p], lr=lr[1])
        out.flipped.append(float(p.detach().sum()))
    x, p = (x0 + dx).detach(), p.detach()
    flips = [torch.zeros(len(keys), dtype=torch.bool)]
    if budget > 0 and (p > 0).any():
        top = torch.zeros_like(flips[0])
        top[p.topk(budget).indices] = True
        flips.append(top & (p > 0))
        for _ in range(num_samples):
            drawn = torch.rand(len(keys), generator=generator, dtype=p.dtype) < p
            chosen = drawn.nonzero().view(-1)
            if len(chosen) > budget:
                drawn[chosen[torch.randperm(len(chosen), generator=generator)[: len(chosen) - budget]]] = False
            flips.append(drawn)
    for flip in flips:
        score = loss_of(x, weights(flip.double()), torch.Generator().manual_seed(seed))
        out.candidates.append((int(flip.sum()), float(score)))
    best = flips[min(range(len(flips)), key=lambda k: out.candidates[k][1])]
    gone = {key for key, flipped in zip(keys, best, strict=True) if flipped}
    edges = {(i, j) for i, j in entries if (min(i, j), max(i, j)) not in gone}
    return out._replace(x=x, edges=edges)


def assert_follows(result: Adaptation, expected: Reference) -> None:
    assert result.reason is None
    for got, wanted in (
        ([s.loss for s in result.history], expected.losses),
        ([s.gradient_norm for s in result.history], expected.norms),
        ([s.flipped for s in result.history], expected.flipped),
        ([c.loss for c in result.candidates], [loss for _, loss in expected.candidates]),
    ):
        torch.testing.assert_close(torch.tensor(got), torch.tensor(wanted), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(result.data.x, expected.x, rtol=1e-7, atol=1e-7)
    assert [c.flips for c in result.candidates] == [flips for flips, _ in expected.candidates]
    assert pairs_of(result.data.edge_index) == expected.edges


@pytest.mark.parametrize("update, lr_edge", [("adam", 0.3), ("sign", 0.3), ("gradient", 200.0)])
@pytest.mark.parametrize("tau", [(4, 1), (2, 3), (1, 1), (0, 1), (1, 0)], ids=str)
@pytest.mark.parametrize("wide", [False, True], ids=["small", "as a wide graph"])
def test_the_whole_algorithm_equals_the_reference(
    update: str, lr_edge: float, tau: tuple[int, int], wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if wide:
        monkeypatch.setattr(propagation, "WIDE", 0)
        monkeypatch.setattr(side_by_side, "SMALL", 0)
    model, data, seed = make_model(), make_graph(), 3 + sum(tau)
    adapter = GTrans(
        steps=17,
        feature_steps=tau[0],
        edge_steps=tau[1],
        lr_feature=0.02,
        lr_edge=lr_edge,
        budget=4,
        edge_update=update,
    )
    result = adapter(model, data, seed=seed)
    expected = reference(model, data, steps=17, tau=tau, lr=(0.02, lr_edge), budget=4, update=update, seed=seed)
    if tau[1] == 0:
        expected = expected._replace(candidates=[])
    assert_follows(result, expected)
    if tau[1] > 0:
        assert max(s.flipped for s in result.history) > 3.9, "the projection should have had something to do"


def test_the_reference_tells_a_forgetful_adam() -> None:
    """Trap: moments that are lost at every structure step. The comparison above would notice."""
    model, data = make_model(), make_graph()
    kwargs: dict[str, Any] = {"steps": 12, "tau": (2, 2), "lr": (0.02, 0.1), "budget": 6}
    right = reference(model, data, **kwargs)
    assert_follows(
        GTrans(steps=12, feature_steps=2, edge_steps=2, lr_feature=0.02, lr_edge=0.1, budget=6)(model, data), right
    )
    for forget in ("x", "p"):
        wrong = reference(model, data, **kwargs, forget=forget)
        assert max(abs(a - b) for a, b in zip(right.losses, wrong.losses, strict=True)) > 1e-5


@pytest.mark.parametrize("tau", [(4, 1), (3, 2), (0, 2), (2, 0), (1, 4)], ids=str)
@pytest.mark.parametrize("steps", [0, 1, 5, 9])
def test_the_schedule_is_that_of_algorithm_1(tau: tuple[int, int], steps: int) -> None:
    result = GTrans(steps=steps, feature_steps=tau[0], edge_steps=tau[1], budget=3)(make_model(), make_graph())
    expected = ["feature" if t % sum(tau) < tau[0] else "edge" for t in range(steps)]
    assert [step.kind for step in result.history] == expected
    assert [step.index for step in result.history] == list(range(steps))


def test_no_steps_change_nothing() -> None:
    model, data = make_model(), make_graph()
    result = GTrans(steps=0, feature_steps=0, edge_steps=0)(model, data)
    assert result.reason is None and result.history == []
    assert torch.equal(result.data.x, data.x) and torch.equal(result.data.edge_index, data.edge_index)
    assert torch.equal(result.logits, model(data.x, data.edge_index))


@pytest.mark.parametrize("edge_steps", [0, 1, 2])
def test_the_loss_goes_down(edge_steps: int) -> None:
    """Measured under views drawn once, not at the noisy steps."""
    model, data = make_model(torch.float32), make_graph(torch.float32)
    adapter = GTrans(steps=40, edge_steps=edge_steps, lr_feature=0.02, budget=5)
    result = adapter(model, data)
    with FrozenGNN(model, data) as frozen, torch.no_grad():
        before, after = (
            sum(
                float(Contrastive()(frozen, Data(x=g.x, edge_index=g.edge_index), torch.Generator().manual_seed(s)))
                for s in range(20)
            )
            for g in (data, result.data)
        )
    assert after < before - 20 * 0.02
    assert result.summary()["loss_first"] == result.history[0].loss


# --------------------------------------------------------------------------------------------------------- traps


def test_edge_variables_move_after_one_step() -> None:
    """Trap: the tensor is rebound after the optimiser was built, so the variables stay at their initial value."""
    result = GTrans(steps=1, feature_steps=0, lr_edge=0.25, budget=50, edge_update="sign")(make_model(), make_graph())
    moved = result.history[0].flipped / 0.25  # each candidate with a negative gradient moves by lr_edge
    assert moved == pytest.approx(round(moved), abs=1e-3) and moved >= 1
    again = GTrans(steps=2, feature_steps=0, lr_edge=0.25, budget=50, edge_update="sign")(make_model(), make_graph())
    assert again.history[1].loss != result.history[0].loss
    assert again.history[1].flipped != again.history[0].flipped


def test_the_edges_of_the_relaxed_graph_reach_the_feature_steps() -> None:
    """After an edge step the features are learned on the weighted edges, not on the original ones."""
    seen: list[Tensor] = []

    def surrogate(model: Backbone, data: Data) -> Tensor:
        seen.append(data.edge_weight.detach().clone())
        return model(data.x, data.edge_index, data.edge_weight).square().mean()

    GTrans(surrogate, steps=4, feature_steps=1, edge_steps=1, lr_edge=0.2, budget=10)(make_model(), make_graph())
    assert torch.equal(seen[0], torch.ones_like(seen[0])) and torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[2], seen[0]) and 0 < float(seen[2].min()) < 1


def test_the_loss_depends_on_the_features_passed_in() -> None:
    """Trap: a loss that reads the features of another graph."""
    model, data = make_model(), make_graph()
    seen: list[Tensor] = []

    def surrogate(model: Backbone, data: Data) -> Tensor:
        seen.append(data.x.detach().clone())
        return model.embed(data.x, data.edge_index, data.get("edge_weight")).square().mean()

    result = GTrans(surrogate, steps=3, edge_steps=0, lr_feature=0.1)(model, data)
    with FrozenGNN(model, data) as frozen:
        for x, step in zip(seen, result.history, strict=True):
            assert float(frozen.embed(x, data.edge_index).detach().square().mean()) == pytest.approx(
                step.loss, rel=1e-12
            )
    assert not torch.equal(seen[0], seen[1]) and result.history[2].loss < result.history[0].loss
    first = GTrans(steps=1, edge_steps=0)
    other = make_graph()
    other.x = other.x.roll(1, 0)
    assert first(model, data).history[0].loss != first(model, other).history[0].loss


def test_views_drop_edges_also_when_only_features_are_learned() -> None:
    """DropEdge(0) leaves nothing to pull together; DropEdge(0.5) does, and a new set at every step."""
    model, data = make_model(), make_graph()
    none, half = (GTrans(Contrastive(DropEdge(p)), steps=3, edge_steps=0)(model, data) for p in (0.0, 0.5))
    assert all(step.terms["pull"] == pytest.approx(0, abs=1e-12) for step in none.history)
    pulls = [step.terms["pull"] for step in half.history]
    assert min(pulls) > 1e-4 and len(set(pulls)) == 3


@dataclass(frozen=True, eq=False)
class Recording(Surrogate):
    """Remembers the first number each evaluation draws."""

    draws: list[float] = field(default_factory=list)

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        self.draws.append(float(torch.rand((), generator=generator)))
        weight = data.edge_weight
        return {"logits": model(data.x, data.edge_index, weight).square().mean(), "edges": 0.01 * weight.sum()}


def test_candidates_are_scored_under_the_same_views_and_steps_under_fresh_ones() -> None:
    surrogate = Recording()
    result = GTrans(surrogate, steps=6, feature_steps=1, edge_steps=1, lr_edge=0.5, budget=5)(
        make_model(), make_graph()
    )
    assert len(result.candidates) == 7 and len(surrogate.draws) == 13
    assert len(set(surrogate.draws[:6])) == 6
    assert len(set(surrogate.draws[6:])) == 1


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


def gone(data: Data) -> Tensor:
    """How much of each edge entry is missing."""
    return 1.0 - data.edge_weight


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


# ---------------------------------------------------------------------------------------------------- the result


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
        assert torch.equal(result.logits, model(result.data.x, result.data.edge_index, result.data.edge_weight))
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
    outputs: list[tuple[Tensor, Tensor]] = []

    def surrogate(m: Backbone, d: Data) -> Tensor:
        out = m(d.x, d.edge_index, d.edge_weight)
        outputs.append((d.edge_weight.detach().clone(), out.detach().clone()))
        return out.square().mean()

    GTrans(surrogate, steps=3, feature_steps=0, lr_edge=0.3, budget=8)(model, data)
    presence, out = outputs[2]
    assert 0 < float(presence.min()) < 1
    with torch.no_grad():
        torch.testing.assert_close(out, model(data.x, data.edge_index, weight * presence))


# ---------------------------------------------------------------------------------------------------- directions


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
    assert torch.equal(result.logits, make_model()(result.data.x, result.data.edge_index))


# -------------------------------------------------------------------------------------------------------- limits


def test_frozen_edges_stay() -> None:
    data = make_graph()
    frozen = data.edge_index[0] < data.edge_index[1]
    frozen &= torch.arange(frozen.numel()) % 2 == 0  # one direction of about half of the edges
    adapter = GTrans(lambda m, d: -gone(d).sum(), steps=3, feature_steps=0, budget=1.0, lr_edge=2.0)
    result = adapter(make_model(), data, limits=Limits(frozen_edges=frozen))
    kept = pairs_of(data.edge_index[:, frozen])
    assert pairs_of(result.data.edge_index) == kept | {(j, i) for i, j in kept} | {(3, 3)}


def test_features_are_still_mended_where_no_edge_may_change() -> None:
    data = make_graph()
    everything = torch.ones(data.edge_index.size(1), dtype=torch.bool)
    result = GTrans(steps=10)(make_model(), data, limits=Limits(frozen_edges=everything))
    assert result.reason is None and result.patch.num_rows == N and result.patch.num_removed == 0


def test_limits_on_features_hold_at_every_step() -> None:
    data = make_graph()
    data.x[:, 0] = (data.x[:, 0] > 1).double()
    rows, columns = torch.arange(N) % 4 == 0, torch.arange(IN) == 1
    limits = Limits(frozen_nodes=rows, frozen_columns=columns, binary=torch.arange(IN) == 0, minimum=-0.2, maximum=1.5)
    seen: list[Tensor] = []

    def surrogate(model: Backbone, graph: Data) -> Tensor:
        seen.append(graph.x.detach().clone())
        return Contrastive()(model, graph, torch.Generator().manual_seed(len(seen)))

    result = GTrans(surrogate, steps=6, edge_steps=0, lr_feature=0.5)(make_model(), data, limits=limits)
    for x in (*seen[1:], result.data.x):
        assert torch.equal(x[rows], data.x[rows]) and torch.equal(x[:, columns], data.x[:, columns])
        assert float(x[~rows][:, ~columns].min()) >= -0.2 and float(x[~rows][:, ~columns].max()) <= 1.5
    assert set(result.data.x[:, 0].tolist()) <= {0.0, 1.0}
    assert not torch.equal(result.data.x, data.x)


# -------------------------------------------------------------------------------------------------------- labels


def test_labels_are_not_read() -> None:
    model, data = make_model(), make_graph()
    first = GTrans(steps=10, lr_edge=0.5, budget=4)(model, data)
    for labels in (torch.randint(0, 2, (N,)), torch.full((N,), -7), None):
        other = make_graph()
        other.y = labels
        if labels is None:
            del other.y
        result = GTrans(steps=10, lr_edge=0.5, budget=4)(model, other)
        assert torch.equal(result.data.x, first.data.x) and torch.equal(result.logits, first.logits)
        assert torch.equal(result.data.edge_index, first.data.edge_index)
        assert [s.loss for s in result.history] == [s.loss for s in first.history]


def test_labels_outside_the_mask_are_not_read() -> None:
    model, mask = make_model(), torch.arange(N) % 3 == 0
    adapter = GTrans(Supervised(mask) + 0.1 * Contrastive(), steps=10, lr_feature=0.05, lr_edge=0.5, budget=4)
    first = adapter(model, make_graph())
    other, different = make_graph(), make_graph()
    other.y = torch.where(mask, other.y, -100)
    different.y = torch.where(mask, 1 - different.y, different.y)
    assert_same_result(first, adapter(model, other))
    assert not torch.equal(first.data.x, adapter(model, different).data.x), "those inside are"
    assert set(first.history[0].terms) == {"supervised", "pull", "push"}
    assert first.history[0].loss == pytest.approx(sum(first.history[0].terms.values()))


# ------------------------------------------------------------------------------------------- nothing is touched


def rng() -> list[Any]:
    _, keys, *rest = np.random.get_state()  # noqa: NPY002
    return [torch.get_rng_state(), random.getstate(), torch.from_numpy(keys.copy()), *rest]


def state_of(model: nn.Module, data: Data) -> list[Any]:
    out: list[Any] = rng()
    for name, value in data.to_dict().items():
        out += [name, id(value), value.clone(), value._version, value.requires_grad]
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        out += [name, id(tensor), tensor.detach().clone(), tensor.requires_grad, tensor.grad]
    for _, module in model.named_modules():
        out += [module.training, sorted(vars(module)), len(module._forward_hooks), len(module._forward_pre_hooks)]
    return out


def assert_untouched(before: list[Any], after: list[Any]) -> None:
    assert len(before) == len(after)
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a, b) if isinstance(a, Tensor) else a == b


class Boom(Exception):
    pass


def failing(error: BaseException, after: int) -> Callable[[Backbone, Data], Tensor]:
    calls: list[int] = []

    def surrogate(model: Backbone, data: Data) -> Tensor:
        calls.append(1)
        if len(calls) > after:
            raise error
        return Contrastive()(model, data, torch.Generator().manual_seed(0))

    return surrogate


def bare_batch_norm() -> nn.Module:
    made: nn.Module = pyg.GraphSAGE(IN, HID, num_layers=3, out_channels=OUT, norm="BatchNorm", dropout=0.5)
    return made


@pytest.mark.parametrize("end", ["success", "surrogate", "scoring", "interrupt", "callback", "callback interrupt"])
def test_model_graph_and_generators_are_untouched(end: str) -> None:
    model, data = make_model(make=bare_batch_norm), make_graph()
    model.train()
    model.convs[0].eval()
    next(model.parameters()).requires_grad_(False)
    before = state_of(model, data)

    def stop(step: Step) -> None:
        if step.index == 6:
            raise Boom if end == "callback" else KeyboardInterrupt

    surrogate: Any = Contrastive()
    if end == "surrogate":
        surrogate = failing(Boom("no idea"), 3)
    elif end == "scoring":
        surrogate = failing(Boom("no idea"), 11)
    elif end == "interrupt":
        surrogate = failing(KeyboardInterrupt(), 5)
    adapter = GTrans(surrogate, steps=10, lr_feature=0.1, lr_edge=0.5, budget=4)
    if end in ("interrupt", "callback", "callback interrupt"):
        with pytest.raises(Boom if end == "callback" else KeyboardInterrupt):
            adapter(model, data, callback=stop if "callback" in end else None)
    else:
        result = adapter(model, data)
        assert (result.reason is None) is (end == "success")
        if end != "success":
            assert result.reason is not None and "Boom: no idea" in result.reason
            assert len(result.history) == (3 if end == "surrogate" else 10)
            assert len(result.candidates) == (0 if end == "surrogate" else 1)
            assert torch.equal(result.data.x, data.x) and torch.equal(result.data.edge_index, data.edge_index)
            assert torch.equal(result.logits, Identity()(model, data).logits)
            assert torch.equal(result.patch.apply(data).x, data.x)
    assert_untouched(before, state_of(model, data))


def test_the_same_seed_gives_the_same_result_and_others_differ() -> None:
    model, data = make_model(), make_graph()
    adapter = GTrans(steps=10, lr_edge=0.5, budget=5)
    first = adapter(model, data, seed=1)
    torch.manual_seed(77)
    random.seed(77)
    np.random.seed(77)  # noqa: NPY002
    torch.rand(5)
    assert_same_result(first, adapter(model, data, seed=1))
    assert_same_result(
        first, GTrans(steps=10, lr_edge=0.5, budget=5)(copy.deepcopy(model), copy.deepcopy(data), seed=1)
    )
    for seed in (0, 2, 2**40):
        assert not torch.equal(first.data.x, adapter(model, data, seed=seed).data.x)


# ------------------------------------------------------------------------------------------------ when it fails


class Spiked(torch.autograd.Function):
    """A finite value with a gradient that is not."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return torch.full((N, IN), math.inf, dtype=torch.float64)


def one_graph_term(model: Backbone, data: Data) -> Tensor:
    return model(data.x, data.edge_index, data.get("edge_weight")).square().mean()


def in_place(model: Backbone, data: Data) -> Tensor:
    z = model(data.x, data.edge_index, data.get("edge_weight")).exp()
    loss = z.square().sum()
    z.mul_(2.0)
    return loss


class _Vector(Surrogate):
    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        return {"rows": model(data.x, data.edge_index, data.get("edge_weight")).square().mean(1)}


REASONS: dict[str, tuple[Any, str]] = {
    "nan loss": (lambda m, d: one_graph_term(m, d) * math.nan, "loss is not finite"),
    "infinite loss": (lambda m, d: one_graph_term(m, d) / 0.0, "loss is not finite"),
    "infinite gradient": (lambda m, d: Spiked.apply(d.x), "gradient is not finite at step 0"),
    "raises": (failing(RuntimeError("out of cheese"), 0), "failed with RuntimeError: out of cheese"),
    "constant": (lambda m, d: torch.tensor(1.0), "does not depend on the graph's features"),
    "not a scalar": (_Vector(), "failed with RuntimeError"),
    "no backward": (in_place, "no gradient: RuntimeError"),
    "detached": (lambda m, d: m(d.x, d.edge_index).detach().mean(), "does not depend on the graph's features"),
}


@pytest.mark.parametrize("surrogate, reason", REASONS.values(), ids=REASONS.keys())
@pytest.mark.parametrize("edge_steps", [0, 1])
def test_a_failing_surrogate_ends_in_the_identity(
    surrogate: Any, reason: str, edge_steps: int, caplog: pytest.LogCaptureFixture
) -> None:
    model, data = make_model(), make_graph()
    result = GTrans(surrogate, steps=5, edge_steps=edge_steps)(model, data)
    assert result.reason is not None and reason in result.reason
    assert "the graph is left as it was" in caplog.text
    assert torch.equal(result.data.x, data.x) and torch.equal(result.data.edge_index, data.edge_index)
    with torch.no_grad():
        assert torch.equal(result.logits, model(data.x, data.edge_index))
    assert result.summary()["reason"] == result.reason


def test_a_loss_that_does_not_know_the_edges_says_so() -> None:
    result = GTrans(lambda m, d: d.x.square().sum(), steps=5)(make_model(), make_graph())
    assert result.reason is not None and "does not depend on the graph's edges; set edge_steps=0" in result.reason
    assert [step.kind for step in result.history] == ["feature"] * 4


def test_the_history_up_to_a_failure_is_kept() -> None:
    result = GTrans(failing(ValueError("late"), 7), steps=10)(make_model(), make_graph())
    assert result.reason is not None and [s.kind for s in result.history] == [
        *["feature"] * 4,
        "edge",
        *["feature"] * 2,
    ]


def test_features_that_run_away_end_in_the_identity() -> None:
    """The last step is followed by no further loss that could notice."""
    model, data = make_model(torch.float32), make_graph(torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10.0)
    for lr, said in ((1e39, "the mended features are not finite"), (3e36, "output on the mended graph is not finite")):
        result = GTrans(lambda m, d: 1e-6 * one_graph_term(m, d), steps=1, edge_steps=0, lr_feature=lr)(model, data)
        assert result.reason is not None and said in result.reason and len(result.history) == 1
        assert torch.equal(result.data.x, data.x) and result.logits.isfinite().all()
    result = GTrans(steps=1, lr_feature=3e36)(model, data)
    assert result.reason is not None and torch.equal(result.data.x, data.x)


def test_a_model_that_masks_classes_out_is_not_mistaken_for_a_broken_one() -> None:
    class Masking(TwoLayer):
        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Any:
            out = super().forward(x, edge_index, edge_weight)
            return out.masked_fill(torch.arange(OUT) == 1, -math.inf)

    result = GTrans(steps=5, edge_steps=0)(make_model(make=Masking), make_graph())
    assert result.reason is None and result.patch.num_rows == N


def test_discrete_graphs_that_cannot_be_scored_end_in_the_identity() -> None:
    def surrogate(model: Backbone, data: Data) -> Tensor:
        loss = one_graph_term(model, data)
        return loss if torch.is_grad_enabled() else loss - math.inf

    result = GTrans(surrogate, steps=5, lr_edge=0.5, budget=3)(make_model(), make_graph())
    assert result.reason == "the surrogate loss of every discrete graph is not finite"
    assert len(result.candidates) == 7 and len(result.history) == 5


def test_a_problem_with_the_input_is_an_error_not_a_reason() -> None:
    data = make_graph()
    del data.y
    with pytest.raises(GraphMendError, match="has no y"):
        GTrans(Supervised(torch.ones(N, dtype=torch.bool)))(make_model(), data)
    with pytest.raises(GraphMendError, match="no terms"):
        GTrans(_NoTerms())(make_model(), data)
    for value, got in ((1.0, "got 1.0"), (None, "got None"), (torch.ones(3), r"got shape \(3,\)")):
        with pytest.raises(GraphMendError, match=f"must return a tensor with one number .{got}"):
            GTrans(lambda m, d, value=value: value)(make_model(), data)


class _NoTerms(Surrogate):
    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        return {}


# --------------------------------------------------------------------------------------------- watching and limits


def test_the_callback_sees_every_step_when_it_is_done() -> None:
    seen: list[Step] = []
    result = GTrans(steps=10, budget=4)(make_model(), make_graph(), callback=seen.append)
    assert seen == result.history and [s.index for s in seen] == list(range(10))
    assert all(a.seconds <= b.seconds for a, b in itertools.pairwise(seen))
    assert result.seconds >= seen[-1].seconds
    assert result.summary()["steps"] == 10 and result.summary()["loss_last"] == seen[-1].loss


@pytest.mark.parametrize("edge_steps", [0, 1])
def test_a_time_limit_stops(edge_steps: int, caplog: pytest.LogCaptureFixture) -> None:
    data = make_graph()
    with caplog.at_level(logging.INFO, "graphmend"):
        result = GTrans(steps=10**9, edge_steps=edge_steps, time_limit=0.2)(make_model(), data)
    assert 0 < len(result.history) < 10**9 and result.reason is None
    assert f"stopped after {len(result.history)} of {10**9} steps" in caplog.text
    assert GTrans(steps=5, time_limit=1e-12)(make_model(), data).history == []
    assert len(GTrans(steps=5, time_limit=1e6)(make_model(), data).history) == 5


def test_progress_shows_on_standard_error_only(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # let rich believe that it writes to a terminal
    quiet = GTrans(steps=5, budget=3)(make_model(), make_graph())
    assert capfd.readouterr() == ("", "")
    shown = GTrans(steps=5, budget=3)(make_model(), make_graph(), progress=True)
    out, err = capfd.readouterr()
    assert out == "" and "mending" in err and "/5" in err
    assert_same_result(quiet, shown)


@pytest.mark.parametrize("error", [Boom, KeyboardInterrupt])
def test_the_progress_bar_goes_away_when_the_loop_is_left(error: type[BaseException]) -> None:
    """Two live displays cannot stand at once: rich itself says whether the first one is gone."""

    def stop(step: Step) -> None:
        raise error

    with pytest.raises(error) as caught:  # the traceback keeps the frames alive
        GTrans(steps=5, budget=3)(make_model(), make_graph(), progress=True, callback=stop)
    GTrans(steps=5, budget=3)(make_model(), make_graph(), progress=True)
    assert not [t for t in threading.enumerate() if "RefreshThread" in type(t).__name__]
    assert caught.traceback


def test_too_little_memory_is_said_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmend.engine.memory_check.available_memory", lambda device: 2**10)
    calls: list[Step] = []
    with pytest.raises(
        GraphMendError,
        match=rf"{N} nodes x {IN} features and \d+ edges needs about 0.0 GiB, but 0.0 GiB are free on cpu; use",
    ):
        GTrans()(make_model(), make_graph(), callback=calls.append)
    assert calls == []


def test_memory_grows_with_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphmend.engine.memory_check import available_memory, check_memory

    assert available_memory(torch.device("cpu")) > 2**20
    monkeypatch.setattr("graphmend.engine.memory_check.available_memory", lambda device: 2**30)
    wide = torch.empty(10**6, 50, device="meta")
    check_memory(torch.empty(10**5, 50, device="meta"), 10**6, 64)
    for x, edges, hidden in ((wide, 10**6, 64), (wide[:1000], 10**8, 64), (wide[: 10**5], 10**6, 10**4)):
        with pytest.raises(GraphMendError, match="use a larger machine or a part of the graph"):
            check_memory(x, edges, hidden)


# ------------------------------------------------------------------------------------------------- bad arguments


@pytest.mark.parametrize(
    "arguments, said",
    [
        ({"steps": -1}, r"steps must be a whole number >= 0 \(got -1\)"),
        ({"steps": 2.5}, r"steps must be a whole number >= 0 \(got 2.5\)"),
        ({"steps": "ten"}, r"steps must be a whole number >= 0 \(got 'ten'\)"),
        ({"feature_steps": -2}, r"feature_steps must be .* \(got -2\)"),
        ({"edge_steps": None}, r"edge_steps must be .* \(got None\)"),
        ({"feature_steps": 0, "edge_steps": 0}, "nothing to learn; set one of them"),
        ({"num_samples": -1}, "num_samples must be"),
        ({"block_size": -1}, "block_size must be"),
        ({"lr_feature": 0.0}, r"lr_feature must be positive and finite \(got 0.0\)"),
        ({"lr_feature": math.nan}, r"lr_feature must be positive and finite \(got nan\)"),
        ({"lr_feature": "fast"}, r"lr_feature must be positive and finite \(got 'fast'\)"),
        ({"lr_edge": -1}, r"lr_edge must be positive and finite \(got -1\)"),
        ({"lr_edge": math.inf}, r"lr_edge must be positive and finite \(got inf\)"),
        ({"budget": 1.3}, r"budget as a fraction must be in \[0, 1\] \(got 1.3\)"),
        ({"budget": math.nan}, r"budget as a fraction must be in \[0, 1\] \(got nan\)"),
        ({"budget": -1}, r"budget must not be negative \(got -1\)"),
        ({"budget": "all"}, r"budget must be a float fraction or an int count \(got 'all'\)"),
        ({"edge_update": "sgd"}, "unknown edge_update 'sgd'; choose one of adam, gradient, sign"),
        ({"space": "all"}, "unknown space 'all'; choose one of existing, random_block"),
        ({"directed": "both"}, "unknown directed 'both'; choose one of delete, reverse"),
        ({"time_limit": 0}, r"time_limit must be a positive number of seconds \(got 0\)"),
        ({"time_limit": "1 h"}, r"time_limit must be a positive number of seconds \(got '1 h'\)"),
        ({"surrogate": "entropi"}, "unknown surrogate 'entropi'; choose one of "),
        ({"surrogate": 3}, r"a surrogate is .* \(got 3\)"),
    ],
)
def test_bad_settings(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(GraphMendError, match=said):
        GTrans(**arguments)


@pytest.mark.parametrize(
    "call, said",
    [
        ({"seed": -1}, r"seed must be .* \(got -1\)"),
        ({"seed": 1.5}, r"seed must be .* \(got 1.5\)"),
        ({"seed": 2**64}, "seed must be"),
        ({"limits": {"frozen_nodes": None}}, r"limits must be a graphmend.Limits \(got dict\)"),
        (
            {"limits": Limits(frozen_nodes=torch.ones(3, dtype=torch.bool))},
            "frozen_nodes must be a bool mask of 16 entries",
        ),
        ({"model": None}, r"must be a torch.nn.Module \(got NoneType\)"),
        ({"data": None}, r"must be a torch_geometric.data.Data \(got NoneType\)"),
    ],
)
def test_bad_calls(call: dict[str, Any], said: str) -> None:
    given = {"model": make_model(), "data": make_graph(), **call}
    before = rng()
    with pytest.raises(GraphMendError, match=said):
        GTrans()(given.pop("model"), given.pop("data"), **given)
    assert_untouched(before, rng())


def test_an_unknown_embedding_is_said_even_where_it_is_not_needed() -> None:
    for surrogate in (Contrastive(), Supervised(torch.ones(N, dtype=torch.bool))):
        with pytest.raises(GraphMendError, match=r"no module 'c'; its modules are a, a.aggr_module, a.lin, b"):
            GTrans(surrogate, embedding="c")(make_model(), make_graph())


def test_edges_listed_twice_are_an_error_only_where_edges_are_learned() -> None:
    data = make_graph()
    data.edge_index = torch.cat([data.edge_index, data.edge_index[:, :2]], 1)
    with pytest.raises(GraphMendError, match=r"2 edges more than once.*coalesce"):
        GTrans()(make_model(), data)
    assert GTrans(edge_steps=0, steps=2)(make_model(), data).reason is None


# ------------------------------------------------------------------------------------------------------ one call


class TakesData(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = TwoLayer()

    def forward(self, data: Data) -> Any:
        return self.inner(data.x, data.edge_index)


def basic(name: str) -> nn.Module:
    kwargs: dict[str, Any] = {}
    if name == "PNA":
        kwargs = {"aggregators": ["mean", "max"], "scalers": ["identity"], "deg": torch.ones(12)}
    made: nn.Module = getattr(pyg, name)(IN, HID, num_layers=2, out_channels=OUT, norm="BatchNorm", **kwargs)
    return made


@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GIN", "GAT", "PNA", "EdgeCNN", "forward(data)"])
def test_one_call_mends_for_any_model(name: str, caplog: pytest.LogCaptureFixture) -> None:
    model = make_model(torch.float32, TakesData if name == "forward(data)" else lambda: basic(name))
    data = make_graph(torch.float32)
    result = graphmend.mend(model, data)
    features_only = name in ("PNA", "EdgeCNN")
    assert result.reason is None and result.patch.num_rows > 0
    assert [step.kind for step in result.history].count("edge") == (0 if features_only else 2)
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    if features_only:
        assert len(warnings) == 1 and warnings[0].startswith(
            "mending features only: edges cannot be learned through convs.0"
        )
        assert result.candidates == []
    else:
        assert warnings == []
    model.eval()
    with torch.no_grad():
        out = model(result.data) if name == "forward(data)" else model(result.data.x, result.data.edge_index)
    assert torch.equal(out, result.logits)


def test_one_call_passes_everything_on() -> None:
    model, data, seen = make_model(), make_graph(), []
    rows = torch.arange(N) < 4
    result = graphmend.mend(model, data, seed=5, limits=Limits(frozen_nodes=rows), callback=seen.append)
    assert_same_result(result, GTrans()(model, data, seed=5, limits=Limits(frozen_nodes=rows)))
    assert len(seen) == 10 and torch.equal(result.data.x[rows], data.x[rows])
    adapter = GTrans(steps=3, edge_steps=0)
    assert_same_result(graphmend.mend(model, data, adapter), adapter(model, data))
    other = make_model(make=lambda: basic("PNA"))
    expected = GTrans(edge_steps=0)(other, data, seed=5, limits=Limits(frozen_nodes=rows))
    assert_same_result(graphmend.mend(other, data, seed=5, limits=Limits(frozen_nodes=rows)), expected)


def test_identity_predicts_and_changes_nothing() -> None:
    model, data = make_model(make=bare_batch_norm), make_graph()
    before = state_of(model, data)
    result = Identity()(model, data)
    assert_untouched(before, state_of(model, data))
    assert torch.equal(result.logits, model.eval()(data.x, data.edge_index))
    assert result.reason is None and result.history == [] and result.summary()["feature_rows_changed"] == 0
    assert result.patch.num_rows == result.patch.num_removed == result.patch.num_added == 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("model", [*BACKBONES, pyg.GCN, pyg.GraphSAGE, pyg.GAT, pyg.GIN], ids=str)
def test_activations_of_half_the_size_follow_the_same_losses(model: Any, device: str) -> None:
    torch.manual_seed(5)
    net = (build(model, IN, HID, OUT) if isinstance(model, str) else model(IN, HID, 2, OUT)).to(device).eval()
    data = make_graph(torch.float32).to(device)
    runs = [GTrans(steps=6, edge_steps=2, activations=a)(net, data.clone()) for a in ("float32", "bfloat16")]
    whole, half = (np.array([step.loss for step in run.history]) for run in runs)
    assert runs[1].reason is None and runs[1].data.x.dtype == runs[1].logits.dtype == torch.float32
    np.testing.assert_allclose(half, whole, atol=0.02)
    assert (half != whole).any()
    norms = np.array([[step.gradient_norm for step in run.history] for run in runs])
    np.testing.assert_allclose(norms[1], norms[0], rtol=0.1, atol=1e-3)


@pytest.mark.parametrize("name", ["gcn", "sage", "gat", "gpr", "appnp", "airgnn"])
def test_the_embed_of_our_own_backbones_is_the_one_that_is_used(name: str, caplog: pytest.LogCaptureFixture) -> None:
    model, calls = build(name, IN, HID, OUT).double(), []
    own = type(model).embed

    class Counted(type(model)):  # type: ignore[misc]
        def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
            calls.append(1)
            return own(self, x, edge_index, edge_weight)

    model.__class__ = Counted
    with caplog.at_level(logging.WARNING):
        result = GTrans(steps=5)(model, make_graph())
    assert result.reason is None and "embed" not in caplog.text
    assert len(calls) >= 3 * 5


def test_limits_leave_features_alone_that_are_not_learned() -> None:
    data = make_graph()
    result = GTrans(feature_steps=0)(make_model(), data, limits=Limits(minimum=0.0, maximum=0.1))
    assert torch.equal(result.data.x, data.x)


def test_pairs_of_nodes_beside_the_edges_are_no_edge_attributes() -> None:
    data = make_graph()
    data.edge_label_index = data.edge_index.flip(1)
    result = GTrans(budget=0.2)(make_model(), data)
    assert result.reason is None and torch.equal(result.data.edge_label_index, data.edge_label_index)


def test_nothing_is_left_behind() -> None:
    """A service that mends many graphs must not wait for the garbage collector to get its memory back."""
    model, data = GCN(5, 8, 3).double().eval(), make_graph()
    GTrans(steps=5)(model, data)
    gc.collect()
    gc.disable()
    try:
        GTrans(steps=5)(model, data)
        kept = [o for o in gc.get_objects() if type(o) is Tensor and o.numel() >= N]
        gc.collect()
        assert len(kept) == len([o for o in gc.get_objects() if type(o) is Tensor and o.numel() >= N])
    finally:
        gc.enable()


def test_a_surrogate_may_take_gradients_of_its_own() -> None:
    def penalised(model: Backbone, data: Data) -> Tensor:
        z = model.embed(data.x, data.edge_index, data.get("edge_weight"))
        (slope,) = torch.autograd.grad(z.square().sum(), data.x, create_graph=False, retain_graph=True)
        return z.square().mean() + 0.0 * slope.sum()

    result = GTrans(penalised, steps=3, edge_steps=0)(make_model(), make_graph())
    assert result.reason is None and result.history[0].gradient_norm > 0


def test_column_major_features_move_like_any_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(updates.BLOCK, "cpu", 12)  # several blocks of rows
    data, model = make_graph(), make_model()
    other = data.clone()
    other.x = data.x.t().contiguous().t()
    assert not other.x.is_contiguous()
    ours, theirs = (GTrans(steps=5, lr_feature=0.01)(model, graph) for graph in (data, other))
    torch.testing.assert_close(ours.data.x, theirs.data.x)
    monkeypatch.undo()
    torch.testing.assert_close(ours.data.x, GTrans(steps=5, lr_feature=0.01)(model, data).data.x)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("model", [*BACKBONES, pyg.GCN, pyg.GraphSAGE, pyg.GAT, pyg.GIN], ids=str)
def test_products_computed_with_the_step_are_those_computed_after_it(
    model: Any, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Limits that allow everything: features may be put back after a step, so nothing is computed with it."""
    for kind in ("cpu", "cuda"):
        monkeypatch.setitem(updates.BLOCK, kind, 17)  # several blocks of rows
    torch.manual_seed(5)
    net = (build(model, IN, HID, OUT) if isinstance(model, str) else model(IN, HID, 2, OUT)).double().to(device).eval()
    data = make_graph().to(device)
    adapter = GTrans(steps=10, feature_steps=3, edge_steps=2, lr_feature=0.05, lr_edge=0.5, budget=4)
    frozen = torch.arange(data.num_edges, device=device) < 4
    free, bound = (Limits(frozen_edges=frozen, minimum=minimum) for minimum in (None, -1e9))
    ours, theirs = (adapter(net, data.clone(), limits=limits) for limits in (free, bound))
    assert ours.reason is None and not free.bind_features() and bound.bind_features()
    torch.testing.assert_close(ours.data.x, theirs.data.x)
    torch.testing.assert_close(ours.logits, theirs.logits)
    torch.testing.assert_close(ours.logits, net(ours.data.x, ours.data.edge_index))
    for mine, other in zip([*ours.history, *ours.candidates], [*theirs.history, *theirs.candidates], strict=True):
        assert mine.loss == pytest.approx(other.loss)


@pytest.mark.parametrize("name", ["convs.0", "norms.0"])
def test_a_layer_of_our_own_backbones_can_be_named(name: str) -> None:
    model, data = GCN(5, 8, 3, batch_norm=True).double().eval(), make_graph()
    assert GTrans(steps=3, embedding=name)(model, data).reason is None


def test_other_norms_than_ours_are_not_left_out() -> None:
    model, data = GCN(5, 8, 3, batch_norm=True).double().eval(), make_graph()
    model.norms[0] = nn.LayerNorm(8).double()
    with torch.no_grad():
        hidden = model.norms[0](model.convs[0](data.x, gcn_norm(Adjacency.of(data.edge_index, N), None, torch.float64)))
        torch.testing.assert_close(model.embed(data.x, data.edge_index), hidden.relu())
