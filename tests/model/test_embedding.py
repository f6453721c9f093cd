"""Finding Z, the second-last representation, in models nobody has seen before."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import FrozenGNN, GraphMendError, GTrans
from graphmend.model.comparing import is_close
from support.graphs import dense, dense_norm
from support.sample_models import (
    HID,
    IN,
    OUT,
    Custom,
    DenseWeights,
    GPRProp,
    N,
    OwnEmbed,
    PredictThenPropagate,
    Residual,
    Shared,
    TakesData,
    TwoConvs,
    Wrapped,
    basic,
    embedding,
    input_of,
    make_graph,
    mlp_pyg,
    mlp_sequential,
    pyg_sequential,
    seeded,
)

BASIC = ["GCN", "GraphSAGE", "GIN", "GAT", "GATv2", "PNA", "EdgeCNN"]


@pytest.mark.parametrize("name", BASIC)
@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize(
    "options",
    [{}, {"norm": "BatchNorm"}, {"norm": "BatchNorm", "act_first": True, "act": "prelu"}, {"dropout": 0.5}],
    ids=["plain", "norm", "act-first", "dropout"],
)
def test_z_of_every_basic_gnn_is_the_input_of_its_last_convolution(
    name: str, layers: int, options: dict[str, Any]
) -> None:
    data, model = make_graph(), seeded(lambda: basic(name, num_layers=layers, **options))
    expected = input_of(model, model.convs[-1], data)
    z = embedding(model, data)
    assert z.shape == (N, HID)
    assert is_close(z, expected)


@pytest.mark.parametrize("name", BASIC)
@pytest.mark.parametrize("jk, width", [("cat", 3 * HID), ("max", HID), ("lstm", HID), ("last", HID)])
def test_z_with_jumping_knowledge_is_the_input_of_the_head(name: str, jk: str, width: int) -> None:
    data, model = make_graph(), seeded(lambda: basic(name, num_layers=3, jk=jk))
    z = embedding(model, data)
    assert z.shape == (N, width)
    torch.testing.assert_close(z, input_of(model, model.lin, data))


@pytest.mark.parametrize("name", ["GCN", "GIN", "EdgeCNN"])
def test_z_when_edges_and_nodes_are_equally_many(name: str) -> None:
    """A hook that tells nodes from edges by counting rows would be fooled."""
    ring = torch.arange(N)
    data = Data(x=make_graph().x, edge_index=torch.stack([ring, ring.roll(1)]))
    model = seeded(lambda: basic(name, num_layers=2))
    assert is_close(embedding(model, data), input_of(model, model.convs[-1], data))


def test_the_models_own_embed_is_used() -> None:
    data, model = make_graph(), seeded(OwnEmbed)
    with torch.no_grad():
        expected = model.a(data.x, data.edge_index).tanh() * 7.0
    assert is_close(embedding(model, data), expected)
    assert is_close(embedding(model, data, embedding="a"), model.a(data.x, data.edge_index)), "a name goes first"


def test_a_module_called_embed_is_no_embed_method() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(IN, HID)
            self.a, self.b = pyg.GCNConv(HID, HID), pyg.GCNConv(HID, OUT)

        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            return self.b(self.a(self.embed(x), edge_index).relu(), edge_index)

    data, model = make_graph(), seeded(Model)
    assert is_close(embedding(model, data), input_of(model, model.b, data))


@pytest.mark.parametrize("kind", ["features-only", "no-arguments", "no-grad"])
def test_an_embed_method_that_cannot_serve_is_passed_over(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    class FeaturesOnly(OwnEmbed):
        def embed(self, h: Tensor) -> Tensor:  # type: ignore[override]
            return self.a.lin(h)  # type: ignore[no-any-return]

    class NoArguments(OwnEmbed):
        def embed(self) -> Tensor:  # type: ignore[override]
            return torch.ones(1)

    class NoGrad(OwnEmbed):
        @torch.no_grad()
        def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().embed(x, edge_index)

    data = make_graph()
    model = seeded({"features-only": FeaturesOnly, "no-arguments": NoArguments, "no-grad": NoGrad}[kind])
    with caplog.at_level(logging.WARNING):
        assert is_close(embedding(model, data), input_of(model, model.b, data))
    assert "own embed is not used" in caplog.text


def test_an_embed_method_of_the_wrong_shape_asks_for_a_name() -> None:
    class Pooled(OwnEmbed):
        def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().embed(x, edge_index).mean(0, keepdim=True)

    with pytest.raises(GraphMendError, match="one row per node; name an embedding"):
        embedding(seeded(Pooled), make_graph())


def test_an_embed_that_ignores_the_weights_its_forward_takes_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    data = make_graph(loops=False)
    keep = torch.arange(data.edge_index.size(1)) % 3 > 0
    for takes in (True, False):
        model = seeded(lambda takes=takes: DenseWeights(takes))
        with FrozenGNN(model, data) as frozen:
            z = frozen.embed(data.x, data.edge_index, keep.float())
            torch.testing.assert_close(z, frozen.embed(data.x, data.edge_index[:, keep]))
        assert ("does not take the edge weights" in caplog.text) is not takes


class Reordered(nn.Module):
    """Registered last to first."""

    def __init__(self) -> None:
        super().__init__()
        self.last = pyg.GCNConv(HID, OUT)
        self.middle = pyg.GCNConv(HID, HID)
        self.first = pyg.GCNConv(IN, HID)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = self.middle(self.first(x, edge_index).relu(), edge_index).relu()
        return F.log_softmax(self.last(x, edge_index), dim=-1)


class LinearHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Linear(HID, HID), nn.ReLU(), nn.Linear(HID, OUT))
        self.convs = nn.ModuleList([pyg.GATConv(IN, HID), pyg.GATConv(HID, HID)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.head(x)


class Encoded(nn.Module):
    """A linear encoder, then a whole GNN as one submodule."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(IN, HID)
        self.gnn = pyg.GraphSAGE(HID, HID, num_layers=2, out_channels=OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.gnn(self.encoder(x), edge_index)


Z_CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], nn.Module], int]] = {
    "reordered, log-softmax": (Reordered, lambda m: m.last, -1),
    "residual blocks": (Residual, lambda m: m.out, -1),
    "shared layer": (Shared, lambda m: m.conv, -1),
    "linear head": (LinearHead, lambda m: m.head[2], -1),
    "encoder, then convs": (Encoded, lambda m: m.gnn.convs[-1], -1),
    "custom message passing": (lambda: TwoConvs(Custom), lambda m: m.b, -1),
    "PyG Sequential": (pyg_sequential, lambda m: m[2], -1),
}


@pytest.mark.parametrize("make, layer, call", Z_CASES.values(), ids=Z_CASES.keys())
def test_z_of_handwritten_models(
    make: Callable[[], nn.Module], layer: Callable[[nn.Module], nn.Module], call: int
) -> None:
    data, model = make_graph(), seeded(make)
    z = embedding(model, data)
    assert z.shape == (N, HID)
    assert is_close(z, input_of(model, layer(model), data, call))


@pytest.mark.parametrize("style", ["plain", "normalise", "data", "keywords", "twice"])
def test_z_inside_a_wrapper_is_not_the_output(style: str) -> None:
    inner = TakesData() if style == "data" else TwoConvs(pyg.GCNConv)
    data, model = make_graph(), seeded(lambda: Wrapped(inner, style))
    if style == "twice":
        model = Wrapped(model, "plain")
    last = inner.inner.b if isinstance(inner, TakesData) else inner.b
    z = embedding(model, data)
    assert z.shape == (N, HID)
    assert is_close(z, input_of(model, last, data))


@pytest.mark.parametrize("mlp", [mlp_sequential, mlp_pyg])
@pytest.mark.parametrize("prop", ["appnp", "gpr"])
def test_z_of_predict_then_propagate_is_the_propagated_hidden_layer(mlp: Callable[[], nn.Module], prop: str) -> None:
    data = make_graph()
    make = (lambda: pyg.APPNP(K=3, alpha=0.2)) if prop == "appnp" else GPRProp
    model = seeded(lambda: PredictThenPropagate(mlp(), make()))
    first = model.mlp[0] if isinstance(model.mlp, nn.Sequential) else model.mlp.lins[0]
    with torch.no_grad():
        hidden, hop = first(data.x).relu(), dense_norm(dense(data.edge_index, N)).float()
        expected = hidden
        if prop == "appnp":
            for _ in range(3):
                expected = 0.8 * hop @ expected + 0.2 * hidden
        else:
            powers = [hidden, hop @ hidden, hop @ hop @ hidden, hop @ hop @ hop @ hidden]
            expected = sum(w * h for w, h in zip(model.propagate.temp, powers, strict=True))
    z = embedding(model, data)
    assert z.shape == (N, HID)
    torch.testing.assert_close(z, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bare", [True, False], ids=["the model is the layer", "a layer inside"])
def test_z_of_a_single_convolution_is_its_output(bare: bool) -> None:
    class Single(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.SGConv(IN, OUT, K=2)

        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            return self.conv(x, edge_index)

    data, model = make_graph(), seeded((lambda: pyg.SGConv(IN, OUT, K=2)) if bare else Single)
    with torch.no_grad():
        expected = model(data.x, data.edge_index)
    assert is_close(embedding(model, data), expected)


def test_z_in_a_graph_with_a_single_edge() -> None:
    data = Data(x=torch.randn(N, IN), edge_index=torch.tensor([[0], [1]]))
    model = seeded(lambda: TwoConvs(pyg.SAGEConv))
    assert is_close(embedding(model, data), input_of(model, model.b, data))


def test_z_by_name() -> None:
    data, model = make_graph(), seeded(Residual)
    with torch.no_grad():
        model.eval()
        first = model.blocks[0](model.encoder(data.x), data.edge_index)
    assert is_close(embedding(model, data, embedding="blocks.0"), first)
    shared = embedding(seeded(Shared), data, embedding="conv")
    assert is_close(shared.relu(), seeded(Shared)(data.x, data.edge_index)), "the last time it runs"


def test_z_by_a_name_that_cannot_serve() -> None:
    data, model = make_graph(), seeded(lambda: basic("EdgeCNN", num_layers=2))
    with pytest.raises(GraphMendError, match=r"no module 'convs.7'; its modules are _trim, act, convs, convs.0"):
        embedding(model, data, embedding="convs.7")
    with pytest.raises(GraphMendError, match=r"'convs.0.nn' does not give one row per node"):
        embedding(model, data, embedding="convs.0.nn")
    with pytest.raises(GraphMendError, match="'convs' does not run"):
        embedding(model, data, embedding="convs")


class WithoutLayers(nn.Module):
    """Computes with weights of its own; its only layer does not run."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.spare = nn.Parameter(torch.rand(IN, OUT)), nn.Linear(IN, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]]) @ self.weight


def test_z_that_cannot_be_found_asks_for_a_name() -> None:
    with pytest.raises(GraphMendError, match=r"reacts to edges; name the module .* embedding=..., one of spare"):
        embedding(seeded(WithoutLayers), make_graph())


class ReadsNoEdges(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(IN, HID), nn.Linear(HID, OUT)

    def forward(self, x: Tensor) -> Any:
        return self.b(self.a(x).relu())


def test_a_model_that_reads_no_edges_has_the_input_of_its_last_layer_as_z() -> None:
    model, data = seeded(ReadsNoEdges), make_graph()
    torch.testing.assert_close(embedding(model, data), model.a(data.x).relu().detach())


def test_a_surrogate_without_z_needs_none() -> None:
    model, data = seeded(WithoutLayers), make_graph()
    result = GTrans(lambda m, d: m(d.x, d.edge_index).square().mean(), steps=2, edge_steps=0)(model, data)
    assert result.reason is None and not torch.equal(result.data.x, data.x)
    with pytest.raises(GraphMendError, match=r"embedding=..."):
        GTrans(steps=2, edge_steps=0)(model, data)
