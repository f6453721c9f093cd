"""Alignment: the moments are reached, by the smallest change, for models of all kinds."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import Adaptation, FrozenGNN, Limits
from graphmend.adapters import Align
from graphmend.cards import SourceCard, card
from graphmend.cards.moments import Moments, moments
from graphmend.lab.backbones import BACKBONES, build
from support import sample_models
from support.graphs import rng, undirected
from support.untouched import assert_same, state_of

N, IN, HID, OUT = 120, 12, 8, 3


def graph(seed: int = 0, dtype: torch.dtype = torch.float64) -> Data:
    """Three classes with features of their own."""
    y = torch.arange(N) % OUT
    centres = torch.randn(OUT, IN, generator=rng(100), dtype=torch.float64)
    x = centres[y] + 0.6 * torch.randn(N, IN, generator=rng(seed), dtype=torch.float64)
    return Data(x=x.to(dtype), edge_index=undirected(N, seed, density=0.04), y=y)


def shifted(data: Data) -> Data:
    """The same graph after every row has been stretched and moved."""
    move = torch.randn(IN, generator=rng(7), dtype=torch.float64).to(data.x.dtype)
    return Data(x=1.6 * data.x + 1.5 * move, edge_index=data.edge_index, y=data.y)


def seeded(make: Callable[[], nn.Module], dtype: torch.dtype = torch.float64) -> nn.Module:
    return sample_models.seeded(make, dtype, seed=4)


def first_moments(model: nn.Module, data: Data) -> Moments:
    with FrozenGNN(model, data) as frozen, torch.no_grad():
        return moments(frozen.first_layer(data.x, data.edge_index))


def distances(model: nn.Module, made: SourceCard, *graphs: Data) -> list[float]:
    return [made.first.distance(first_moments(model, data)) for data in graphs]


class SharedConv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = pyg.SAGEConv(IN, IN), nn.Linear(IN, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.out(self.conv(self.conv(x, edge_index).tanh(), edge_index).tanh())


def stock(name: str, **options: Any) -> nn.Module:
    made: nn.Module = getattr(pyg, name)(IN, HID, num_layers=2, out_channels=OUT, **options)
    return made


MODELS: dict[str, Callable[[], nn.Module]] = {
    **{name: lambda name=name: build(name, IN, HID, OUT) for name in BACKBONES if name != "gat"},
    **{name: lambda name=name: stock(name) for name in ("GCN", "GraphSAGE", "GIN")},
    "batch norm": lambda: stock("GCN", norm="BatchNorm"),
    "one convolution twice": SharedConv,
}


@pytest.mark.parametrize("kind", MODELS)
def test_the_moments_are_reached(kind: str) -> None:
    model, data = seeded(MODELS[kind]), graph()
    made, test = card(model, data, task="classes"), shifted(data)
    before = state_of(model, test)
    result = Align()(model, test, card=made)
    assert_same(before, state_of(model, test))
    then, now = distances(model, made, test, result.data)
    assert result.reason is None and then > 0.5 and now < 0.1 * then
    if kind in ("GCN", "gcn", "gpr", "appnp", "airgnn", "batch norm"):  # a single linear map
        assert now < 0.02
    assert (result.patch.num_rows, result.patch.num_removed, result.patch.num_weights) == (N, 0, 0)


@pytest.mark.parametrize("name", ["GAT", "gat"])
def test_attention_comes_nearer(name: str) -> None:
    """Attention is no linear map, so that the way back is one to first order only."""
    model = seeded((lambda: stock("GAT", heads=2)) if name == "GAT" else (lambda: build("gat", IN, HID, OUT)))
    data = graph()
    made, test = card(model, data, task="classes"), shifted(data)
    then, now = distances(model, made, test, Align()(model, test, card=made).data)
    assert now < 0.5 * then


def test_the_training_graph_stays_as_it_is() -> None:
    model, data = seeded(MODELS["GCN"]), graph()
    made = card(model, data, task="classes")
    result = Align()(model, data, card=made)
    assert torch.equal(result.data.x, data.x) and result.patch.num_rows == 0
    assert result.data.x.data_ptr() != data.x.data_ptr()


def trained(model: nn.Module, data: Data) -> nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(data.x, data.edge_index), data.y).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("kind", ["gcn", "GraphSAGE"])
def test_a_shift_of_all_rows_is_undone(kind: str) -> None:
    data = graph()
    ring = torch.stack([torch.arange(N), (torch.arange(N) + OUT) % N])  # neighbours have the same class
    data.edge_index = torch.cat([ring, ring.flip(0)], dim=1)
    model = trained(seeded(MODELS[kind]), data)
    move = data.x[data.y == 1].mean(0) - data.x[data.y == 0].mean(0)
    test = Data(x=data.x + 3 * move, edge_index=data.edge_index, y=data.y)
    result = Align()(model, test, card=card(model, data, task="classes"))
    with FrozenGNN(model, data) as frozen:
        logits = frozen.predict(data), frozen.predict(test), result.logits
    there, lost, found = (float((out.argmax(1) == data.y).double().mean()) for out in logits)
    assert there > 0.95 and lost < 0.7 and found > there - 0.03


@pytest.mark.parametrize("scale", [1e-3, 40.0])
@pytest.mark.parametrize("kind", ["gcn", "GraphSAGE", "GIN"])
def test_the_unit_of_the_features_does_not_matter(kind: str, scale: float) -> None:
    """Larger features and a model with smaller weights for them: the same predictions."""
    model, data = seeded(MODELS[kind]), graph()
    other, test = copy.deepcopy(model), shifted(data)
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            if parameter.dim() == 2 and IN in parameter.shape:
                parameter /= scale
                assert "convs.0" in name
    larger, larger_test = (Data(x=scale * g.x, edge_index=g.edge_index) for g in (data, test))
    mine = Align()(model, test, card=card(model, data, task="classes"))
    others = Align()(other, larger_test, card=card(other, larger, task="classes"))
    torch.testing.assert_close(others.logits, mine.logits, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(others.data.x / scale, mine.data.x, rtol=1e-6, atol=1e-7)


def test_fewer_columns_than_units() -> None:
    model = seeded(lambda: build("gcn", 2, 16, OUT))
    data = Data(x=torch.randn(60, 2, generator=rng(), dtype=torch.float64), edge_index=undirected(60, density=0.08))
    made = card(model, data, task="classes")
    test = Data(x=2 * data.x + 1, edge_index=data.edge_index)
    result = Align()(model, test, card=made)
    then, now = distances(model, made, test, result.data)
    assert now < 0.1 * then


@pytest.mark.parametrize("degree", [4, 60, 200])
@pytest.mark.parametrize("kind", ["GIN", "GraphConv"])
def test_sums_over_many_neighbours_converge(kind: str, degree: int) -> None:
    """On the few nodes of a trial a node has few neighbours, so the layer answers more strongly than was measured."""
    nodes = 1000
    source = torch.arange(nodes).repeat_interleave(degree)
    target = (source + torch.randint(1, nodes, source.shape, generator=rng())) % nodes
    edge_index = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
    x = torch.randn(nodes, IN, generator=rng(2), dtype=torch.float64)
    data, test = Data(x=x, edge_index=edge_index), Data(x=x + 0.8, edge_index=edge_index)
    model = seeded(lambda: stock("GIN") if kind == "GIN" else TwoSums())
    made = card(model, data, task="classes")
    then, now = distances(model, made, test, Align()(model, test, card=made).data)
    assert then > 1 and now < 0.05 * then


class TwoSums(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = pyg.GraphConv(IN, HID), pyg.GraphConv(HID, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.b(self.a(x, edge_index).relu(), edge_index)


def test_strength_goes_part_of_the_way() -> None:
    model, data = seeded(MODELS["GCN"]), graph()
    made, test = card(model, data, task="classes"), shifted(data)
    full, half, some = (Align(strength=s)(model, test, card=made) for s in (1.0, 0.5, 0.1))
    torch.testing.assert_close(half.data.x, (test.x + full.data.x) / 2)
    torch.testing.assert_close(some.data.x, 0.9 * test.x + 0.1 * full.data.x)
    near = distances(model, made, test, some.data, half.data, full.data)
    assert near == sorted(near, reverse=True)


def test_limits_never_reach_the_callers_features() -> None:
    """Also where nothing improves and the features would be returned as they came."""
    model, data = seeded(MODELS["GCN"]), graph()
    made, before = card(model, data, task="classes"), data.x.clone()
    rows = torch.arange(N) % 3 == 0
    for test in (data, shifted(data)):
        result = Align()(model, test, card=made, limits=Limits(frozen_nodes=rows, maximum=0.3))
        assert torch.equal(data.x, before)
        assert torch.equal(result.data.x[rows], test.x[rows]) and float(result.data.x[~rows].max()) <= 0.3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_draws_nothing_and_takes_no_steps(dtype: torch.dtype) -> None:
    model, data = seeded(MODELS["GraphSAGE"], dtype), graph(dtype=dtype)
    made, test = card(model, data, task="classes"), shifted(data)
    results: list[Adaptation] = [Align()(model, test, card=made, seed=seed) for seed in (0, 1)]
    assert torch.equal(results[0].data.x, results[1].data.x) and results[0].history == []
    then, now = distances(model, made, test, results[0].data)
    assert results[0].data.x.dtype == dtype and now < 0.1 * then


@pytest.mark.parametrize("kind", ["gcn", "GraphSAGE", "GIN"])
def test_the_caller_may_be_in_inference_mode(kind: str) -> None:
    model, data = seeded(MODELS[kind]), graph()
    made = card(model, data, task="classes")
    expected = Align()(model, shifted(data), card=made)
    with torch.inference_mode():
        test = shifted(data)
        assert test.x.is_inference()
        result = Align()(model, test, card=made)
        again = Align()(model, test, card=card(model, data, task="classes"))
    assert torch.equal(result.data.x, expected.data.x) and torch.equal(again.data.x, expected.data.x)
    assert all(p.requires_grad for p in model.parameters()) and not result.data.x.requires_grad


def test_features_that_want_a_gradient() -> None:
    model, data = seeded(MODELS["GCN"]), graph()
    made, test = card(model, data, task="classes"), shifted(data)
    expected = Align()(model, test, card=made).data.x
    test.x.requires_grad_()
    result = Align()(model, test, card=made)
    assert torch.equal(result.data.x, expected) and not result.data.x.requires_grad
    assert test.x.requires_grad and test.x.grad is None


# ---------------------------------------------------------------- without a card


class Dropped(nn.Module):
    """Dropout of the features, a convolution, a batch normalisation."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.a, self.norm, self.b, self.p = pyg.GCNConv(IN, HID), nn.BatchNorm1d(HID), pyg.GCNConv(HID, OUT), p

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = F.dropout(x, self.p, self.training)
        return self.b(self.norm(self.a(x, edge_index)).relu(), edge_index)


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_running_statistics_serve_where_there_is_no_card(p: float) -> None:
    """They were taken under dropout, which widens the spread, and are narrowed again."""
    model, data = seeded(lambda: Dropped(p)), graph()
    model.norm.momentum = None
    model.train()
    torch.manual_seed(0)
    with torch.no_grad():
        for _ in range(200):
            model(data.x, data.edge_index)
    widened = model.norm.running_var.sqrt() / first_moments(model, data).std
    assert float(widened.min()) > 1.05 if p else float((widened - 1).abs().max()) < 0.01
    test = shifted(data)
    result = Align()(model, test)
    truth, aimed = first_moments(model, data), first_moments(model, result.data)
    assert result.reason is None and model.training
    assert truth.distance(aimed) < 0.18 and truth.distance(aimed) < 0.1 * truth.distance(first_moments(model, test))
    assert torch.equal(Align()(model, test).data.x, result.data.x), "the seed decides about what is dropped"


def test_without_either_it_stops_with_the_reason() -> None:
    model, data = seeded(MODELS["GCN"]), graph()
    untracked = seeded(lambda: stock("GCN", norm="BatchNorm", norm_kwargs={"track_running_stats": False}))
    for net in (model, untracked):
        result = Align()(net, data)
        assert result.reason is not None and "make a card with graphmend.card(model, train_data)" in result.reason
        assert torch.equal(result.data.x, data.x)
