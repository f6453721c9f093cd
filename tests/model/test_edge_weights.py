"""Edges with a presence between 0 and 1, in models that may know nothing of edge weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import degree

from graphmend import FrozenGNN, GraphMendError, GTrans, UnsupportedLayerError
from graphmend.lab.backbones import GCN as OwnGCN
from graphmend.model.comparing import is_close
from graphmend.model.edge_weights import filtered, hooked, native, patched
from graphmend.surrogates import Contrastive
from graphmend.transforms import DropEdge
from support.sample_models import (
    GINE,
    HID,
    IN,
    OUT,
    ByWeight,
    Custom,
    DenseWeights,
    GPRProp,
    Ignoring,
    N,
    PredictThenPropagate,
    TakesData,
    TwoConvs,
    Wrapped,
    basic,
    edge_values,
    make_graph,
    mlp_sequential,
    seeded,
    way_of,
)


def transformer(i: int, o: int) -> nn.Module:
    made: nn.Module = pyg.TransformerConv(i, o, heads=2, concat=False)
    return made


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = pyg.GATConv(IN, HID), pyg.SAGEConv(HID, HID), pyg.GCNConv(HID, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = self.b(self.a(x, edge_index).relu(), edge_index).relu()
        return self.c(x, edge_index)


class MixedUnknown(nn.Module):
    """A layer we know beside one we do not."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = pyg.SAGEConv(IN, HID), Custom(HID, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.b(self.a(x, edge_index).relu(), edge_index)


class Headed(nn.Module):
    """Messages of three dimensions, nodes in the first."""

    class Conv(MessagePassing):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(aggr="add", node_dim=0)
            self.lin = nn.Linear(IN, 2 * OUT)

        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            return self.propagate(edge_index, x=self.lin(x).view(-1, 2, OUT)).mean(1)

        def message(self, x_j: Tensor) -> Tensor:
            return x_j.sigmoid()

    def __init__(self) -> None:
        super().__init__()
        self.conv = self.Conv()

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.conv(x, edge_index)


WEIGHTS: dict[str, tuple[Callable[[], nn.Module], Callable[..., Any]]] = {
    "GCN": (lambda: basic("GCN", num_layers=3), patched),
    "GraphSAGE": (lambda: basic("GraphSAGE", num_layers=2), patched),
    "GraphSAGE, jk": (lambda: basic("GraphSAGE", num_layers=2, jk="cat", norm="BatchNorm"), patched),
    "GIN": (lambda: basic("GIN", num_layers=2), patched),
    "GAT": (lambda: basic("GAT", num_layers=2), patched),
    "GATv2": (lambda: basic("GATv2", num_layers=2), patched),
    "Transformer": (lambda: TwoConvs(transformer), patched),
    "APPNP": (lambda: PredictThenPropagate(mlp_sequential(), pyg.APPNP(K=3, alpha=0.2)), patched),
    "SG": (lambda: TwoConvs(lambda i, o: pyg.SGConv(i, o, K=2)), patched),
    "TAG": (lambda: TwoConvs(lambda i, o: pyg.TAGConv(i, o, K=2)), patched),
    "Cheb": (lambda: TwoConvs(lambda i, o: pyg.ChebConv(i, o, K=3)), patched),
    "GraphConv": (lambda: TwoConvs(pyg.GraphConv), patched),
    "GraphConv, mean": (lambda: TwoConvs(lambda i, o: pyg.GraphConv(i, o, aggr="mean")), patched),
    "mixed": (Mixed, patched),
    "wrapped": (lambda: Wrapped(basic("GIN", num_layers=2), "plain"), patched),
    "bare layer": (lambda: pyg.GATConv(IN, OUT), patched),
    "forward(data)": (TakesData, patched),
    "weights of its own": (lambda: DenseWeights(True), native),
    "GraphMend's own": (lambda: OwnGCN(IN, HID, OUT), native),
    "custom sum": (lambda: TwoConvs(Custom), hooked),
    "custom sum beside a known layer": (MixedUnknown, hooked),
    "GINE with attributes": (GINE, hooked),
    "three-dimensional messages": (Headed, hooked),
}


@pytest.mark.parametrize("make, weighting", WEIGHTS.values(), ids=WEIGHTS.keys())
def test_edges_have_exact_weights(make: Callable[[], nn.Module], weighting: Callable[..., Any]) -> None:
    """Presence 1 is the model itself, presence 0 the graph without the edge, and gradients are finite and there."""
    data = make_graph(torch.float64, loops=False, edge_attr=edge_values(4, torch.float64, loops=False))
    model = seeded(make, torch.float64)
    if isinstance(model, DenseWeights):
        data, model = make_graph(loops=False), model.float()
    x, edge_index = data.x, data.edge_index
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if x.dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-5}
    generator = torch.Generator().manual_seed(8)
    keep = torch.rand(edge_index.size(1), generator=generator) < 0.6
    keep &= edge_index[1] != 0  # nobody reaches node 0 any more
    part = copy.copy(data)
    part.edge_index, part.edge_attr = edge_index[:, keep], None if data.edge_attr is None else data.edge_attr[keep]
    model.eval()
    with FrozenGNN(model, data) as frozen:
        frozen.require_edge_weights()
        assert frozen.weighting is weighting
        ones = torch.ones(keep.numel(), dtype=x.dtype)
        torch.testing.assert_close(frozen(x, edge_index, ones), frozen.predict(data), **tolerance)
        torch.testing.assert_close(frozen.embed(x, edge_index, ones), frozen.embed(x, edge_index), **tolerance)
        removed = frozen(x, edge_index, keep.to(x.dtype))
        assert not torch.allclose(removed, frozen.predict(data), rtol=1e-3, atol=1e-3)
        z = frozen.embed(x, edge_index, keep.to(x.dtype))
        for presence in (ones, keep.to(x.dtype), torch.zeros_like(ones), 0.3 * ones):
            presence = presence.clone().requires_grad_()
            features = x.clone().requires_grad_()
            (frozen(features, edge_index, presence).sin().sum()).backward()
            assert presence.grad is not None and presence.grad.isfinite().all()
            assert features.grad is not None and features.grad.isfinite().all()
            assert presence.grad.abs().max() > 0 or presence.max() == 0
    with FrozenGNN(model, part) as frozen:
        torch.testing.assert_close(removed, frozen.predict(part), **tolerance)
        torch.testing.assert_close(z, frozen.embed(x, part.edge_index), **tolerance)


@pytest.mark.parametrize("edges", [None, 2, 1])
def test_weights_that_are_accepted_and_ignored_are_not_trusted(edges: int | None) -> None:
    data = make_graph(loops=False)
    data.edge_index = data.edge_index[:, :edges]
    for seed in range(6):  # whatever edges the probe draws
        with FrozenGNN(seeded(Ignoring), data, seed=seed) as frozen:
            assert frozen.weighting is filtered
            with pytest.raises(
                UnsupportedLayerError, match=r"Ignoring \(it does not treat an edge of weight 0 as absent"
            ):
                frozen.require_edge_weights()


def test_weights_that_are_wrong_by_little_are_not_trusted() -> None:
    """A large bias must not hide that the weights are ignored."""
    model = seeded(Ignoring)
    with torch.no_grad():
        model.b.bias += 1e4
    assert way_of(model, make_graph()) is filtered


class DegreeNormalised(MessagePassing):  # type: ignore[misc]
    """Counts its neighbours itself: multiplying messages is not enough."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__(aggr="add")
        self.lin = nn.Linear(channels_in, channels_out)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        count = degree(edge_index[1], x.size(0), dtype=x.dtype).clamp(min=1.0)
        return self.propagate(edge_index, x=self.lin(x)) / count.view(-1, 1)

    def message(self, x_j: Tensor) -> Tensor:
        return x_j


UNSUPPORTED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "SAGE max": (lambda: TwoConvs(lambda i, o: pyg.SAGEConv(i, o, aggr="max")), r"a \(SAGEConv with aggr='max'"),
    "PNA": (lambda: basic("PNA", num_layers=2), r"convs.0 \(PNAConv"),
    "EdgeCNN": (lambda: basic("EdgeCNN", num_layers=2), r"convs.0 \(EdgeConv"),
    "own degrees": (lambda: TwoConvs(DegreeNormalised), r"a \(DegreeNormalised"),
    "loops added inside": (lambda: PredictThenPropagate(mlp_sequential(), GPRProp()), r"propagate \(GPRProp"),
    "bare layer": (lambda: pyg.SAGEConv(IN, OUT, aggr="max"), r"the model \(SAGEConv"),
}


@pytest.mark.parametrize("make, named", UNSUPPORTED.values(), ids=UNSUPPORTED.keys())
def test_layers_without_edge_weights_are_named_and_features_still_work(
    make: Callable[[], nn.Module], named: str
) -> None:
    data, model = make_graph(), seeded(make)
    with pytest.raises(
        UnsupportedLayerError, match=f"edges cannot be learned through {named}.*edge_steps=0 still works"
    ):
        GTrans(steps=5, feature_steps=0)(model, data)
    keep = torch.arange(data.edge_index.size(1)) % 2 == 0
    with FrozenGNN(model, data) as frozen:
        part = frozen(data.x, data.edge_index, keep.float())
        assert torch.equal(part, frozen.predict(Data(x=data.x, edge_index=data.edge_index[:, keep])))
        assert not torch.equal(part, frozen.predict(data))
        with pytest.raises(UnsupportedLayerError, match="edge_steps=0 still works"):
            frozen(data.x, data.edge_index, 0.5 * keep.float())
    adapter = GTrans(Contrastive(DropEdge(0.5)), steps=3)
    result, features = adapter(model, data), replace(adapter, edge_steps=0)(model, data)
    assert result.reason is None and result.patch.num_rows > 0 and len(result.history) == 3
    assert torch.equal(result.data.x, features.data.x) and torch.equal(result.logits, features.logits)
    assert "edges" in result.engine.reasons and "edges" not in features.engine.reasons


@pytest.mark.parametrize("make", [lambda: TwoConvs(pyg.GCNConv), lambda: TwoConvs(Custom), UNSUPPORTED["PNA"][0]])
@pytest.mark.parametrize("first", ["embed", "call"])
def test_weights_count_from_the_first_call_on(make: Callable[[], nn.Module], first: str) -> None:
    """How weights are given is found out on first use; that must not get mixed up with looking for Z."""
    data = make_graph()
    keep = torch.arange(data.edge_index.size(1)) % 2 == 0
    part = Data(x=data.x, edge_index=data.edge_index[:, keep])
    with FrozenGNN(seeded(make), data) as frozen, FrozenGNN(seeded(make), part) as reference:
        for name in (first, "call", "embed"):
            frozen_run, reference_run = (f.embed if name == "embed" else f for f in (frozen, reference))
            for _ in range(2):
                torch.testing.assert_close(
                    frozen_run(data.x, data.edge_index, keep.float()), reference_run(part.x, part.edge_index)
                )


def test_a_layer_that_is_given_other_edges_is_not_trusted() -> None:
    """Same number of edges, another order: only trying it out shows."""

    class Sorting(TwoConvs):
        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            return super().forward(x, edge_index.flip(1))

    assert way_of(seeded(lambda: Sorting(pyg.GCNConv)), make_graph()) is filtered


@pytest.mark.parametrize(
    "make",
    [
        lambda: basic("GCN", num_layers=2, cached=True),
        lambda: PredictThenPropagate(mlp_sequential(), pyg.APPNP(K=3, alpha=0.2, cached=True)),
        lambda: TwoConvs(lambda i, o: pyg.SGConv(i, o, cached=True) if i == IN else pyg.GCNConv(i, o, cached=True)),
    ],
    ids=["gcn", "appnp", "sg"],
)
def test_cached_layers_see_the_graph_they_are_given(make: Callable[[], nn.Module]) -> None:
    data, model = make_graph(), seeded(make)
    fresh = copy.deepcopy(model)
    other = Data(x=torch.randn(N, IN), edge_index=torch.randint(N, (2, 9)))
    with torch.no_grad():
        model(other.x, other.edge_index)  # warms the caches on another graph
    caches = [(m, name, getattr(m, name)) for m in model.modules() for name in vars(m) if name.startswith("_cached")]
    assert any(value is not None for _, _, value in caches)
    with FrozenGNN(model, data) as frozen, FrozenGNN(fresh, data) as reference:
        for presence in (None, (torch.arange(data.edge_index.size(1)) % 2).float()):
            assert torch.equal(frozen(data.x, data.edge_index, presence), reference(data.x, data.edge_index, presence))
        frozen.require_edge_weights()
    for module, name, value in caches:
        assert getattr(module, name) is value
    assert all(m.cached for m in model.modules() if hasattr(m, "cached"))


def test_a_shorter_edge_list_is_refused_where_attributes_would_not_fit() -> None:
    data = make_graph(edge_weight=edge_values())
    with FrozenGNN(seeded(ByWeight), data) as frozen, pytest.raises(GraphMendError, match="2 edges are missing"):
        frozen(data.x, data.edge_index[:, :-2])


def test_added_edges_need_attributes_somebody_knows() -> None:
    new = torch.tensor([[0, 1], [N - 1, N - 1]])
    data = make_graph(edge_weight=edge_values())
    longer = torch.cat([data.edge_index, new], 1)
    with FrozenGNN(seeded(ByWeight), data) as frozen, torch.no_grad():
        weight = torch.cat([data.edge_weight, torch.ones(2)])
        assert is_close(frozen(data.x, longer), frozen.model.both(data.x, longer, weight))
    data = make_graph(edge_attr=edge_values(4))
    with FrozenGNN(seeded(GINE), data) as frozen, pytest.raises(GraphMendError, match=r"edge_attr \(4 values each\)"):
        frozen(data.x, longer)


def test_a_weight_that_the_model_does_not_take_is_no_obstacle() -> None:
    """Its own weights come as ``edge_attr``; an ``edge_weight`` of the graph is none of its business."""

    class ByScalarAttr(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = DenseWeights(True)

        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Any:
            return self.inner(x, edge_index, edge_attr)

    model, data = seeded(ByScalarAttr), make_graph(loops=False)
    keep = torch.arange(data.edge_index.size(1)) % 3 > 0
    data.edge_weight = edge_values(loops=False)
    with FrozenGNN(model, data) as frozen:
        assert frozen.weighting is native and not frozen.reads_weights
        faded = frozen(data.x, data.edge_index, keep.float())
    expected = model(data.x, data.edge_index[:, keep])
    torch.testing.assert_close(faded, expected)
