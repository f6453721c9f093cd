"""FrozenGNN on models nobody has seen before: Z, the call, edge weights, and leaving everything as it was."""

from __future__ import annotations

import contextlib
import copy
import logging
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import degree

from graphmend import Adaptation, FrozenGNN, GraphMendError, GTrans, Limits, UnsupportedLayerError
from graphmend.frozen.edge_weights import filtered, hooked, native, patched
from graphmend.nn import GCN as OwnGCN
from graphmend.surrogates import Contrastive
from graphmend.transforms import DropEdge

N, IN, HID, OUT = 14, 5, 8, 3


pytestmark = pytest.mark.usefixtures("one_thread")


def make_graph(dtype: torch.dtype = torch.float32, loops: bool = True, **extra: Tensor) -> Data:
    """Undirected, with a self-loop and an isolated node."""
    generator = torch.Generator().manual_seed(11)
    upper = torch.triu(torch.rand(N, N, generator=generator) < 0.3, diagonal=1)
    upper[:, -1] = False
    dense = upper | upper.t()
    dense[2, 2] = loops
    x = torch.randn(N, IN, generator=generator, dtype=torch.float64).to(dtype)
    return Data(x=x, edge_index=dense.nonzero().t().contiguous(), **extra)


def edge_values(width: int | None = None, dtype: torch.dtype = torch.float32, loops: bool = True) -> Tensor:
    edges = make_graph(loops=loops).edge_index.size(1)
    generator = torch.Generator().manual_seed(5)
    shape = (edges,) if width is None else (edges, width)
    return 0.5 + torch.rand(shape, generator=generator, dtype=torch.float64).to(dtype)


def seeded(make: Callable[[], nn.Module], dtype: torch.dtype = torch.float32) -> nn.Module:
    """A model with all parameters random (biases too), as a trained one has."""
    torch.manual_seed(3)
    model = make().to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model


def input_of(model: nn.Module, layer: nn.Module, data: Data, call: int = -1) -> Tensor:
    """What ``layer`` is given, seen with a hook of this test's own."""
    seen: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
    was_training = model.training
    model.eval()
    with torch.no_grad():
        model(data.x, data.edge_index)
    model.train(was_training)
    handle.remove()
    return seen[call]


def embedding(model: nn.Module, data: Data, **kwargs: Any) -> Tensor:
    with FrozenGNN(model, data, **kwargs) as frozen:
        return frozen.embed(data.x, data.edge_index).detach()


def way_of(model: nn.Module, data: Data) -> Callable[..., Any]:
    with FrozenGNN(model, data) as frozen:
        return frozen.way


def propagation(edge_index: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The dense symmetric GCN normalisation."""
    dense = torch.zeros(N, N, dtype=dtype)
    dense[edge_index[1], edge_index[0]] = 1.0
    dense.fill_diagonal_(1.0)
    scale = dense.sum(1).rsqrt()
    return scale[:, None] * dense * scale


# ---------------------------------------------------------------------------------------------------------------- Z


def basic(name: str, **kwargs: Any) -> nn.Module:
    if name == "GATv2":
        return pyg.GAT(IN, HID, out_channels=OUT, v2=True, heads=2, **kwargs)
    if name == "GAT":
        kwargs["heads"] = 2
    if name == "PNA":
        kwargs |= {"aggregators": ["mean", "max"], "scalers": ["identity", "amplification"], "deg": torch.ones(12)}
    made: nn.Module = getattr(pyg, name)(IN, HID, out_channels=OUT, **kwargs)
    return made


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
    assert torch.equal(z, expected)


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
    assert torch.equal(embedding(model, data), input_of(model, model.convs[-1], data))


class OwnEmbed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = pyg.GCNConv(IN, HID), pyg.GCNConv(HID, OUT)

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.a(x, edge_index).tanh() * 7.0
        return out

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.b(self.a(x, edge_index).relu(), edge_index)
        return out


def test_the_models_own_embed_is_used() -> None:
    data, model = make_graph(), seeded(OwnEmbed)
    with torch.no_grad():
        expected = model.a(data.x, data.edge_index).tanh() * 7.0
    assert torch.equal(embedding(model, data), expected)
    assert torch.equal(embedding(model, data, embedding="a"), model.a(data.x, data.edge_index)), "a name goes first"


def test_a_module_called_embed_is_no_embed_method() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(IN, HID)
            self.a, self.b = pyg.GCNConv(HID, HID), pyg.GCNConv(HID, OUT)

        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            return self.b(self.a(self.embed(x), edge_index).relu(), edge_index)

    data, model = make_graph(), seeded(Model)
    assert torch.equal(embedding(model, data), input_of(model, model.b, data))


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
        assert torch.equal(embedding(model, data), input_of(model, model.b, data))
    assert "own embed is not used" in caplog.text


def test_an_embed_method_of_the_wrong_shape_asks_for_a_name() -> None:
    class Pooled(OwnEmbed):
        def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().embed(x, edge_index).mean(0, keepdim=True)

    with pytest.raises(GraphMendError, match="one row per node; name an embedding"):
        embedding(seeded(Pooled), make_graph())


class DenseWeights(nn.Module):
    """Takes edge weights itself, without any PyG layer."""

    def __init__(self, embed_takes_weights: bool) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(IN, HID), nn.Linear(HID, OUT)
        self.embed_takes_weights = embed_takes_weights

    def hop(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        weight = torch.ones(edge_index.size(1)) if edge_weight is None else edge_weight
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]] * weight[:, None])

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        weight = edge_weight if self.embed_takes_weights else None
        return self.hop(self.a(x), edge_index, weight).relu()

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Any:
        return self.b(self.hop(self.a(x), edge_index, edge_weight).relu())


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


class Residual(nn.Module):
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = pyg.GCNConv(HID, HID), nn.BatchNorm1d(HID)

        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            return x + self.norm(self.conv(x, edge_index)).relu()

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(IN, HID)
        self.blocks = nn.ModuleList([self.Block(), self.Block()])
        self.out = nn.Linear(HID, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = self.encoder(x)
        for block in self.blocks:
            x = block(x, edge_index)
        return self.out(x)


class Shared(nn.Module):
    """One layer, run three times."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.conv = nn.Linear(IN, HID), pyg.SAGEConv(HID, HID)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = self.encoder(x)
        for _ in range(3):
            x = self.conv(x, edge_index).relu()
        return x


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


class Custom(MessagePassing):  # type: ignore[misc]
    """A sum-aggregating convolution of the user's own."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__(aggr="add")
        self.lin = nn.Linear(channels_in, channels_out)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.propagate(edge_index, x=self.lin(x)) + x.sum(-1, keepdim=True)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return torch.tanh(x_j - 0.5 * x_i)


class TwoConvs(nn.Module):
    def __init__(self, make: Callable[[int, int], nn.Module], act: nn.Module | None = None) -> None:
        super().__init__()
        self.a, self.b = make(IN, HID), make(HID, OUT)
        self.act = nn.ReLU() if act is None else act

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.b(self.act(self.a(x, edge_index)), edge_index)


def pyg_sequential() -> nn.Module:
    model: nn.Module = pyg.Sequential(
        "x, edge_index",
        [
            (pyg.GCNConv(IN, HID), "x, edge_index -> x"),
            nn.ReLU(),
            (pyg.GCNConv(HID, OUT), "x, edge_index -> x"),
        ],
    )
    return model


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
    assert torch.equal(z, input_of(model, layer(model), data, call))


class Wrapped(nn.Module):
    """Another model inside, with something before or after."""

    def __init__(self, model: nn.Module, style: str) -> None:
        super().__init__()
        self.model, self.style = model, style

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        if self.style == "normalise":
            x = F.normalize(x)
        if self.style == "data":
            return self.model(Data(x=x, edge_index=edge_index))
        if self.style == "keywords":
            return self.model(x=x, edge_index=edge_index)
        return F.log_softmax(self.model(x, edge_index), dim=-1)


class TakesData(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = TwoConvs(pyg.GCNConv)

    def forward(self, data: Data) -> Any:
        return self.inner(data.x, data.edge_index)


@pytest.mark.parametrize("style", ["plain", "normalise", "data", "keywords", "twice"])
def test_z_inside_a_wrapper_is_not_the_output(style: str) -> None:
    inner = TakesData() if style == "data" else TwoConvs(pyg.GCNConv)
    data, model = make_graph(), seeded(lambda: Wrapped(inner, style))
    if style == "twice":
        model = Wrapped(model, "plain")
    last = inner.inner.b if isinstance(inner, TakesData) else inner.b
    z = embedding(model, data)
    assert z.shape == (N, HID)
    assert torch.equal(z, input_of(model, last, data))


class PredictThenPropagate(nn.Module):
    def __init__(self, mlp: nn.Module, propagate: nn.Module) -> None:
        super().__init__()
        self.propagate, self.mlp = propagate, mlp

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.propagate(self.mlp(x), edge_index)


class GPRProp(MessagePassing):  # type: ignore[misc]
    """Learned weights over hops, self-loops added inside."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.temp = nn.Parameter(torch.rand(4))

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        edge_index, norm = pyg.conv.gcn_conv.gcn_norm(edge_index, None, x.size(0), dtype=x.dtype)
        out = self.temp[0] * x
        for weight in self.temp[1:]:
            x = self.propagate(edge_index, x=x, norm=norm)
            out = out + weight * x
        return out

    def message(self, x_j: Tensor, norm: Tensor) -> Tensor:
        return norm.view(-1, 1) * x_j


def mlp_sequential() -> nn.Module:
    return nn.Sequential(nn.Linear(IN, HID), nn.ReLU(), nn.Linear(HID, OUT))


def mlp_pyg() -> nn.Module:
    made: nn.Module = pyg.MLP([IN, HID, OUT], norm=None)
    return made


@pytest.mark.parametrize("mlp", [mlp_sequential, mlp_pyg])
@pytest.mark.parametrize("prop", ["appnp", "gpr"])
def test_z_of_predict_then_propagate_is_the_propagated_hidden_layer(mlp: Callable[[], nn.Module], prop: str) -> None:
    data = make_graph()
    make = (lambda: pyg.APPNP(K=3, alpha=0.2)) if prop == "appnp" else GPRProp
    model = seeded(lambda: PredictThenPropagate(mlp(), make()))
    first = model.mlp[0] if isinstance(model.mlp, nn.Sequential) else model.mlp.lins[0]
    with torch.no_grad():
        hidden, hop = first(data.x).relu(), propagation(data.edge_index)
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
    assert torch.equal(embedding(model, data), expected)


def test_z_in_a_graph_with_a_single_edge() -> None:
    data = Data(x=torch.randn(N, IN), edge_index=torch.tensor([[0], [1]]))
    model = seeded(lambda: TwoConvs(pyg.SAGEConv))
    assert torch.equal(embedding(model, data), input_of(model, model.b, data))


def test_z_by_name() -> None:
    data, model = make_graph(), seeded(Residual)
    with torch.no_grad():
        model.eval()
        first = model.blocks[0](model.encoder(data.x), data.edge_index)
    assert torch.equal(embedding(model, data, embedding="blocks.0"), first)
    shared = embedding(seeded(Shared), data, embedding="conv")
    assert torch.equal(shared.relu(), seeded(Shared)(data.x, data.edge_index)), "the last time it runs"


def test_z_by_a_name_that_cannot_serve() -> None:
    data, model = make_graph(), seeded(lambda: basic("EdgeCNN", num_layers=2))
    with pytest.raises(GraphMendError, match=r"no module 'convs.7'; its modules are _trim, act, convs, convs.0"):
        embedding(model, data, embedding="convs.7")
    with pytest.raises(GraphMendError, match=r"'convs.0.nn' does not give one row per node"):
        embedding(model, data, embedding="convs.0.nn")
    with pytest.raises(GraphMendError, match="'convs' does not run"):
        embedding(model, data, embedding="convs")


def test_z_that_cannot_be_found_asks_for_a_name() -> None:
    mlp = seeded(lambda: Wrapped(nn.Linear(IN, OUT), "plain"))
    mlp.forward = lambda x, edge_index: mlp.model(x)  # type: ignore[method-assign]
    with pytest.raises(GraphMendError, match=r"reacts to edges; name the module .* embedding=..., one of model"):
        embedding(mlp, make_graph())


def test_a_surrogate_without_z_needs_none() -> None:
    mlp = seeded(lambda: Wrapped(nn.Linear(IN, OUT), "plain"))
    mlp.forward = lambda x, edge_index: mlp.model(x)  # type: ignore[method-assign]
    data = make_graph()
    result = GTrans(lambda m, d: m(d.x, d.edge_index).square().mean(), steps=2, edge_steps=0)(mlp, data)
    assert result.reason is None and not torch.equal(result.data.x, data.x)
    with pytest.raises(GraphMendError, match=r"embedding=..."):
        GTrans(steps=2, edge_steps=0)(mlp, data)


# ------------------------------------------------------------------------------------------------------- the call


class Weighted(nn.Module):
    """A GCN called in one of several ways."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = pyg.GCNConv(IN, HID), pyg.GCNConv(HID, OUT)

    def both(self, x: Tensor, edge_index: Tensor, weight: Tensor | None) -> Any:
        return self.b(self.a(x, edge_index, weight).relu(), edge_index, weight)


class ByWeight(Weighted):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Any:
        return self.both(x, edge_index, edge_weight)


class ByOptionalWeight(Weighted):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Any:
        return self.both(x, edge_index, edge_weight)


class ByAttr(Weighted):
    def forward(self, x: Tensor, edge_index: Tensor, *, edge_attr: Tensor | None = None) -> Any:
        return self.both(x, edge_index, None if edge_attr is None else edge_attr.view(-1))


class ByData(Weighted):
    def forward(self, data: Data) -> Any:
        return self.both(data.x, data.edge_index, data.edge_weight)


class ByDataAndMore(Weighted):
    def forward(self, batch: Data, scale: float = 1.0) -> Any:
        return scale * self.both(batch.x, batch.edge_index, batch.edge_weight)


class Swapped(Weighted):
    def forward(self, edge_index: Tensor, x: Tensor, edge_weight: Tensor) -> Any:
        return self.both(x, edge_index, edge_weight)


class KeywordsOnly(Weighted):
    def forward(self, x: Tensor, *, edge_index: Tensor, edge_weight: Tensor) -> Any:
        return self.both(x, edge_index, edge_weight)


class OtherNames(Weighted):
    def forward(self, features: Tensor, adjacency: Tensor, edge_weight: Tensor) -> Any:
        return self.both(features, adjacency, edge_weight)


STYLES = [ByWeight, ByOptionalWeight, ByAttr, ByData, ByDataAndMore, Swapped, KeywordsOnly, OtherNames]


@pytest.mark.parametrize("style", STYLES)
def test_the_graphs_own_weights_reach_the_model(style: type[Weighted]) -> None:
    weight = edge_values()
    data = make_graph(edge_attr=weight.view(-1, 1)) if style is ByAttr else make_graph(edge_weight=weight)
    model = seeded(style)
    with torch.no_grad():
        expected = model.both(data.x, data.edge_index, weight)
        assert not torch.allclose(expected, model.both(data.x, data.edge_index, None))
    with FrozenGNN(model, data) as frozen:
        assert torch.equal(frozen(data.x, data.edge_index), expected)
        assert torch.equal(frozen.predict(data), expected)
        torch.testing.assert_close(frozen(data.x, data.edge_index, torch.ones_like(weight)), expected)


def test_presence_multiplies_the_weights_a_model_takes_itself() -> None:
    data, model = make_graph(edge_weight=edge_values()), seeded(lambda: DenseWeights(True))
    presence = torch.rand(data.edge_index.size(1), generator=torch.Generator().manual_seed(2))
    with FrozenGNN(model, data) as frozen, torch.no_grad():
        assert frozen.way is native
        weight = data.edge_weight * presence
        torch.testing.assert_close(frozen(data.x, data.edge_index, presence), model(data.x, data.edge_index, weight))
        torch.testing.assert_close(
            frozen.embed(data.x, data.edge_index, presence), model.embed(data.x, data.edge_index, weight)
        )


@pytest.mark.parametrize("style", [*STYLES, pyg_sequential])
def test_presence_multiplies_the_graphs_own_weights(style: Callable[[], nn.Module]) -> None:
    """w becomes w (1 - p), not only at 0 and 1."""
    weight, model = edge_values(), seeded(style)
    data = make_graph(edge_attr=weight.view(-1, 1)) if style is ByAttr else make_graph(edge_weight=weight)
    own = torch.ones_like(weight) if style is pyg_sequential else weight
    generator = torch.Generator().manual_seed(2)
    presence = torch.rand(weight.numel(), generator=generator)
    presence[data.edge_index[0] == data.edge_index[1]] = 1.0
    a, b = (model[0], model[2]) if style is pyg_sequential else (model.a, model.b)
    with FrozenGNN(model, data) as frozen, torch.no_grad():
        hidden = a(data.x, data.edge_index, own * presence).relu()
        torch.testing.assert_close(frozen.embed(data.x, data.edge_index, presence), hidden)
        torch.testing.assert_close(
            frozen(data.x, data.edge_index, presence), b(hidden, data.edge_index, own * presence)
        )


def test_a_pyg_sequential_gets_the_arguments_it_declares() -> None:
    model = seeded(
        lambda: pyg.Sequential(
            "x, edge_index, edge_weight",
            [(pyg.GCNConv(IN, OUT), "x, edge_index, edge_weight -> x"), (lambda x: x, "x -> x")],
        )
    )
    data = make_graph(edge_weight=edge_values())
    with FrozenGNN(model, data) as frozen:
        assert torch.equal(frozen.predict(data), model(data.x, data.edge_index, data.edge_weight))
    with pytest.raises(GraphMendError, match="forward needs edge_weight"):
        FrozenGNN(model, make_graph()).__enter__()


@pytest.mark.parametrize("name", ["GAT", "GATv2", "PNA", "GCN", "GraphSAGE", "GIN", "EdgeCNN"])
def test_edge_attributes_a_stock_model_cannot_take_are_left_out(name: str) -> None:
    """Stock models have an ``edge_attr`` parameter, but made without ``edge_dim`` some fail when given it."""
    data, model = make_graph(edge_attr=edge_values(4)), seeded(lambda: basic(name, num_layers=2)).eval()
    with torch.no_grad():
        expected = model(data.x, data.edge_index)
    with FrozenGNN(model, data) as frozen:
        assert torch.equal(frozen.predict(data), expected)
        assert frozen.embed(data.x, data.edge_index).shape == (N, HID)
    result = GTrans(steps=2, edge_steps=0)(model, data)
    assert result.reason is None and torch.equal(result.data.edge_attr, data.edge_attr)


def test_leaving_out_edge_attributes_is_said(caplog: pytest.LogCaptureFixture) -> None:
    model = seeded(lambda: basic("GATv2", num_layers=2))
    FrozenGNN(model, make_graph(edge_attr=edge_values(4))).__enter__()
    assert "called without edge_attr" in caplog.text


def test_edge_attributes_a_stock_model_can_take_are_used() -> None:
    data = make_graph(edge_attr=edge_values(4))
    model = seeded(lambda: pyg.GAT(IN, HID, num_layers=2, out_channels=OUT, v2=True, edge_dim=4)).eval()
    with FrozenGNN(model, data) as frozen:
        assert torch.equal(frozen.predict(data), model(data.x, data.edge_index, edge_attr=data.edge_attr))
        assert not torch.allclose(
            frozen.predict(data), frozen.predict(make_graph(edge_attr=torch.ones_like(data.edge_attr)))
        )


def test_an_error_of_the_model_itself_is_not_hidden_by_leaving_out_edge_attributes() -> None:
    wide = seeded(lambda: pyg.GAT(IN + 1, HID, num_layers=2, out_channels=OUT, v2=True))
    with pytest.raises(GraphMendError, match=rf"x has shape \({N}, {IN}\).*check feature width"):
        FrozenGNN(wide, make_graph(edge_attr=edge_values(4))).__enter__()


class Output(nn.Module):
    def __init__(self, shape: Callable[[Tensor], Any], classes: int = OUT) -> None:
        super().__init__()
        self.a, self.b, self.shape = pyg.GCNConv(IN, HID), pyg.GCNConv(HID, classes), shape

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.shape(self.b(self.a(x, edge_index).relu(), edge_index))


@pytest.mark.parametrize(
    "shape, classes",
    [(lambda z: z, OUT), (lambda z: z.log_softmax(-1), OUT), (lambda z: z.view(-1), 1), (lambda z: z, 1)],
    ids=["logits", "log-softmax", "binary (N,)", "binary (N, 1)"],
)
def test_outputs(shape: Callable[[Tensor], Any], classes: int) -> None:
    data, model = make_graph(), seeded(lambda: Output(shape, classes))
    with torch.no_grad():
        expected = model(data.x, data.edge_index)
    with FrozenGNN(model, data) as frozen:
        assert torch.equal(frozen(data.x, data.edge_index), expected)
    result = GTrans(steps=5, budget=2)(model, data)
    assert result.reason is None and result.logits.shape == expected.shape


@pytest.mark.parametrize(
    "shape, got",
    [
        (lambda z: (z, z), "tuple"),
        (lambda z: {"logits": z}, "dict"),
        (lambda z: z.mean(0, keepdim=True), rf"\(1, {OUT}\)"),
        (lambda z: z.view(N, 1, OUT), rf"\({N}, 1, {OUT}\)"),
        (lambda z: z.sum(), r"\(\)"),
    ],
)
def test_outputs_that_are_not_one_row_per_node(shape: Callable[[Tensor], Any], got: str) -> None:
    with pytest.raises(GraphMendError, match=rf"{N} rows \(got {got}\); wrap it"):
        FrozenGNN(seeded(lambda: Output(shape)), make_graph()).__enter__()


def test_arguments_the_graph_does_not_have() -> None:
    class Needy(Weighted):
        def forward(self, x: Tensor, edge_index: Tensor, pos: Tensor, time: Tensor) -> Any:
            return self.both(x + pos + time, edge_index, None)

    with pytest.raises(GraphMendError, match=r"needs time, which the graph does not have; set data.time or wrap"):
        FrozenGNN(seeded(Needy), make_graph(pos=torch.ones(N, IN))).__enter__()
    data = make_graph(pos=torch.ones(N, IN), time=torch.ones(N, 1))
    assert embedding(seeded(Needy), data).shape == (N, HID)


def test_optional_labels_are_never_passed() -> None:
    class Training(Weighted):
        def forward(self, x: Tensor, edge_index: Tensor, y: Tensor | None = None) -> Any:
            out = self.both(x, edge_index, None)
            return out if y is None else (F.cross_entropy(out, y), out)

    assert embedding(seeded(Training), make_graph(y=torch.zeros(N, dtype=torch.long))).shape == (N, HID)


@pytest.mark.parametrize("model", [None, "gcn", lambda x, edge_index: x])
def test_what_is_no_module(model: Any) -> None:
    with pytest.raises(GraphMendError, match=r"must be a torch.nn.Module \(got "):
        FrozenGNN(model, make_graph())


def test_a_model_that_has_never_run() -> None:
    with pytest.raises(GraphMendError, match=r"has never run: convs.0.lin.weight have no values yet"):
        FrozenGNN(pyg.GCN(-1, HID, num_layers=2, out_channels=OUT), make_graph())


def test_outside_its_block_and_opened_twice() -> None:
    data, frozen = make_graph(), FrozenGNN(seeded(OwnEmbed), make_graph())
    for use in (lambda: frozen(data.x, data.edge_index), lambda: frozen.embed(data.x, data.edge_index)):
        with pytest.raises(GraphMendError, match="inside its with block"):
            use()
    with frozen, pytest.raises(GraphMendError, match="already open"):
        frozen.__enter__()
    with frozen:
        assert frozen.embed(data.x, data.edge_index).shape == (N, HID)


def test_a_compiled_model_is_used_through_its_original() -> None:
    class Compiled(nn.Module):  # what torch.compile returns, as far as we look at it
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self._orig_mod = model

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("not the compiled one")

    data, model = make_graph(), seeded(OwnEmbed)
    assert torch.equal(embedding(Compiled(model), data), embedding(model, data))


# --------------------------------------------------------------------------------------------------- edge weights


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


class GINE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = pyg.GINEConv(nn.Linear(IN, HID), edge_dim=4)
        self.b = pyg.GINEConv(nn.Linear(HID, OUT), edge_dim=4)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Any:
        return self.b(self.a(x, edge_index, edge_attr).relu(), edge_index, edge_attr)


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


@pytest.mark.parametrize("make, way", WEIGHTS.values(), ids=WEIGHTS.keys())
def test_edges_have_exact_weights(make: Callable[[], nn.Module], way: Callable[..., Any]) -> None:
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
        assert frozen.way is way
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


class Ignoring(nn.Module):
    """Accepts edge weights and does nothing with them."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(IN, HID), nn.Linear(HID, OUT)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Any:
        x = self.a(x).relu()
        return self.b(x + torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]]))


@pytest.mark.parametrize("edges", [None, 2, 1])
def test_weights_that_are_accepted_and_ignored_are_not_trusted(edges: int | None) -> None:
    data = make_graph(loops=False)
    data.edge_index = data.edge_index[:, :edges]
    for seed in range(6):  # whatever edges the probe draws
        with FrozenGNN(seeded(Ignoring), data, seed=seed) as frozen:
            assert frozen.way is filtered
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
        GTrans(steps=5)(model, data)
    keep = torch.arange(data.edge_index.size(1)) % 2 == 0
    with FrozenGNN(model, data) as frozen:
        part = frozen(data.x, data.edge_index, keep.float())
        assert torch.equal(part, frozen.predict(Data(x=data.x, edge_index=data.edge_index[:, keep])))
        assert not torch.equal(part, frozen.predict(data))
        with pytest.raises(UnsupportedLayerError, match="edge_steps=0 still works"):
            frozen(data.x, data.edge_index, 0.5 * keep.float())
    result = GTrans(Contrastive(DropEdge(0.5)), steps=3, edge_steps=0)(model, data)
    assert result.reason is None and result.patch.num_rows > 0 and len(result.history) == 3


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
        assert torch.equal(frozen(data.x, longer), frozen.model.both(data.x, longer, weight))
    data = make_graph(edge_attr=edge_values(4))
    with FrozenGNN(seeded(GINE), data) as frozen, pytest.raises(GraphMendError, match=r"edge_attr \(4 values each\)"):
        frozen(data.x, longer)


# ---------------------------------------------------------------------------------------------------- restoration


class Untidy(nn.Module):
    """Does everything to itself that a forward can do."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(IN)
        self.a, self.drop, self.b = pyg.GCNConv(IN, HID, cached=True), nn.Dropout(0.5), pyg.GCNConv(HID, OUT)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("gone", None)
        self.scale = nn.Parameter(torch.tensor([3.0]))
        self.loose = torch.zeros(2)
        self.seen: list[int] = []
        self.memory: dict[str, int] = {}

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        self.norm.train()
        x = self.norm(x) + 0.0 * (torch.rand(()) + random.random() + float(np.random.rand()))  # noqa: NPY002
        self.norm.eval()
        self.calls += 1
        self.gone = torch.ones(3)
        self.last_x = x
        self.loose.add_(1.0)
        self.seen.append(1)
        self.memory["calls"] = self.memory.get("calls", 0) + 1
        with torch.no_grad():
            self.scale.clamp_(max=1.0)
        self.extra = nn.Linear(1, 1)
        return self.scale * self.b(self.drop(self.a(x, edge_index).relu()), edge_index)


def untidy() -> Untidy:
    model = Untidy()
    seeded(lambda: model)
    with torch.no_grad():
        model.scale.fill_(3.0)
    model.a(make_graph().x, torch.randint(N, (2, 6)))  # a warm cache
    model.train()
    model.b.eval()
    model.norm.eval()
    model.a.lin.weight.requires_grad_(False)
    model.scale.grad = torch.ones(1)
    model.seen.append(7)
    return model


def snapshot(model: nn.Module) -> list[Any]:
    """Everything a user can see of a model: identities, contents, flags."""
    out: list[Any] = []
    for name, module in model.named_modules():
        out += [name, module.training]
        for key, value in sorted(vars(module).items()):
            out += [key, id(value)]
            if isinstance(value, (dict, list, set)):
                out += [[(k, id(value[k])) for k in value] if isinstance(value, dict) else list(value)]
            if isinstance(value, Tensor):
                out += [value.detach().clone()]
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        out += [name, id(tensor), tensor.detach().clone(), tensor.requires_grad, tensor.is_leaf]
        out += [None if tensor.grad is None else tensor.grad.clone()]
    return out


def rng() -> list[Any]:
    _, keys, *rest = np.random.get_state()  # noqa: NPY002
    return [torch.get_rng_state(), random.getstate(), torch.from_numpy(keys.copy()), *rest]


def assert_same(before: list[Any], after: list[Any]) -> None:
    assert len(before) == len(after)
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a, b) if isinstance(a, Tensor) else a == b


class Boom(Exception):
    pass


@pytest.mark.parametrize("ends", [None, Boom, KeyboardInterrupt])
def test_everything_is_as_it_was(ends: type[BaseException] | None) -> None:
    data, model = make_graph(), untidy()
    fired: list[str] = []
    model.b.register_forward_hook(lambda *_: fired.append("forward"))
    model.b.register_forward_pre_hook(lambda *_: fired.append("before"))
    model.register_forward_hook(lambda *_: fired.append("root"))
    graph, state, before = [data.x.clone(), data.edge_index.clone()], rng(), snapshot(model)
    try:
        with FrozenGNN(model, data) as frozen:
            assert not any(m.training for m in (model, model.norm, model.a, model.a.lin, model.drop, model.b))
            assert not any(parameter.requires_grad for parameter in (model.scale, *model.b.parameters()))
            frozen(data.x, data.edge_index)
            assert fired[-3:] == ["before", "forward", "root"], "the user's hooks fire inside"
            frozen.require_edge_weights()
            frozen.embed(data.x, data.edge_index, torch.ones(data.edge_index.size(1)).requires_grad_())
            torch.rand(3), random.random(), np.random.rand()  # noqa: NPY002
            model.a.register_forward_hook(lambda *_: None)
            if ends is not None:
                raise ends
    except (Boom, KeyboardInterrupt):
        pass
    assert_same(before, snapshot(model))
    assert_same(state, rng())
    assert_same(graph, [data.x, data.edge_index])
    fired.clear()
    model(data.x, torch.zeros(2, 0, dtype=torch.long))
    assert fired == ["before", "forward", "root"], "the user's hooks survive"


def test_everything_is_as_it_was_when_the_trial_fails() -> None:
    class Breaks(Untidy):
        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            super().forward(x, edge_index)
            raise RuntimeError("no\nmore")

    model = Breaks()
    before, state = snapshot(model), rng()
    with pytest.raises(GraphMendError, match=r"cannot run on this graph.*RuntimeError: no;"):
        FrozenGNN(model, make_graph()).__enter__()
    assert_same(before, snapshot(model))
    assert_same(state, rng())


class Interrupted(TwoConvs):
    """Ctrl-C in the middle of a forward, after some calls."""

    def __init__(self, calls: int) -> None:
        super().__init__(Custom)
        self.calls_left = calls

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        self.calls_left -= 1
        out = super().forward(x, edge_index)
        if self.calls_left < 0:
            raise KeyboardInterrupt
        return out


@pytest.mark.parametrize("calls", [0, 1, 3, 5, 7, 9])
def test_ctrl_c_at_any_moment(calls: int) -> None:
    """Also while the model is patched and hooked; hooks must not stay behind."""
    data, model = make_graph(), seeded(lambda: Interrupted(calls))
    before, state = snapshot(model), rng()
    with pytest.raises(KeyboardInterrupt):
        GTrans(steps=50)(model, data)
    assert_same(before, snapshot(model))
    assert_same(state, rng())


def test_a_forward_of_the_users_own_survives() -> None:
    model = seeded(lambda: TwoConvs(pyg.GCNConv))
    original = model.a.forward
    model.a.forward = lambda x, edge_index: original(x, edge_index)
    mine = model.a.forward
    data = make_graph()
    with FrozenGNN(model, data) as frozen:
        frozen(data.x, data.edge_index, torch.ones(data.edge_index.size(1)))
        assert frozen.way is patched and model.a.forward is mine
    assert model.a.forward is mine


@pytest.mark.parametrize("kind", ["layer", "features", "weights"])
def test_a_model_that_writes_into_its_input_does_not_reach_the_users_graph(kind: str) -> None:
    class InPlace(TwoConvs):
        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Any:
            if kind == "features":
                x /= 2.0
            if kind == "weights" and edge_weight is not None:
                edge_weight.mul_(2.0)
            if kind == "layer":
                x = self.act(x)
            return self.b(self.a(x, edge_index, edge_weight).relu(), edge_index, edge_weight)

    data = make_graph(edge_weight=edge_values())
    model = seeded(lambda: InPlace(pyg.GCNConv, nn.ReLU(inplace=True)))
    graph = {name: value.clone() for name, value in data.to_dict().items()}
    with FrozenGNN(model, data) as frozen:
        first = frozen.predict(data)
        frozen.require_edge_weights()
        assert frozen.embed(data.x, data.edge_index).shape == (N, HID)
        assert torch.equal(frozen.predict(data), first)
    result = GTrans(steps=5, budget=3, lr_feature=0.1)(model, data)
    assert result.reason is None
    for name, value in graph.items():
        assert torch.equal(data[name], value)
    mended = {name: value.clone() for name, value in result.data.to_dict().items()}
    assert torch.equal(model(mended["x"], mended["edge_index"], mended["edge_weight"]), result.logits)
    assert torch.equal(result.patch.revert(result.data).x, data.x)


def test_a_model_that_writes_into_the_edges_is_refused() -> None:
    class Sorting(TwoConvs):
        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            edge_index.copy_(edge_index.flip(1))
            return super().forward(x, edge_index)

    data = make_graph()
    before = data.edge_index.clone()
    with pytest.raises(GraphMendError, match="writes into the edge_index"):
        FrozenGNN(seeded(lambda: Sorting(pyg.GCNConv)), data).__enter__()
    assert torch.equal(data.edge_index, before)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("made_inside", [False, True])
@pytest.mark.parametrize("make", [ByWeight, lambda: TwoConvs(Custom)], ids=["known layers", "custom layers"])
def test_under_no_grad_and_inference_mode(
    mode: Callable[[], Any], made_inside: bool, make: Callable[[], nn.Module]
) -> None:
    model = seeded(make)
    data = make_graph(edge_weight=edge_values())
    expected = GTrans(steps=10, budget=3)(model, data)
    with mode():
        if made_inside:
            data = make_graph(edge_weight=edge_values())
        result = GTrans(steps=10, budget=3)(model, data)
        enabled = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    assert enabled == (False, mode is torch.inference_mode)
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    assert result.reason is None
    assert torch.equal(result.data.x, expected.data.x) and torch.equal(result.logits, expected.logits)


def test_frozen_alone_under_inference_mode() -> None:
    model = seeded(ByWeight)
    with torch.inference_mode():
        data = make_graph(edge_weight=edge_values())
        with FrozenGNN(model, data) as frozen:
            presence = torch.ones(data.edge_index.size(1)).requires_grad_()
            frozen(data.x.clone(), data.edge_index, presence).square().mean().backward()
    assert presence.grad is not None and presence.grad.abs().max() > 0


def test_a_graph_that_wants_gradients_itself() -> None:
    limits = Limits(frozen_nodes=torch.arange(N) < 3, minimum=-1.0)
    adapters: list[Callable[[nn.Module, Data], Adaptation]] = [
        lambda m, d: GTrans(steps=5, budget=3)(m, d, limits=limits),
        lambda m, d: GTrans(lambda *_: torch.tensor(1.0))(m, d),  # left as it was
    ]
    for adapter in adapters:
        model, data = seeded(ByWeight), make_graph(edge_weight=edge_values())
        expected = adapter(model, data)
        data.x.requires_grad_()
        data.edge_weight.requires_grad_()
        result = adapter(model, data)
        assert torch.equal(result.data.x, expected.data.x) and torch.equal(result.logits, expected.logits)
        assert not result.data.x.requires_grad and not result.logits.requires_grad
        assert data.x.requires_grad and data.x.grad is None and data.edge_weight.grad is None


class Unruly(nn.Module):
    """Treats its tensors badly while it runs."""

    def __init__(self, deed: str) -> None:
        super().__init__()
        self.linear, self.deed = nn.Linear(IN, 3), deed
        self.register_buffer("first", torch.tensor([1.0, 2.0]))
        self.register_buffer("second", torch.tensor([3.0, 4.0]))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.deed == "swap":
            self.linear.weight.data = torch.zeros_like(self.linear.weight)
        elif self.deed == "shrink":
            self.first.data = torch.tensor([9.0])
        elif self.deed == "grow":
            self.first.resize_(5)
        elif self.deed == "write":
            self.second[0] = 7.0
        out: Tensor = self.linear(x).index_add(0, edge_index[1], self.linear(x)[edge_index[0]])
        if self.deed == "raise":
            self.first += 1
            raise KeyboardInterrupt
        return out


@pytest.mark.parametrize("deed", ["swap", "shrink", "grow", "write", "raise"])
def test_whatever_a_model_does_to_its_tensors_they_are_as_they_were(deed: str) -> None:
    model = Unruly(deed)
    before = copy.deepcopy(model.state_dict())
    data = Data(x=torch.rand(6, IN), edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))
    with contextlib.suppress(GraphMendError, KeyboardInterrupt), FrozenGNN(model, data) as frozen:
        frozen(data.x, data.edge_index)
    after = model.state_dict()
    for name, value in before.items():
        assert after[name].shape == value.shape, name
        assert torch.equal(after[name], value), name
    assert all(parameter.requires_grad for parameter in model.parameters())
