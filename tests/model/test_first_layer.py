"""Finding the first layer: which output it is, its normalisation, and how it follows the features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import FrozenGNN, GraphMendError
from graphmend.lab.backbones import BACKBONES, build
from support.graphs import dense, dense_norm, rng, undirected
from support.sample_models import (
    HID,
    IN,
    OUT,
    Custom,
    DenseWeights,
    N,
    PredictThenPropagate,
    Residual,
    TwoConvs,
    Wrapped,
    basic,
    make_graph,
    mlp_sequential,
    output_of,
    pyg_sequential,
    seeded,
)
from support.untouched import assert_same, state_of


def first_layer(model: nn.Module, data: Data) -> Tensor:
    with FrozenGNN(model, data) as frozen:
        return frozen.first_layer(data.x, data.edge_index).detach()


class Normalised(nn.Module):
    """A convolution, a batch normalisation, and something that does nothing in evaluation mode, in a row."""

    def __init__(self, make: Callable[[int, int], nn.Module] = pyg.GCNConv, between: nn.Module | None = None) -> None:
        super().__init__()
        self.a, self.b, self.norm = make(IN, HID), make(HID, OUT), nn.BatchNorm1d(HID)
        self.between = nn.Dropout(0.5) if between is None else between

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.b(self.between(self.norm(self.a(x, edge_index))).relu(), edge_index)


class NormalisedInput(Normalised):
    def __init__(self) -> None:
        super().__init__()
        self.before = nn.BatchNorm1d(IN)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return super().forward(self.before(x), edge_index)


class SharedConv(nn.Module):
    """One convolution as the first and as the second layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = pyg.GCNConv(IN, IN), nn.Linear(IN, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = self.conv(x, edge_index).tanh()
        return self.out(self.conv(x, edge_index).tanh())


class LinearFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.conv = nn.Linear(IN, HID), pyg.GCNConv(HID, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.conv(self.first(x).relu(), edge_index)


class AlwaysOn(nn.Module):
    """Its hidden units are positive on every graph with features that are not negative."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.act, self.b = pyg.GCNConv(IN, HID), nn.ReLU(), pyg.GCNConv(HID, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.b(self.act(self.a(x, edge_index)), edge_index)


class Rooted(nn.Module):
    """Takes no negative features."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = TwoConvs(pyg.GCNConv)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.inner(x, edge_index) + x.sqrt().sum(1, keepdim=True)


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], nn.Module]]] = {
    **{name: (lambda name=name: basic(name, num_layers=2), lambda m: m.convs[0]) for name in ("GCN", "GraphSAGE")},
    **{name: (lambda name=name: basic(name, num_layers=3), lambda m: m.convs[0]) for name in ("GAT", "GATv2")},
    "GIN": (lambda: basic("GIN", num_layers=2), lambda m: m.convs[0].nn.lins[0]),
    "GCN with batch norm": (lambda: basic("GCN", num_layers=2, norm="BatchNorm"), lambda m: m.convs[0]),
    "GAT with batch norm": (lambda: basic("GAT", num_layers=2, norm="BatchNorm"), lambda m: m.convs[0]),
    "GCN with layer norm": (lambda: basic("GCN", num_layers=2, norm="LayerNorm"), lambda m: m.convs[0]),
    "activation before the norm": (
        lambda: basic("GCN", num_layers=2, norm="BatchNorm", act_first=True),
        lambda m: m.convs[0],
    ),
    "Sequential": (pyg_sequential, lambda m: m[0]),
    "convolution, norm, dropout": (Normalised, lambda m: m.a),
    "convolution, norm, identity": (lambda: Normalised(pyg.SAGEConv, nn.Identity()), lambda m: m.a),
    "a norm of the features": (NormalisedInput, lambda m: m.a),
    "a wrapper": (lambda: Wrapped(TwoConvs(pyg.GCNConv), "plain"), lambda m: m.model.a),
    "one convolution for both layers": (SharedConv, lambda m: m.conv),
    "a linear map first": (LinearFirst, lambda m: m.first),
    "a perceptron first": (lambda: PredictThenPropagate(mlp_sequential(), pyg.APPNP(3, 0.1)), lambda m: m.mlp[0]),
    "a linear map, then a convolution": (Residual, lambda m: m.blocks[0].conv),
    "hand-written": (lambda: DenseWeights(True), lambda m: m.a),
    "messages of one's own": (lambda: TwoConvs(Custom), lambda m: m.a),
    "no affine part at all": (lambda: Wrapped(TwoConvs(pyg.GCNConv), "normalise"), lambda m: m.model.a),
}


@pytest.mark.parametrize("make, layer", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_which_output_it_is(
    make: Callable[[], nn.Module], layer: Callable[[nn.Module], nn.Module], dtype: torch.dtype
) -> None:
    model, data = seeded(make, torch.float32), make_graph()
    if not isinstance(model, DenseWeights):
        model, data.x = model.to(dtype), data.x.to(dtype)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.uniform_(-1, 1)
            module.running_var.uniform_(0.5, 2)
    before = state_of(model.train(), data)
    h = first_layer(model, data)
    assert_same(before, state_of(model, data))
    torch.testing.assert_close(h, output_of(model, layer(model), data))


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("name", BACKBONES)
def test_which_output_it_is_in_our_backbones(name: str, batch_norm: bool) -> None:
    model = seeded(lambda: build(name, IN, HID, OUT, batch_norm=batch_norm), torch.float64)
    data = make_graph(torch.float64)
    layer = model.mlp.linears[0] if hasattr(model, "mlp") else model.convs[0]
    layer = layer.mean if name == "robust_gcn" else layer
    call = 0 if batch_norm else -1  # one network calls it twice, with the same weights
    assert torch.equal(first_layer(model, data), output_of(model, layer, data, call))
    with FrozenGNN(model, data) as frozen:
        norm = frozen.first_norm
    if name == "robust_gcn":  # an activation comes between
        assert norm is None
        return
    norms = model.mlp.norms if hasattr(model, "mlp") else model.norms
    assert norm is (norms[0] if batch_norm else None)


NORMS: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], nn.Module | None]]] = {
    "GCN": (lambda: basic("GCN", num_layers=2), lambda m: None),
    "batch norm of PyG": (lambda: basic("GraphSAGE", num_layers=3, norm="BatchNorm"), lambda m: m.norms[0].module),
    "behind attention": (lambda: basic("GAT", num_layers=3, norm="BatchNorm"), lambda m: m.norms[0].module),
    "behind an activation": (lambda: basic("GCN", num_layers=2, norm="BatchNorm", act_first=True), lambda m: None),
    "layer norm": (lambda: basic("GCN", num_layers=2, norm="LayerNorm"), lambda m: None),
    "with dropout behind it": (Normalised, lambda m: m.norm),
    "one of the features besides": (NormalisedInput, lambda m: m.norm),
    "in a block": (Residual, lambda m: m.blocks[0].norm),
}


@pytest.mark.parametrize("make, norm", NORMS.values(), ids=NORMS.keys())
def test_the_normalisation_behind_it(
    make: Callable[[], nn.Module], norm: Callable[[nn.Module], nn.Module | None]
) -> None:
    model, data = seeded(make), make_graph()
    with FrozenGNN(model, data) as frozen:
        assert frozen.first_norm is norm(model)


def test_a_unit_that_is_always_on_is_not_affine() -> None:
    model, data = seeded(AlwaysOn), make_graph()
    data.x = data.x.abs()
    with torch.no_grad():
        model.a.lin.weight.abs_()
        model.a.bias.zero_()
    with FrozenGNN(model, data) as frozen:
        h = frozen.first_layer(-data.x, data.edge_index)
    assert float(h.max()) < 0, "the output of the activation would be 0"


def test_a_model_that_takes_no_negative_features() -> None:
    model, data = seeded(Rooted), make_graph()
    data.x = data.x.abs()
    torch.testing.assert_close(first_layer(model, data), output_of(model, model.inner.a, data))


def slow_map(model: nn.Module, data: Data) -> Tensor:
    """By central differences: shift one column of all rows, and see where the mean goes."""
    with FrozenGNN(model, data) as frozen:
        rows = []
        for k in range(data.x.size(1)):
            step = torch.zeros(data.x.size(1), dtype=torch.float64)
            step[k] = 1e-5
            up, down = (frozen.first_layer(data.x + sign * step, data.edge_index).mean(0) for sign in (1, -1))
            rows.append((up - down) / 2e-5)
    return torch.stack(rows)


@pytest.mark.parametrize("name", [*BACKBONES, "GCN", "GraphSAGE", "GIN", "GAT", "GATv2", "linear", "normalised input"])
def test_the_map_equals_finite_differences(name: str) -> None:
    makers = {"linear": LinearFirst, "normalised input": NormalisedInput}
    make = makers.get(name) or (
        (lambda: build(name, IN, HID, OUT, batch_norm=True))
        if name in BACKBONES
        else (lambda: basic(name, num_layers=2))
    )
    model, data = seeded(make, torch.float64), make_graph(torch.float64)
    with FrozenGNN(model, data) as frozen:
        data, got = frozen.canonical(data), frozen.first_map  # the walks of DualGCN depend on the order
    assert got.shape == (IN, HID * (4 if name == "gat" else 1)) and not got.requires_grad
    torch.testing.assert_close(got, slow_map(model, data), rtol=1e-6, atol=1e-8)


def test_the_map_of_known_layers() -> None:
    data = make_graph(torch.float64)
    hop = dense_norm(dense(data.edge_index, N))
    gcn, sage = (seeded(lambda name=name: basic(name, num_layers=2), torch.float64) for name in ("GCN", "GraphSAGE"))
    with FrozenGNN(gcn, data) as frozen:
        torch.testing.assert_close(frozen.first_map, hop.sum(1).mean() * gcn.convs[0].lin.weight.t())
    has_neighbours = torch.zeros(N, dtype=torch.float64).index_fill(0, data.edge_index[1].unique(), 1.0)
    with FrozenGNN(sage, data) as frozen:
        expected = sage.convs[0].lin_r.weight + has_neighbours.mean() * sage.convs[0].lin_l.weight
        torch.testing.assert_close(frozen.first_map, expected.t())


def test_it_takes_presences_and_other_features() -> None:
    model, data = (
        seeded(lambda: basic("GraphSAGE", num_layers=2), torch.float64),
        make_graph(torch.float64, loops=False),
    )
    keep = torch.arange(data.edge_index.size(1)) % 3 > 0
    with FrozenGNN(model, data) as frozen:
        faded = frozen.first_layer(2 * data.x, data.edge_index, keep.double())
        torch.testing.assert_close(faded, frozen.first_layer(2 * data.x, data.edge_index[:, keep]))
        x = data.x.clone().requires_grad_()
        weight = torch.rand(data.edge_index.size(1), generator=rng(), dtype=torch.float64).requires_grad_()
        assert torch.autograd.gradcheck(lambda x, w: frozen.first_layer(x, data.edge_index, w), (x, weight))


def test_a_large_graph_is_tried_on_a_few_nodes() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = TwoConvs(pyg.GCNConv)

        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            sizes.append(x.size(0))
            return self.inner(x, edge_index)

    sizes: list[int] = []
    data = Data(x=torch.randn(3000, IN, generator=rng()), edge_index=undirected(3000, density=0.002))
    model = seeded(Counting)
    with FrozenGNN(model, data) as frozen:
        assert frozen.first_map.shape == (IN, HID)
        assert frozen.first_norm is None
        assert max(sizes) < 1000
        assert frozen.first_layer(data.x, data.edge_index).shape == (3000, HID)


def test_what_drops_in_training_can_drop_here() -> None:
    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.norm, self.b = pyg.GCNConv(IN, HID), nn.BatchNorm1d(HID), pyg.GCNConv(HID, OUT)

        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            x = F.dropout(x, 0.5, self.training)
            return self.b(self.norm(self.a(x, edge_index)).relu(), edge_index)

    model, data = seeded(Dropping), make_graph()
    before = state_of(model, data)
    with FrozenGNN(model, data) as frozen:
        plain = frozen.first_layer(data.x, data.edge_index)
        with frozen.dropping():
            one, two = (frozen.first_layer(data.x, data.edge_index) for _ in range(2))
            frozen(data.x, data.edge_index)
        assert not torch.equal(one, two) and not torch.equal(one, plain)
        assert torch.equal(frozen.first_layer(data.x, data.edge_index), plain)
        assert torch.equal(model.norm.running_mean, torch.zeros(HID)), "normalisations do not learn"
    assert_same(before, state_of(model, data))


def test_what_modules_keep_in_training_is_as_before_once_nothing_drops() -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(IN))
            self.register_buffer("scale", torch.ones(IN))
            self.steps = 0

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.mean.mul_(0.9).add_(0.1 * x.mean(0))
                self.scale = self.scale * 0.9
                self.steps += 1
            return (x - self.mean) * self.scale

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.centred, self.conv, self.out = Centred(), pyg.GCNConv(IN, HID), pyg.GCNConv(HID, OUT)

        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            return self.out(self.conv(self.centred(x), edge_index).relu(), edge_index)

    model, data = seeded(Model), make_graph()
    with FrozenGNN(model, data) as frozen:
        before, logits = frozen.first_layer(data.x, data.edge_index), frozen(data.x, data.edge_index)
        with frozen.dropping():
            assert not torch.equal(frozen.first_layer(data.x, data.edge_index), before)
        assert model.centred.steps == 0 and torch.equal(model.centred.mean, torch.zeros(IN))
        assert not any(module.training for module in model.modules())
        assert torch.equal(frozen.first_layer(data.x, data.edge_index), before)
        assert torch.equal(frozen(data.x, data.edge_index), logits)


class Refusing(nn.Module):
    """Raises on some features."""

    def __init__(self, refuses: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.inner, self.refuses = TwoConvs(pyg.GCNConv), refuses

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        if bool(self.refuses(x).any()):
            raise ValueError("cannot take these features")
        return self.inner(x, edge_index)


REFUSALS: dict[str, Callable[[Tensor], Tensor]] = {
    "negative": lambda x: x < 0,
    "large": lambda x: x > 1,
    "not binary": lambda x: (x != 0) & (x != 1),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_model_that_raises_on_other_features(kind: str) -> None:
    model, data = seeded(lambda: Refusing(REFUSALS[kind])), make_graph()
    data.x = (data.x > 0).to(data.x.dtype)
    torch.testing.assert_close(first_layer(model, data), output_of(model, model.inner.a, data))


def test_features_that_do_not_vary_are_named() -> None:
    model, data = seeded(lambda: basic("GCN", num_layers=2)), make_graph()
    with torch.no_grad():
        for conv in model.convs:
            conv.bias.zero_()
    data.x = torch.zeros_like(data.x)
    with FrozenGNN(model, data) as frozen, pytest.raises(GraphMendError, match=r"features do not vary: .*; check x"):
        frozen.first_layer(data.x, data.edge_index)


def test_a_model_without_a_first_layer_says_so() -> None:
    class NoLayer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(IN, OUT))

        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            out = x @ self.weight
            return out + torch.zeros_like(out).index_add(0, edge_index[1], out[edge_index[0]])

    class NoGradient(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = pyg.GCNConv(IN, HID), pyg.GCNConv(HID, OUT)

        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            with torch.no_grad():
                x = self.a(x, edge_index)
            return self.b(x.relu(), edge_index)

    data = make_graph()
    with (
        FrozenGNN(NoLayer(), data) as frozen,
        pytest.raises(GraphMendError, match=r"no layer of NoLayer .*; make its weights a module"),
    ):
        frozen.first_layer(data.x, data.edge_index)
    with FrozenGNN(NoGradient(), data) as frozen, pytest.raises(GraphMendError, match="does it run under no_grad"):
        _ = frozen.first_map
