"""Features with a change of low rank: the same numbers as features written out, which they seldom are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from graphmend import FrozenGNN
from graphmend.engine import low_rank
from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.low_rank import changed_features
from graphmend.engine.shared_features import as_tensor, scaled_rows, shuffled, stacked
from graphmend.lab.backbones import BACKBONES, build
from support.graphs import DEVICES, rng
from support.sample_models import (
    HANDWRITTEN,
    HID,
    IN,
    OUT,
    DenseWeights,
    GPRProp,
    N,
    PredictThenPropagate,
    TwoConvs,
    Wrapped,
    basic,
    make_graph,
    mlp_pyg,
    mlp_sequential,
    seeded,
)

RANK = 3


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=rng(seed), dtype=torch.float64).to(dtype)


MODELS: dict[str, Callable[[], nn.Module]] = {
    **{name: lambda name=name: build(name, IN, HID, OUT, batch_norm=True) for name in BACKBONES},
    **{
        name: lambda name=name: basic(name, num_layers=2)
        for name in ("GCN", "GraphSAGE", "GAT", "GATv2", "GIN", "PNA", "EdgeCNN")
    },
    "batch norm": lambda: basic("GCN", num_layers=2, norm="BatchNorm"),
    "max aggregation": lambda: basic("GraphSAGE", num_layers=2, aggr="max"),
    **HANDWRITTEN,
    "wrapped": lambda: Wrapped(TwoConvs(pyg.GCNConv), "plain"),
    "keywords": lambda: Wrapped(TwoConvs(pyg.SAGEConv), "keywords"),
    "GPR": lambda: PredictThenPropagate(mlp_sequential(), GPRProp()),
    "APPNP": lambda: PredictThenPropagate(mlp_pyg(), pyg.APPNP(4, 0.1)),
    "hand-written": lambda: DenseWeights(True),
}


@pytest.mark.parametrize("kind", MODELS)
def test_every_model_sees_the_changed_features(kind: str) -> None:
    dtype = torch.float32 if kind == "hand-written" else torch.float64
    model, data = seeded(MODELS[kind], dtype), make_graph(dtype)
    base, tolerance = LinearMaps(data.x), {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {}
    with FrozenGNN(model, data) as frozen, torch.no_grad():
        runs: list[Any] = [frozen.__call__, frozen.embed, frozen.first_layer]
        for run in runs:
            expected = run(data.x, data.edge_index)
            torch.testing.assert_close(run(changed_features(base), data.edge_index), expected, **tolerance)
            for seed in range(2):
                left, right = normal(N, RANK, seed=seed, dtype=dtype), normal(RANK, IN, seed=seed + 5, dtype=dtype)
                got = run(changed_features(base, left, right), data.edge_index)
                torch.testing.assert_close(got, run(data.x + left @ right, data.edge_index), **tolerance)
        assert torch.equal(data.x, make_graph(dtype).x), "nothing is written into the features"


@pytest.mark.parametrize("kind", ["gcn", "gat", "gpr", "GCN", "GAT", "residual", "APPNP", "own embed"])
def test_models_that_only_multiply_never_have_them_written_out(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = seeded(MODELS[kind], torch.float64), make_graph(torch.float64)
    left, right = normal(N, RANK), normal(RANK, IN, seed=1)
    with FrozenGNN(model, data) as frozen, torch.no_grad():
        expected = frozen(data.x + left @ right, data.edge_index)
        frozen(changed_features(LinearMaps(data.x), left, right), data.edge_index)  # all trials have been made
        monkeypatch.setattr(low_rank._LowRankMaps, "x", property(lambda self: pytest.fail("written out")))
        monkeypatch.setattr(low_rank._LowRankMaps, "__init__", without_x)
        got = frozen(changed_features(LinearMaps(data.x), left, right), data.edge_index)
    torch.testing.assert_close(got, expected)


def without_x(self: Any, base: LinearMaps, left: Tensor, right: Tensor) -> None:
    self.base, self.left, self.right, self._maps = base, left, right, {}


def test_they_are_written_out_once_for_whoever_looks_at_them() -> None:
    x, left, right = normal(N, IN), normal(N, RANK, seed=1), normal(RANK, IN, seed=2)
    features = changed_features(LinearMaps(x), left, right)
    assert features.shape == x.shape and features.dtype == x.dtype and len(features) == N
    assert features._maps._whole is None, "nobody has looked"
    torch.testing.assert_close(features.sin(), (x + left @ right).sin())
    written = features._maps._whole
    torch.testing.assert_close(features[[1, 3]], (x + left @ right)[[1, 3]])
    assert written is not None and features._maps._whole is written


def test_the_products_of_the_base_are_computed_once() -> None:
    base, weight = LinearMaps(normal(N, IN)), normal(IN, 4, seed=1)
    first = base.product(torch.mm, weight)
    for seed in range(3):
        left, right = normal(N, RANK, seed=seed), normal(RANK, IN, seed=seed + 1)
        torch.testing.assert_close(changed_features(base, left, right) @ weight, (base.x + left @ right) @ weight)
    assert base.product(torch.mm, weight) is first
    torch.testing.assert_close(first, base.x @ weight)


@settings(max_examples=40)
@given(st.integers(1, 9), st.integers(1, 7), st.integers(1, 5), st.integers(0, 4), st.integers(0, 999))
def test_products(n: int, columns: int, width: int, rank: int, seed: int) -> None:
    x, left, right = normal(n, columns, seed=seed), normal(n, rank, seed=seed + 1), normal(rank, columns, seed=seed + 2)
    weight, bias = normal(columns, width, seed=seed + 3), normal(width, seed=seed + 4)
    base, whole = LinearMaps(x), x + left @ right
    features = changed_features(base, left, right)
    turned = weight.t().contiguous()
    pairs = [
        (features @ weight, whole @ weight),
        (F.linear(features, turned), F.linear(whole, turned)),
        (F.linear(features, turned, bias), F.linear(whole, turned, bias)),
        (torch.mm(features, weight), whole @ weight),
    ]
    for got, expected in pairs:
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
    assert features._maps._whole is None
    torch.testing.assert_close(as_tensor(features), whole)


def test_views_of_changed_features() -> None:
    x, left, right, weight = normal(N, IN), normal(N, RANK, seed=1), normal(RANK, IN, seed=2), normal(IN, 4, seed=3)
    features, whole = changed_features(LinearMaps(x), left, right), x + left @ right
    order, factor = torch.randperm(N, generator=rng(4)), normal(N, 1, seed=5)
    views = stacked([features, shuffled(features, order), scaled_rows(features, factor)])
    expected = torch.cat([whole, whole[order], whole * factor])
    torch.testing.assert_close(views @ weight, expected @ weight)
    assert features._maps._whole is None
    torch.testing.assert_close(as_tensor(views), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_single_precision_and_devices(device: str) -> None:
    x, left, right = (t.float().to(device) for t in (normal(N, IN), normal(N, RANK, seed=1), normal(RANK, IN, seed=2)))
    linear = nn.Linear(IN, 4).to(device).requires_grad_(False)
    got = linear(changed_features(LinearMaps(x), left, right))
    assert got.dtype == torch.float32 and got.device.type == device
    torch.testing.assert_close(got, linear(x + left @ right), rtol=1e-4, atol=1e-5)


def test_under_autocast() -> None:
    x, left, right = (t.float() for t in (normal(N, IN), normal(N, RANK, seed=1), normal(RANK, IN, seed=2)))
    linear = nn.Linear(IN, 4).requires_grad_(False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = linear(changed_features(LinearMaps(x), left, right))
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), linear(x + left @ right), rtol=0.05, atol=0.1)


def test_the_change_can_be_learned() -> None:
    """Gradients reach the factors, through products and through features written out."""
    x, weight = normal(N, IN), normal(IN, 4, seed=3)
    factors = [normal(N, RANK, seed=1).requires_grad_(), normal(RANK, IN, seed=2).requires_grad_()]

    def loss(features: Tensor) -> Tensor:
        return (features @ weight).tanh().sum() + features.sin().sum()

    got = torch.autograd.grad(loss(changed_features(LinearMaps(x), *factors)), factors)
    expected = torch.autograd.grad(loss(x + factors[0] @ factors[1]), factors)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)
