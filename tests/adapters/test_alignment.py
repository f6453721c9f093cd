"""The closed form behind Align: its directions by dense references, and what it never does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import FrozenGNN
from graphmend.adapters import alignment as closed_form
from graphmend.adapters.alignment import LARGEST_FACTOR, LARGEST_ROW, RIDGE, LowRankChange, _pseudo_inverse, alignment
from graphmend.cards.moments import Moments, moments
from graphmend.engine.linear_maps import LinearMaps
from graphmend.lab.backbones import build
from support.graphs import dense, dense_norm, rng, undirected
from support.sample_models import Residual, basic
from support.sample_models import make_graph as sample_graph
from support.sample_models import seeded as sample_seeded
from support.untouched import assert_same, state_of

N, IN, HID, OUT = 90, 10, 6, 3


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=rng(seed), dtype=torch.float64)


def graph() -> Data:
    """One node is a hub, whose neighbours have something in common."""
    edges = undirected(N, density=0.015)
    hub = torch.stack([torch.zeros(20, dtype=torch.long), torch.arange(20, 40)])
    edge_index = torch.cat([edges, hub, hub.flip(0)], dim=1).unique(dim=1)
    x = normal(N, IN)
    x[20:40] += 4 * normal(IN, seed=8)
    return Data(x=x, edge_index=edge_index)


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(4)
    model = make().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {
    **{name: lambda name=name: build(name, IN, HID, OUT) for name in ("gcn", "sage", "gat", "gpr")},
    **{
        name: lambda name=name: getattr(pyg, name)(IN, HID, num_layers=2, out_channels=OUT)
        for name in ("GCN", "GraphSAGE", "GAT", "GIN")
    },
    "one logit": lambda: pyg.GCN(IN, HID, num_layers=2, out_channels=1),
    "one unit": lambda: pyg.GCNConv(IN, 1),
}


class Setting:
    """A frozen model on a graph, ready to be aligned."""

    def __init__(self, frozen: FrozenGNN, data: Data) -> None:
        self.frozen, self.data, self.base = frozen, data, LinearMaps(data.x)

    def first(self, x: Tensor) -> Tensor:
        return self.frozen.first_layer(x, self.data.edge_index)

    @torch.no_grad()
    def moments(self, x: Tensor | None = None) -> Moments:
        return moments(self.first(self.data.x if x is None else x))

    def change(self, target: Moments) -> LowRankChange:
        return alignment(self.first, self.base, self.frozen.first_map, target)

    def coordinates(self) -> Any:
        return closed_form._Coordinates(self.first, self.base, self.frozen.first_map)


def other_moments(now: Moments, seed: int = 0, size: float = 1.0) -> Moments:
    """Means elsewhere, deviations wider and narrower."""
    shift, stretch = normal(2, now.mean.numel(), seed=seed)
    return Moments(now.mean + size * shift * now.unit, now.unit * (0.5 * size * stretch).exp())


class TwoLayers(nn.Module):
    """Of a single convolution and a head, so that there is a first layer."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv, self.head = conv, nn.Linear(1, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.head(self.conv(x, edge_index).relu())


def make(kind: str) -> nn.Module:
    return seeded(lambda: TwoLayers(MODELS[kind]()) if kind == "one unit" else MODELS[kind]())


@pytest.mark.parametrize("stretched", [0.6, 1.5])
@pytest.mark.parametrize("kind", MODELS)
def test_the_moments_are_reached(kind: str, stretched: float) -> None:
    """Those of the same layer for features that have been moved and stretched."""
    model, data = make(kind), graph()
    trained = Data(x=stretched * data.x + normal(IN, seed=1), edge_index=data.edge_index)
    with FrozenGNN(model, data) as frozen:
        at = Setting(frozen, data)
        target = at.moments(trained.x)
        change = at.change(target)
        x = change.added_to(data.x)
        then, now = target.distance(at.moments()), target.distance(at.moments(x))
        torch.testing.assert_close(at.first(change.of(at.base)), at.first(x))
    assert then > 0.35 and now < (0.2 * then if kind in ("gat", "GAT") else 0.01)  # attention is no linear map


@pytest.mark.parametrize("kind", MODELS)
def test_it_is_never_farther_from_the_target(kind: str) -> None:
    model, data = make(kind), graph()
    with FrozenGNN(model, data) as frozen:
        at = Setting(frozen, data)
        now = at.moments()
        for seed in range(4):
            for size in (0.01, 1.0, 5.0):
                target = other_moments(now, seed, size)
                got = at.moments(at.change(target).added_to(data.x))
                assert target.distance(got) <= target.distance(now) * (1 + 1e-9)


@pytest.mark.parametrize("kind", MODELS)
def test_where_the_moments_are_met_nothing_changes(kind: str) -> None:
    model, data = make(kind), graph()
    with FrozenGNN(model, data) as frozen:
        at = Setting(frozen, data)
        now = at.moments()
        for target in (now, Moments(now.mean + 1e-6 * now.unit, now.std)):
            change = at.change(target)
            assert not change.left[:, :-1].any() and torch.equal(change.added_to(data.x), data.x)


@pytest.mark.parametrize("kind", MODELS)
def test_it_leaves_everything_as_it_was(kind: str) -> None:
    model, data = make(kind), graph()
    data.x.requires_grad_()
    with FrozenGNN(model, data) as frozen:
        at = Setting(frozen, data)
        target = other_moments(at.moments())
        kept = target.mean.clone(), target.std.clone()
        at.change(target)  # trials have been made
        before = state_of(model, data)
        change = at.change(target)
        assert_same(before[1:], state_of(model, data)[1:])
    assert data.x.requires_grad and data.x.grad is None
    assert not change.left.requires_grad and not change.right.requires_grad
    assert torch.equal(target.mean, kept[0]) and torch.equal(target.std, kept[1])
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


# ---------------------------------------------------------------- directions


@pytest.mark.parametrize("kind", ["gcn", "GCN"])
def test_a_gcn_is_widened_along_what_neighbourhoods_share(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A^T (h - mean) in the coordinates X W, by dense matrices; then hubs are held back."""
    model, data = make(kind), graph()
    operator = dense_norm(dense(data.edge_index, N))
    with FrozenGNN(model, data) as frozen:
        space = Setting(frozen, data).coordinates()
        none = space.change(torch.zeros(N, HID).double(), torch.zeros(HID).double())
        limited = space.widening(none)
        monkeypatch.setattr(closed_form, "LARGEST_ROW", torch.inf)
        free = space.widening(none)
        h = frozen.first_layer(data.x, data.edge_index)
    expected = operator.t() @ (h - h.mean(0))
    expected = expected - expected.mean(0)
    torch.testing.assert_close(free, expected, rtol=1e-9, atol=1e-11)
    sizes = [float((row / expected.std(0, correction=0)).norm()) for row in expected]
    typical = sorted(sizes)[(N - 1) // 2]
    for row, size, got in zip(expected, sizes, limited, strict=True):
        torch.testing.assert_close(got, row * min(1.0, LARGEST_ROW * typical / size), rtol=1e-9, atol=1e-11)
    assert max(sizes) > 1.05 * LARGEST_ROW * typical, "some node is held back"


def test_the_direction_of_any_layer_is_that_of_its_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    """For SAGE, through its two matrices; for GIN, which adds features up, by way of the response of its mean."""
    monkeypatch.setattr(closed_form, "LARGEST_ROW", torch.inf)
    for kind in ("sage", "GraphSAGE", "GIN", "GAT"):
        model, data = make(kind), graph()
        with FrozenGNN(model, data) as frozen:
            at = Setting(frozen, data)
            space = at.coordinates()
            none = space.change(torch.zeros_like(space.stretching()), torch.zeros(HID).double())
            direction = space.widening(none)
            x = data.x.clone().requires_grad_()
            h = at.first(x)
            (gradient,) = torch.autograd.grad(0.5 * (h - h.mean(0)).square().sum(), x)
            step = direction @ space.inverse
        assert float((step * gradient).sum()) > 0, "the variance grows"
        if space.copies == 1:
            expected = gradient @ torch.linalg.pinv(space.rows.detach())
            expected = expected - expected.mean(0)
            torch.testing.assert_close(direction, expected, rtol=0.1, atol=0.05 * float(expected.std()))


def test_a_layer_that_adds_features_up_first_has_both_its_matrices_as_coordinates() -> None:
    model, data = make("GraphSAGE"), graph()
    with FrozenGNN(model, data) as frozen:
        space = Setting(frozen, data).coordinates()
        summed, own = space.rows.chunk(2)
        conv = model.convs[0]
        torch.testing.assert_close(own, conv.lin_r.weight, check_stride=False)
        share = float(summed[0, 0] / conv.lin_l.weight[0, 0])  # of the nodes that have neighbours
        assert space.copies == 2 and 0 < share <= 1 + 1e-9
        torch.testing.assert_close(summed, share * conv.lin_l.weight.detach(), check_stride=False)


def test_the_change_is_the_smallest_one_for_a_linear_map() -> None:
    """Of all changes with the same effect on XW; a little of the effect is given away to keep it small."""
    x, weight = normal(50, 7), normal(7, 3, seed=1)
    target = Moments(torch.tensor([2.0, -1.0, 0.5]).double(), torch.tensor([1.0, 4.0, 2.0]).double())
    change = alignment(lambda x: x @ weight, LinearMaps(x), weight, target)
    out = change.added_to(x)
    assert target.distance(moments(out @ weight)) < 2e-3 < target.distance(moments(x @ weight))
    smallest = (out - x) @ weight @ torch.linalg.pinv(weight)
    torch.testing.assert_close(out - x, smallest, rtol=1e-6, atol=1e-9)
    assert torch.linalg.matrix_rank(change.left @ change.right) <= 4


@settings(max_examples=60)
@given(st.integers(0, 9999), st.floats(0.05, 20.0))
def test_how_far_to_go_along_a_response(seed: int, wanted: float) -> None:
    """The smaller root of var(h + a q) = goal, where the goal is at most twice or half of what there is."""
    h, q = normal(30, 4, seed=seed), normal(30, 4, seed=seed + 1)
    goal = torch.full((4,), wanted).double()
    factors = closed_form._factors(h, q, goal)
    for k in range(4):
        a, deviation = float(factors[k]), float(h[:, k].std(correction=0))
        aim = min(max(wanted, deviation / LARGEST_FACTOR), deviation * LARGEST_FACTOR)
        reached = float((h[:, k] + a * q[:, k]).std(correction=0))
        square, mixed = (float(torch.cov(torch.stack([v, q[:, k]]), correction=0)[0, 1]) for v in (q[:, k], h[:, k]))
        lowest = max(deviation**2 - mixed**2 / square, 0) ** 0.5
        assert reached == pytest.approx(max(aim, lowest), rel=1e-6)
        if aim > lowest:
            other = -2 * mixed / square - a
            assert abs(a) <= abs(other) + 1e-9


def test_a_column_that_does_not_answer_is_left_alone() -> None:
    h = normal(30, 3)
    q = torch.stack([torch.zeros(30).double(), 1e-9 * normal(30, seed=1), torch.ones(30).double()], dim=1)
    factors = closed_form._factors(h, q, torch.full((3,), 9.0).double())
    assert factors.tolist() == [0.0, 0.0, 0.0]


# ---------------------------------------------------------------- odd graphs


@pytest.mark.parametrize("nodes", [1, 2, 30])
@pytest.mark.parametrize("features", ["constant", "zero", "one column varies", "all"])
def test_nothing_is_ever_not_a_number(nodes: int, features: str) -> None:
    x = normal(nodes, IN)
    if features != "all":
        x = torch.zeros_like(x) if features == "zero" else torch.ones_like(x)
    if features == "one column varies":
        x[:, 0] = normal(nodes, seed=3)
    plain = normal(IN, 4, seed=1)
    weights = (plain, plain * torch.tensor([1.0, 1.0, 0.0, 1.0]), torch.zeros_like(plain))  # units may be dead
    operator = dense_norm(dense(torch.stack([torch.arange(nodes), torch.arange(nodes).roll(1)]), nodes))
    target = Moments(normal(4, seed=5), torch.tensor([1.0, 0.0, 0.3, 5.0]).double())
    for dtype in (torch.float32, torch.float64):
        for weight in weights:

            def first(x: Tensor, weight: Tensor = weight) -> Tensor:
                return operator.to(x.dtype) @ (x @ weight.to(x.dtype))

            goal = Moments(target.mean.to(dtype), target.std.to(dtype))
            own = x.to(dtype)
            out = alignment(first, LinearMaps(own), weight.to(dtype), goal).added_to(own)
            assert out.dtype == dtype and bool(out.isfinite().all())
            assert goal.distance(moments(first(out))) <= goal.distance(moments(first(own))) * (1 + 1e-5)


def test_a_graph_of_one_node_can_only_be_shifted() -> None:
    x, weight = normal(1, IN), normal(IN, 4, seed=1)
    target = Moments(normal(4, seed=5), torch.ones(4).double())
    out = alignment(lambda x: x @ weight, LinearMaps(x), weight, target).added_to(x)
    torch.testing.assert_close(out @ weight, target.mean.unsqueeze(0), rtol=0.01, atol=0.01)


def test_models_that_use_features_besides_their_maps() -> None:
    makers: list[Callable[[], nn.Module]] = [Residual, lambda: basic("EdgeCNN", num_layers=2)]
    makers.append(lambda: basic("GraphSAGE", num_layers=2, aggr="max"))
    for make_model in makers:
        model, data = sample_seeded(make_model, torch.float64), sample_graph(torch.float64)
        with FrozenGNN(model, data) as frozen:
            at = Setting(frozen, data)
            target = at.moments(0.7 * data.x + 0.8)
            got = at.moments(at.change(target).added_to(data.x))
            assert target.distance(got) < 0.5 * target.distance(at.moments())


@pytest.mark.parametrize("small", [0.0, 1e-6, 1e-3, 0.02, 0.0224, 0.03, 0.1, 1.0])
def test_the_inverse_of_maps_is_damped_where_they_are_nearly_parallel(small: float) -> None:
    """A singular value s becomes s / (s² + λ), which is never large."""
    values = torch.tensor([1.0, small], dtype=torch.float64)
    ridge = RIDGE * float(values.square().mean())
    expected = values / (values.square() + ridge)
    torch.testing.assert_close(_pseudo_inverse(values.diag()), expected.diag())
    assert float(expected.max()) < 0.51 / ridge**0.5
