"""Every stock PyG layer: its edges can fade, or the refusal says why not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.nn import conv as stock

from graphmend import FrozenGNN, GTrans, UnsupportedLayerError
from graphmend.graph.edits import without_edges
from support.sample_models import HID, IN, OUT, make_graph, seeded


class Between(nn.Module):
    """A layer between two linear maps, for graphs without edge weights."""

    def __init__(self, layer: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.first, self.layer, self.last, self.call = nn.Linear(IN, HID), layer, nn.Linear(HID, OUT), call

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        h = self.first(x).relu()
        return self.last(self.call(self.layer, h, edge_index)[:, -HID:].relu())


def plainly(layer: nn.Module, h: Tensor, edge_index: Tensor) -> Any:
    return layer(h, edge_index)


def with_start(layer: nn.Module, h: Tensor, edge_index: Tensor) -> Any:
    return layer(h, h, edge_index)


def with_start_and_weights(layer: nn.Module, h: Tensor, edge_index: Tensor) -> Any:
    return layer(h, h, edge_index, torch.ones(edge_index.size(1), dtype=h.dtype))


def with_signs(layer: nn.Module, h: Tensor, edge_index: Tensor) -> Any:
    return layer(h, edge_index, edge_index.flip(0))


def with_history(layer: nn.Module, h: Tensor, edge_index: Tensor) -> Any:
    return layer(torch.stack([h, h.tanh()], dim=1), edge_index)


def with_types(layer: nn.Module, h: Tensor, edge_index: Tensor) -> Any:
    return layer(h, edge_index, (edge_index.sum(0) % 2))


def with_attributes(layer: nn.Module, h: Tensor, edge_index: Tensor) -> Any:
    return layer(h, edge_index, torch.ones(edge_index.size(1), 2, dtype=h.dtype))


Layer = tuple[Callable[[], nn.Module], Callable[..., Any]]

FADES: dict[str, Layer] = {
    "APPNP": (lambda: pyg.APPNP(3, 0.1), plainly),
    "ARMAConv": (lambda: pyg.ARMAConv(HID, HID, num_stacks=2, num_layers=2), plainly),
    "AntiSymmetricConv": (lambda: pyg.AntiSymmetricConv(HID), plainly),
    "CGConv": (lambda: pyg.CGConv(HID), plainly),
    "ChebConv": (lambda: pyg.ChebConv(HID, HID, K=3), plainly),
    "DNAConv": (lambda: pyg.DNAConv(HID), with_history),
    "DirGNNConv": (lambda: pyg.DirGNNConv(pyg.GCNConv(HID, HID)), plainly),
    "FAConv": (lambda: pyg.FAConv(HID, normalize=False), with_start_and_weights),
    "GATConv": (lambda: pyg.GATConv(HID, HID), plainly),
    "GATv2Conv": (lambda: pyg.GATv2Conv(HID, HID), plainly),
    "GCN2Conv": (lambda: pyg.GCN2Conv(HID, alpha=0.1), with_start),
    "GCNConv": (lambda: pyg.GCNConv(HID, HID), plainly),
    "GINConv": (lambda: pyg.GINConv(nn.Linear(HID, HID)), plainly),
    "GINEConv": (lambda: pyg.GINEConv(nn.Linear(HID, HID), edge_dim=2), with_attributes),
    "GPSConv": (lambda: pyg.GPSConv(HID, pyg.GCNConv(HID, HID)), plainly),
    "GatedGraphConv": (lambda: pyg.GatedGraphConv(HID, 2), plainly),
    "GeneralConv": (lambda: pyg.GeneralConv(HID, HID), plainly),
    "GraphConv": (lambda: pyg.GraphConv(HID, HID), plainly),
    "LEConv": (lambda: pyg.LEConv(HID, HID), plainly),
    "LGConv": (lambda: pyg.LGConv(), plainly),
    "MixHopConv": (lambda: pyg.MixHopConv(HID, HID, powers=[0, 1, 2]), plainly),
    "NNConv": (lambda: pyg.NNConv(HID, HID, nn.Linear(2, HID * HID)), with_attributes),
    "ResGatedGraphConv": (lambda: pyg.ResGatedGraphConv(HID, HID), plainly),
    "SAGEConv": (lambda: pyg.SAGEConv(HID, HID), plainly),
    "SGConv": (lambda: pyg.SGConv(HID, HID, K=2), plainly),
    "SSGConv": (lambda: pyg.SSGConv(HID, HID, alpha=0.1, K=3), plainly),
    "SimpleConv": (lambda: pyg.SimpleConv(aggr="sum"), plainly),
    "TAGConv": (lambda: pyg.TAGConv(HID, HID), plainly),
    "TransformerConv": (lambda: pyg.TransformerConv(HID, HID), plainly),
    "WLConvContinuous": (lambda: pyg.WLConvContinuous(), plainly),
}

STAYS: dict[str, tuple[Callable[[], nn.Module], Callable[..., Any], str]] = {
    "AGNNConv": (lambda: pyg.AGNNConv(), plainly, "AGNNConv has no edge weights"),
    "ClusterGCNConv": (lambda: pyg.ClusterGCNConv(HID, HID), plainly, "ClusterGCNConv has no edge weights"),
    "EGConv": (lambda: pyg.EGConv(HID, HID), plainly, "EGConv has no edge weights"),
    "EdgeConv": (lambda: pyg.EdgeConv(nn.Linear(2 * HID, HID)), plainly, "EdgeConv has no edge weights"),
    "FAConv": (lambda: pyg.FAConv(HID), with_start, "FAConv takes edge weights, but it fails with .*: AssertionError"),
    "FastRGCNConv": (lambda: pyg.FastRGCNConv(HID, HID, 2), with_types, "FastRGCNConv has no edge weights"),
    "FeaStConv": (lambda: pyg.FeaStConv(HID, HID), plainly, "FeaStConv has no edge weights"),
    "FiLMConv": (lambda: pyg.FiLMConv(HID, HID), plainly, "FiLMConv has no edge weights"),
    "GENConv": (lambda: pyg.GENConv(HID, HID), plainly, "GENConv has no edge weights"),
    "GMMConv": (lambda: pyg.GMMConv(HID, HID, 2, 3), with_attributes, "GMMConv has no edge weights"),
    "GraphConv": (lambda: pyg.GraphConv(HID, HID, aggr="max"), plainly, "GraphConv with aggr='max'"),
    "HypergraphConv": (lambda: pyg.HypergraphConv(HID, HID), plainly, "HypergraphConv has no edge weights"),
    "MFConv": (lambda: pyg.MFConv(HID, HID), plainly, "MFConv has no edge weights"),
    "PDNConv": (lambda: pyg.PDNConv(HID, HID, 2, 4), with_attributes, "PDNConv has no edge weights"),
    "PNAConv": (
        lambda: pyg.PNAConv(HID, HID, ["mean", "max"], ["identity"], torch.ones(12).long()),
        plainly,
        "PNAConv has no edge weights",
    ),
    "RGATConv": (lambda: pyg.RGATConv(HID, HID, 2), with_types, "RGATConv has no edge weights"),
    "RGCNConv": (lambda: pyg.RGCNConv(HID, HID, 2), with_types, "RGCNConv has no edge weights"),
    "SignedConv": (lambda: pyg.SignedConv(HID, HID, True), with_signs, "SignedConv has no edge weights"),
    "SimpleConv": (lambda: pyg.SimpleConv(aggr="mean"), plainly, "SimpleConv takes .* aggregates with 'mean'"),
    "SuperGATConv": (lambda: pyg.SuperGATConv(HID, HID), plainly, "SuperGATConv has no edge weights"),
}

OTHER_INPUT = {
    **dict.fromkeys(("GravNetConv", "DynamicEdgeConv", "XConv"), "finds its neighbours itself"),
    **dict.fromkeys(("PointNetConv", "PPFConv", "PointTransformerConv", "PointGNNConv"), "needs positions"),
    **dict.fromkeys(("HGTConv", "HANConv", "HeteroConv", "HEATConv"), "for heterogeneous graphs"),
    **dict.fromkeys(("CuGraphSAGEConv", "CuGraphGATConv", "CuGraphRGCNConv", "FusedGATConv"), "needs another library"),
    **dict.fromkeys(("PANConv", "SplineConv"), "needs another library"),
    "MeshCNNConv": "for meshes, whose edges are its nodes",
    "MessagePassing": "the base class",
    "WLConv": "for colours, which have no gradient",
}


def model_of(make: Callable[[], nn.Module], call: Callable[..., Any]) -> nn.Module:
    return seeded(lambda: Between(make(), call), torch.float64)


def test_every_stock_layer_is_here() -> None:
    assert set(stock.__all__) == FADES.keys() | STAYS.keys() | OTHER_INPUT.keys()


@pytest.mark.parametrize("name", FADES)
def test_weights_are_what_edges_are(name: str) -> None:
    data, model = make_graph(torch.float64), model_of(*FADES[name])
    edges, generator = data.edge_index.size(1), torch.Generator().manual_seed(1)
    keep = (torch.rand(edges, generator=generator) < 0.5) | (data.edge_index[0] == data.edge_index[1])
    expected = [model.eval()(g.x, g.edge_index) for g in (data, without_edges(data, keep))]
    some = 0.3 + 0.5 * torch.rand(edges, generator=generator, dtype=torch.float64)
    direction = torch.randn(edges, generator=generator, dtype=torch.float64)
    direction[data.edge_index[0] == data.edge_index[1]] = 0.0  # the weight of a self-loop is the layer's own business

    with FrozenGNN(model, data) as frozen:
        frozen.require_edge_weights()
        for weight, output in zip((torch.ones(edges), keep), expected, strict=True):
            weight = weight.double().requires_grad_()
            out = frozen(data.x, data.edge_index, weight)
            torch.testing.assert_close(out, output.detach(), rtol=1e-9, atol=1e-9)
            (gradient,) = torch.autograd.grad(out.square().sum(), weight)
            assert gradient.isfinite().all()
        some.requires_grad_()
        (gradient,) = torch.autograd.grad(frozen(data.x, data.edge_index, some).sum(), some)
        with torch.no_grad():
            h = 1e-6
            ends = [frozen(data.x, data.edge_index, some + side * h * direction).sum() for side in (1, -1)]
    torch.testing.assert_close((gradient * direction).sum(), (ends[0] - ends[1]) / (2 * h), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", FADES)
def test_features_and_edges_are_mended(name: str) -> None:
    result = GTrans(steps=6, feature_steps=1, edge_steps=1, budget=3)(model_of(*FADES[name]), make_graph(torch.float64))
    assert result.reason is None and result.patch.num_rows > 0
    assert "edges" not in result.engine.reasons


@pytest.mark.parametrize("name", STAYS)
def test_a_refusal_names_the_layer_and_features_are_mended(name: str) -> None:
    make, call, reason = STAYS[name]
    model, data = model_of(make, call), make_graph(torch.float64)
    with pytest.raises(UnsupportedLayerError, match=rf"through layer.* \({reason}.*\); edge_steps=0 still works$"):
        GTrans(feature_steps=0)(model, data)
    result = GTrans(steps=2)(model, data)
    assert result.reason is None and result.patch.num_rows > 0
    assert re.search(rf"^features only: .*through layer.* \({reason}", result.engine.reasons["edges"])


def test_a_layers_own_weights_count_beside_the_presence_of_an_edge() -> None:
    """A model that gives ARMAConv weights of its own, from the ends of each edge."""
    data = make_graph(torch.float64)
    factor = torch.ones(data.edge_index.size(1), dtype=torch.float64)

    def call(layer: nn.Module, h: Tensor, edge_index: Tensor) -> Any:
        weight = 1.0 / (1.0 + (edge_index[0] - edge_index[1]).abs().to(h.dtype))
        return layer(h, edge_index, weight * factor if is_halved else weight)

    is_halved = False
    model, presence = model_of(FADES["ARMAConv"][0], call).eval(), factor.clone()
    presence[:4] = 0.5
    with FrozenGNN(model, data) as frozen:
        out = frozen(data.x, data.edge_index, presence)
    is_halved, factor[:4] = True, 0.5
    torch.testing.assert_close(out, model(data.x, data.edge_index).detach())
