"""One contract for every backbone, each against its formula written out with dense matrices."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from safetensors.torch import save_file
from torch import Tensor, nn

from graphmend.errors import GraphMendError
from graphmend.lab.backbones import BACKBONES, GAT, GCN, GPR, AirGNN, build, load_model, save_model
from graphmend.lab.backbones.checkpoint import FORMAT
from graphmend.lab.backbones.dual_gcn import ppmi_graph
from support.graphs import DEVICES, dense, dense_norm, directed, rng, undirected
from support.refusals import assert_refused

pytestmark = pytest.mark.usefixtures("one_thread")

N, IN, HIDDEN, OUT = 9, 5, 4, 3


class Case(NamedTuple):
    name: str
    options: dict[str, Any] = {}  # noqa: RUF012

    def model(self, dtype: torch.dtype = torch.float64) -> nn.Module:
        """In eval mode, with every parameter and every running statistic away from its initial value."""
        torch.manual_seed(4)
        model = build(self.name, IN, HIDDEN, OUT, **self.options).double()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.add_(0.3 * torch.randn(parameter.shape, dtype=parameter.dtype) + name.endswith("bias"))
            for name, buffer in model.named_buffers():
                if name.endswith("running_mean"):
                    buffer.copy_(0.3 * torch.randn(buffer.shape))
                elif name.endswith("running_var"):
                    buffer.copy_(0.5 + torch.rand(buffer.shape))
        return model.to(dtype).eval()


DEFAULTS = {name: Case(name) for name in BACKBONES}
VARIANTS = DEFAULTS | {
    "gcn-4-bn": Case("gcn", {"num_layers": 4, "batch_norm": True}),
    "sage-3-bn": Case("sage", {"num_layers": 3, "batch_norm": True}),
    "sage-entries": Case("sage", {"mean": "entries"}),
    "gat-3-bn": Case("gat", {"num_layers": 3, "batch_norm": True, "heads": 2}),
    "gat-1-relu": Case("gat", {"heads": 1, "activation": "relu"}),
    "gat-none": Case("gat", {"heads": 3, "activation": "none"}),
    "gpr-3-bn": Case("gpr", {"num_layers": 3, "batch_norm": True, "hops": 3, "alpha": 0.3}),
    "appnp-3-bn": Case("appnp", {"num_layers": 3, "batch_norm": True, "hops": 4, "alpha": 0.2}),
    "airgnn-3-bn": Case("airgnn", {"num_layers": 3, "batch_norm": True, "hops": 4, "lam": 0.3}),
    "airgnn-0": Case("airgnn", {"lam": 0.0}),
    "robust_gcn-3-bn": Case("robust_gcn", {"num_layers": 3, "batch_norm": True}),
    "robust_gcn-bare": Case("robust_gcn", {"self_loops": False}),
    "simp_gcn-3-bn": Case("simp_gcn", {"num_layers": 3, "batch_norm": True, "k": 3, "gamma": 0.4}),
    "dual_gcn-3-bn": Case("dual_gcn", {"num_layers": 3, "batch_norm": True, "encoding_channels": 3, "walks": 5}),
}
RELEASED = {
    "gat-released": Case("gat", {"released": True, "num_layers": 3, "heads": 2, "batch_norm": True}),
    "gat-released-none": Case("gat", {"released": True, "activation": "none"}),
}
GRAPHS = {
    "directed": directed(N),
    "undirected with self-loops": undirected(N, 1, loops=True),
    "repeated": torch.tensor([[0, 0, 3, 3, 3, 2, 2], [1, 1, 4, 4, 4, 2, 2]]),
    "no edges": torch.empty(2, 0, dtype=torch.long),
}
variants = pytest.mark.parametrize("case", VARIANTS.values(), ids=VARIANTS)
everything = pytest.mark.parametrize("case", (VARIANTS | RELEASED).values(), ids=VARIANTS | RELEASED)
graphs = pytest.mark.parametrize("edge_index", GRAPHS.values(), ids=GRAPHS)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
devices = pytest.mark.parametrize("device", DEVICES)


def features(seed: int = 0, n: int = N) -> Tensor:
    return torch.randn(n, IN, generator=rng(seed), dtype=torch.float64)


def weights(edge_index: Tensor, seed: int = 1) -> Tensor:
    return torch.rand(edge_index.size(1), generator=rng(seed), dtype=torch.float64) + 0.2


def close(actual: Tensor, expected: Tensor) -> None:
    tolerance = 2e-4 if actual.dtype == torch.float32 else 1e-9
    torch.testing.assert_close(actual.double().cpu(), expected.double().cpu(), rtol=tolerance, atol=tolerance)


def both(model: nn.Module, *graph: Tensor | None) -> list[Tensor]:
    return [model(*graph), model.embed(*graph)]


# ---------------------------------------------------------------- the formulas, densely


def norm_of(model: nn.Module, k: int, x: Tensor, norms: nn.ModuleList | None = None) -> Tensor:
    if norms is None:
        norms = model.mlp.norms if hasattr(model, "mlp") else model.norms
    if isinstance(norms[k], nn.Identity):
        return x
    state = {name: value.double() for name, value in norms[k].state_dict().items()}
    scale = state["weight"] / (state["running_var"] + 1e-5).sqrt()
    return (x - state["running_mean"]) * scale + state["bias"]


def dense_gcn(model: Any, x: Tensor, edge_index: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    hat, z = dense_norm(dense(edge_index, N, weight)), x
    *hidden, last = model.convs
    for k, conv in enumerate(hidden):
        z = torch.relu(norm_of(model, k, hat @ z @ conv.weight + conv.bias))
    return hat @ z @ last.weight + last.bias, z


def dense_sage(model: Any, x: Tensor, edge_index: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    a = dense(edge_index, N, weight)
    count = dense(edge_index, N) if model.mean == "entries" else a
    mean = a / count.sum(1, keepdim=True).where(count.sum(1, keepdim=True) != 0, 1.0)

    def layer(conv: Any, z: Tensor) -> Tensor:
        own, others = conv.root.weight, conv.neighbour
        return mean @ (z @ others.weight.t() + others.bias) + z @ own.t()

    *hidden, last = model.convs
    z = x
    for k, conv in enumerate(hidden):
        z = torch.relu(norm_of(model, k, layer(conv, z)))
    return layer(last, z), z


def dense_gat(model: Any, x: Tensor, edge_index: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    eye = torch.eye(N, dtype=torch.float64)
    w, count = dense(edge_index, N, weight) * (1 - eye) + eye, dense(edge_index, N) * (1 - eye) + eye
    released = model.config["released"]

    def layer(conv: Any, z: Tensor) -> Tensor:
        heads, channels = conv.source.shape
        out = []
        for h in range(heads):
            part = slice(h * channels, (h + 1) * channels)
            g = z @ conv.weight[:, part]
            score = F.leaky_relu((g @ conv.target[h])[:, None] + (g @ conv.source[h])[None, :], 0.2).exp()
            if released:  # the softmax over all entries, then times the weights
                attention = score * w / (score * count).sum(1, keepdim=True)
            else:
                attention = score * w / (score * w).sum(1, keepdim=True)
            out.append(attention @ g + conv.bias[part])
        return torch.cat(out, dim=1)

    activation = {"elu": F.elu, "relu": torch.relu, "none": lambda t: t}[model.config["activation"]]
    for_embed = torch.relu if released and model.config["activation"] == "elu" else activation
    *hidden, last = model.convs
    x, z = x, x
    for k, conv in enumerate(hidden):
        x, z = activation(norm_of(model, k, layer(conv, x))), for_embed(norm_of(model, k, layer(conv, z)))
    return layer(last, x), z


def perceptron(model: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    *hidden, last = model.mlp.linears
    for k, linear in enumerate(hidden):
        x = torch.relu(norm_of(model, k, x @ linear.weight.t() + linear.bias))
    return x @ last.weight.t() + last.bias, x


def dense_gpr(model: Any, x: Tensor, edge_index: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    hat = dense_norm(dense(edge_index, N, weight))
    operator = sum(g * torch.linalg.matrix_power(hat, k) for k, g in enumerate(model.gamma))
    logits, hidden = perceptron(model, x)
    return operator @ logits, operator @ hidden


def dense_appnp(model: Any, x: Tensor, edge_index: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """In closed form: ``(1 - a)^K A^K + a sum_{k < K} (1 - a)^k A^k``."""
    hat = dense_norm(dense(edge_index, N, weight))
    a, hops = model.config["alpha"], model.config["hops"]
    powers = [torch.linalg.matrix_power((1 - a) * hat, k) for k in range(hops + 1)]
    operator = powers[-1] + a * sum(powers[:-1])
    logits, hidden = perceptron(model, x)
    return operator @ logits, operator @ hidden


def dense_airgnn(model: Any, x: Tensor, edge_index: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    hat = dense_norm(dense(edge_index, N, weight))
    lam = model.config["lam"]

    def diffuse(h: Tensor) -> Tensor:
        z = h
        for _ in range(model.config["hops"]):
            rows = []
            for y_i, h_i in zip(hat @ z, h, strict=True):
                length = float((y_i - h_i).norm())
                beta = 0.0 if length == 0 else max(0.0, 1 - lam / (2 * (1 - lam)) / length)
                rows.append(h_i + beta * (y_i - h_i))
            z = torch.stack(rows)
        return z

    logits, hidden = perceptron(model, x)
    return diffuse(logits), diffuse(hidden)


def dense_robust_gcn(model: Any, x: Tensor, edge_index: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    a = dense(edge_index, N, weight)
    if model.config["self_loops"]:
        a = a - a.diag().diag() + torch.eye(N, dtype=a.dtype)
    inverse = torch.tensor([0.0 if d == 0 else 1 / float(d) for d in a.sum(1)], dtype=a.dtype)
    for_mean = inverse.sqrt().diag() @ a @ inverse.sqrt().diag()
    for_variance = inverse.diag() @ a @ inverse.diag()

    def layer(conv: Any, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = F.elu(mean @ conv.mean.weight.t()), torch.relu(variance @ conv.variance.weight.t())
        return for_mean @ (mean * (-variance).exp()), for_variance @ (variance * (-2 * variance).exp())

    *hidden, last = model.convs
    mean = variance = x
    for k, conv in enumerate(hidden):
        mean, variance = layer(conv, mean, variance)
        mean, variance = norm_of(model, k, mean, model.mean_norms), norm_of(model, k, variance, model.variance_norms)
    return layer(last, mean, variance)[0], mean


def dense_simp_gcn(model: Any, x: Tensor, edge_index: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    similar = torch.zeros(N, N, dtype=x.dtype)
    for i in range(N):
        cosine = {j: float(x[i] @ x[j] / (x[i].norm() * x[j].norm())) for j in range(N) if j != i}
        for j in sorted(cosine, key=lambda j: -cosine[j])[: model.config["k"]]:
            similar[i, j] = float(cosine[j] > 0)
    hats = dense_norm(dense(edge_index, N, weight)), dense_norm(similar), torch.eye(N, dtype=x.dtype)

    def layer(conv: Any, z: Tensor) -> Tensor:
        share = torch.sigmoid(z @ conv.gates[:, :1] + conv.gate_bias[0])
        own = z @ conv.gates[:, 1:] + conv.gate_bias[1]
        near, alike, self = (hat @ z @ conv.weight + conv.bias for hat in hats)
        return share * near + (1 - share) * alike + model.config["gamma"] * own * self

    *hidden, last = model.convs
    z = x
    for k, conv in enumerate(hidden):
        z = norm_of(model, k, layer(conv, z))
    return layer(last, z), z


def dense_dual_gcn(model: Any, x: Tensor, edge_index: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Given the PPMI graph, which has a test of its own."""
    far, values = ppmi_graph(edge_index, weight, N, walks=model.config["walks"], length=model.config["walk_length"])
    codes = []
    *hidden, last = model.convs
    for a in (dense(edge_index, N, weight), dense(far, N, values)):
        hat, z = dense_norm(a), x
        for k, conv in enumerate(hidden):
            z = torch.relu(norm_of(model, k, hat @ z @ conv.weight + conv.bias))
        codes.append(hat @ z @ last.weight + last.bias)
    first, second = (torch.exp(code @ model.attention.weight.t() + model.attention.bias) for code in codes)
    z = (first * codes[0] + second * codes[1]) / (first + second)
    return z @ model.classify.weight.t() + model.classify.bias, z


FORMULAS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "gcn": dense_gcn,
    "sage": dense_sage,
    "gat": dense_gat,
    "gpr": dense_gpr,
    "appnp": dense_appnp,
    "airgnn": dense_airgnn,
    "robust_gcn": dense_robust_gcn,
    "simp_gcn": dense_simp_gcn,
    "dual_gcn": dense_dual_gcn,
}


def test_every_backbone_is_in_the_contract() -> None:
    assert set(FORMULAS) == set(BACKBONES)


@devices
@dtypes
@pytest.mark.parametrize("weighted", [True, False])
@graphs
@everything
def test_forward_and_embed_are_the_formula(
    case: Case, edge_index: Tensor, weighted: bool, dtype: torch.dtype, device: str
) -> None:
    model, x = case.model(), features()
    weight = weights(edge_index) if weighted else None
    with torch.no_grad():
        expected = FORMULAS[case.name](model, x, edge_index, weight)
        model = model.to(device, dtype)
        given = None if weight is None else weight.to(device, dtype)
        out = both(model, x.to(device, dtype), edge_index.to(device), given)
    assert all(t.dtype == dtype for t in out)
    for actual, formula in zip(out, expected, strict=True):
        close(actual, formula)


# ---------------------------------------------------------------- the contract


@devices
@dtypes
@graphs
@variants
def test_weight_one_is_no_weight_and_weight_zero_is_no_edge(
    case: Case, edge_index: Tensor, dtype: torch.dtype, device: str
) -> None:
    model = case.model(dtype).to(device)
    x, edge_index = features().to(device, dtype), edge_index.to(device)
    ones = torch.ones(edge_index.size(1), dtype=dtype, device=device)
    for weighted, plain in zip(both(model, x, edge_index, ones), both(model, x, edge_index), strict=True):
        close(weighted, plain)
    weight = weights(edge_index).to(device, dtype)
    for seed in range(3):
        keep = (torch.rand(edge_index.size(1), generator=rng(seed)) < 0.6).to(device)
        zeroed = both(model, x, edge_index, weight * keep)
        removed = both(model, x, edge_index[:, keep], weight[keep])
        for a, b in zip(zeroed, removed, strict=True):
            close(a, b)
    for a, b in zip(both(model, x, edge_index, ones * 0), both(model, x, edge_index[:, :0]), strict=True):
        close(a, b)


@devices
@dtypes
@pytest.mark.parametrize("present", ["none", "half", "all"])
@everything
def test_gradients_are_finite_where_edges_vanish(case: Case, present: str, dtype: torch.dtype, device: str) -> None:
    edge_index = GRAPHS["undirected with self-loops"].to(device)
    share = {"none": 0.0, "half": 0.5, "all": 1.1}[present]
    weight = (torch.rand(edge_index.size(1), generator=rng()) < share).to(device, dtype).requires_grad_()
    x = features().to(device, dtype)
    x[3] = 0.0
    x.requires_grad_()
    model = case.model(dtype).to(device)
    for out in both(model, x, edge_index, weight):
        for gradient in torch.autograd.grad(out.square().sum(), (x, weight)):
            assert torch.isfinite(gradient).all()


@variants
def test_an_absent_edge_has_a_gradient(case: Case) -> None:
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 1, 0]])
    weight = torch.tensor([1.0, 1.0, 0.0, 1.0], dtype=torch.float64, requires_grad=True)
    case.model()(3 * features(), edge_index, weight).square().sum().backward()
    assert weight.grad[2] != 0


@pytest.mark.parametrize("what", ["forward", "embed"])
@everything
def test_gradients_equal_finite_differences(case: Case, what: str) -> None:
    edge_index = torch.tensor([[0, 1, 2, 0, 3, 3, 4], [1, 0, 1, 2, 3, 0, 2]])
    model = case.model().requires_grad_(False)
    weight = weights(edge_index)
    if case.options.get("mean") != "entries":  # which jumps there
        weight[2] = 0.0
    x = features(6, 6) + 0.05
    function = model if what == "forward" else model.embed
    assert torch.autograd.gradcheck(
        lambda x, w: function(x, edge_index, w), (x.requires_grad_(), weight.requires_grad_())
    )


@graphs
@everything
def test_the_order_of_nodes_and_edges_does_not_matter(case: Case, edge_index: Tensor) -> None:
    model, x, weight = case.model(), features(), weights(edge_index)
    new_id = torch.randperm(N, generator=rng(3))
    if case.name == "dual_gcn":  # whose random walks draw other numbers when nodes have other names
        new_id = torch.arange(N)
    shuffle = torch.randperm(edge_index.size(1), generator=rng(4))
    moved = torch.empty_like(x).index_copy(0, new_id, x)
    renamed = both(model, moved, new_id[edge_index][:, shuffle], weight[shuffle])
    for before, after in zip(both(model, x, edge_index, weight), renamed, strict=True):
        close(after[new_id], before)


@everything
def test_embed_has_one_row_per_node_and_reacts_to_edges(case: Case) -> None:
    model, x, edge_index = case.model(), features(), GRAPHS["directed"]
    z = model.embed(x, edge_index)
    width = HIDDEN * case.options.get("heads", 4) if case.name == "gat" else HIDDEN
    width = model.config.get("encoding_channels", width)
    assert z.shape == (N, width)
    assert not torch.allclose(z, model.embed(x, edge_index[:, ::2]))
    assert not torch.allclose(z, model.embed(x, edge_index, weights(edge_index)))
    assert (z != 0).double().mean() > 0.4  # not a dead network, of which every comparison here would hold
    assert model(x, edge_index).shape == (N, OUT)


@everything
def test_single_and_double_precision_agree_and_weights_may_be_of_either(case: Case) -> None:
    edge_index = GRAPHS["undirected with self-loops"]
    weight = weights(edge_index).float()
    fine, coarse = case.model(), case.model(torch.float32)
    expected = both(fine, features(), edge_index, weight.double())
    for model, x in ((coarse, features().float()), (fine, features())):
        for a, b in zip(both(model, x, edge_index, weight), expected, strict=True):
            assert a.dtype == x.dtype
            close(a, b)


@pytest.mark.parametrize("name", BACKBONES)
def test_dropout_is_for_training_only(name: str) -> None:
    model = Case(name, {"dropout": 0.5}).model()
    x, edge_index = features(), GRAPHS["directed"]
    assert torch.equal(model(x, edge_index), model(x, edge_index))
    close(model(x, edge_index), Case(name).model()(x, edge_index))
    model.train()
    assert not torch.equal(model(x, edge_index), model(x, edge_index))


@everything
def test_inputs_are_left_alone(case: Case) -> None:
    x, edge_index = features(), GRAPHS["undirected with self-loops"].clone()
    weight = weights(edge_index)
    copies = x.clone(), edge_index.clone(), weight.clone()
    both(case.model(), x, edge_index, weight)
    assert all(map(torch.equal, (x, edge_index, weight), copies))


# ---------------------------------------------------------------- against PyG


@pytest.mark.parametrize("weighted", [True, False])
def test_gcn_is_pygs(weighted: bool) -> None:
    model, x = Case("gcn").model(), features()
    edge_index = undirected(N, 1) if weighted else GRAPHS["undirected with self-loops"]
    weight = weights(edge_index) if weighted else None
    first, last = pyg.GCNConv(IN, HIDDEN).double(), pyg.GCNConv(HIDDEN, OUT).double()
    with torch.no_grad():
        for theirs, ours in zip((first, last), model.convs, strict=True):
            theirs.lin.weight.copy_(ours.weight.t())
            theirs.bias.copy_(ours.bias)
    close(model(x, edge_index, weight), last(first(x, edge_index, weight).relu(), edge_index, weight))


def test_gat_is_pygs() -> None:
    model, x, edge_index = Case("gat").model(), features(), GRAPHS["undirected with self-loops"]
    first = pyg.GATConv(IN, HIDDEN, heads=4).double()
    last = pyg.GATConv(4 * HIDDEN, OUT, heads=1).double()
    with torch.no_grad():
        for theirs, ours in zip((first, last), model.convs, strict=True):
            theirs.lin.weight.copy_(ours.weight.t())
            theirs.att_src.copy_(ours.source[None])
            theirs.att_dst.copy_(ours.target[None])
            theirs.bias.copy_(ours.bias)
    close(model(x, edge_index), last(F.elu(first(x, edge_index)), edge_index))


@pytest.mark.parametrize("weighted", [True, False])
def test_appnp_is_pygs(weighted: bool) -> None:
    model, x, edge_index = Case("appnp").model(), features(), undirected(N, 1)
    weight = weights(edge_index) if weighted else None
    close(model(x, edge_index, weight), pyg.APPNP(K=10, alpha=0.1)(perceptron(model, x)[0], edge_index, weight))


def test_sage_is_pygs_where_there_are_neighbours() -> None:
    """Without any, PyG's layer still adds the bias of the neighbours' map."""
    edge_index = directed(N, density=0.6, isolated=0)
    assert dense(edge_index, N).sum(1).min() > 0
    model, x = Case("sage").model(), features()
    first, last = pyg.SAGEConv(IN, HIDDEN).double(), pyg.SAGEConv(HIDDEN, OUT).double()
    with torch.no_grad():
        for theirs, ours in zip((first, last), model.convs, strict=True):
            theirs.lin_l.load_state_dict(ours.neighbour.state_dict())
            theirs.lin_r.load_state_dict(ours.root.state_dict())
    close(model(x, edge_index), last(first(x, edge_index).relu(), edge_index))
    close(model.embed(x, edge_index[:, :0]), (x @ model.convs[0].root.weight.t()).relu())


# ---------------------------------------------------------------- what each has of its own


def test_sage_entries_divides_by_the_number_of_edges() -> None:
    x, edge_index = features(), torch.tensor([[1, 2, 3], [0, 0, 0]])
    weight = torch.tensor([0.5, 0.25, 0.0], dtype=torch.float64)
    model = Case("sage", {"mean": "entries"}).model()
    conv = model.convs[0]
    out = model.embed(x, edge_index, weight)[0]
    messages = x @ conv.neighbour.weight.t() + conv.neighbour.bias
    close(out, ((0.5 * messages[1] + 0.25 * messages[2]) / 2 + x[0] @ conv.root.weight.t()).relu())


def test_released_gat_multiplies_after_the_softmax() -> None:
    """So an edge of weight 0 still takes attention from the others: a documented difference, only in that mode."""
    case, edge_index = RELEASED["gat-released-none"], GRAPHS["directed"]
    model, x = case.model(), features()
    keep = torch.arange(edge_index.size(1)) % 2 == 0
    assert not torch.allclose(model(x, edge_index, keep.double()), model(x, edge_index[:, keep]))
    close(model(x, edge_index, torch.ones(keep.numel())), model(x, edge_index))


@torch.no_grad()
def test_airgnn_lambda_can_be_changed_after_training() -> None:
    model, x, edge_index = Case("airgnn").model(), features(), GRAPHS["directed"]
    before = model(x, edge_index)
    model.lam = 0.2
    after = model(x, edge_index)
    assert not torch.allclose(before, after) and model.lam == model.config["lam"] == 0.2
    close(after, dense_airgnn(model, x, edge_index, None)[0])
    model.lam = 0.0
    close(
        model(x, edge_index),
        torch.linalg.matrix_power(dense_norm(dense(edge_index, N)), 10) @ perceptron(model, x)[0],
    )
    twin = copy.deepcopy(model)
    twin.lam = 0.5
    assert model.lam == 0.0
    for bad in (1.0, -0.1, float("nan")):
        with pytest.raises(GraphMendError, match=r"lam must be in \[0, 1\)"):
            model.lam = bad


def test_airgnn_with_a_large_lambda_keeps_each_node_to_itself() -> None:
    model, x = AirGNN(IN, HIDDEN, OUT, lam=0.999).double().eval(), features()
    close(model(x, GRAPHS["directed"]), perceptron(model, x)[0])


def test_initial_values() -> None:
    torch.manual_seed(0)
    gamma = GPR(IN, HIDDEN, OUT).gamma
    close(gamma, torch.tensor([0.1 * 0.9**k for k in range(10)] + [0.9**10]))
    for conv in [*GCN(IN, HIDDEN, OUT).convs, *GAT(IN, HIDDEN, OUT).convs]:
        assert not conv.bias.any()
    wide = GCN(300, 200, OUT).convs[0].weight  # Glorot: uniform up to sqrt(6 / (in + out))
    bound = (6 / 500) ** 0.5
    assert 0.99 * bound < wide.abs().max() <= bound


SMALL = {"num_layers": 2, "batch_norm": False, "dropout": 0.0}
DEFAULTS: dict[str, dict[str, Any]] = {
    "gcn": SMALL,
    "sage": SMALL | {"mean": "weights"},
    "gat": SMALL | {"heads": 4, "activation": "elu", "released": False},
    "gpr": SMALL | {"hops": 10, "alpha": 0.1},
    "appnp": SMALL | {"hops": 10, "alpha": 0.1},
    "airgnn": SMALL | {"hops": 10, "lam": 0.5},
    "robust_gcn": SMALL | {"self_loops": True, "sample": False},
    "simp_gcn": SMALL | {"k": 20, "gamma": 0.1},
    "dual_gcn": SMALL | {"encoding_channels": 16, "walks": 40, "walk_length": 10},
}


@pytest.mark.parametrize("name", BACKBONES)
def test_the_defaults_are_those_of_the_papers(name: str) -> None:
    """Two layers; APPNP and its relatives have two linear maps and ten hops."""
    assert build(name, **SIZES).config == SIZES | DEFAULTS[name]
    for layers in (2, 5):
        model = build(name, **SIZES, num_layers=layers)
        assert len(model.mlp.linears if hasattr(model, "mlp") else model.convs) == layers


SIZES = {"in_channels": IN, "hidden_channels": HIDDEN, "out_channels": OUT}
BAD: dict[str, dict[str, Any]] = {
    "gcn": {"num_layers": 1, "dropout": 1.0, "hidden_channels": 0},
    "sage": {"mean": "median"},
    "gat": {"heads": 0, "activation": "tanh"},
    "gpr": {"alpha": -0.1},
    "appnp": {"hops": 0, "alpha": 1.5},
    "airgnn": {"lam": 1.0},
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name: str) -> None:
    for setting, value in BAD[name].items():
        assert_refused(lambda **options: build(name, **{**SIZES, **options}), setting, value)


def test_names_that_there_are_not() -> None:
    with pytest.raises(GraphMendError, match=r"does not take these options: .*heads"):
        build("gcn", **SIZES, heads=2)
    with pytest.raises(GraphMendError, match="unknown backbone 'mlp'; choose one of airgnn, appnp, dual_gcn, gat"):
        build("mlp", **SIZES)


# ---------------------------------------------------------------- checkpoints


@dtypes
@everything
def test_a_checkpoint_is_the_same_model(case: Case, dtype: torch.dtype, tmp_path: Path) -> None:
    model, edge_index = case.model(dtype).train(), GRAPHS["directed"]
    save_model(model, tmp_path / "model.safetensors")
    loaded = load_model(tmp_path / "model.safetensors")
    assert type(loaded) is type(model) and loaded.config == model.config and not loaded.training
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    x = features().to(dtype)
    for a, b in zip(both(loaded, x, edge_index), both(model.eval(), x, edge_index), strict=True):
        assert torch.equal(a, b)


def test_a_changed_lambda_is_saved(tmp_path: Path) -> None:
    model = AirGNN(IN, HIDDEN, OUT)
    model.lam = 0.25
    save_model(model, tmp_path / "m")
    assert load_model(tmp_path / "m").lam == 0.25


def test_a_loaded_model_does_not_hang_on_its_file(tmp_path: Path) -> None:
    """Safetensors maps files into memory: overwriting one in place must not reach a model that was read from it."""
    path = tmp_path / "m"
    save_model(Case("gcn").model(), path)
    loaded = load_model(path)
    before = copy.deepcopy(loaded.state_dict())
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)
    assert all(torch.equal(before[name], value) for name, value in loaded.state_dict().items())


def test_bad_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    with pytest.raises(GraphMendError, match="only GraphMend backbones are saved"):
        save_model(nn.Linear(2, 2), path)
    assert not path.exists()
    with pytest.raises(GraphMendError, match="there is no file"):
        load_model(path)
    save_model(GCN(IN, HIDDEN, OUT), path)
    raw, tensors = path.read_bytes(), GCN(IN, HIDDEN, OUT).state_dict()
    for length in (0, 8, 100, len(raw) - 1):
        path.write_bytes(raw[:length])
        with pytest.raises(GraphMendError, match="not a readable safetensors file"):
            load_model(path)
    torch.save(tensors, path)
    with pytest.raises(GraphMendError, match="not a readable safetensors file"):
        load_model(path)
    for header, message in [
        ({}, "holds no GraphMend checkpoint"),
        ({"format": FORMAT}, "does not fit its own header"),
        ({"format": FORMAT, "backbone": "mlp", "config": json.dumps(SIZES)}, "unknown backbone 'mlp'"),
        ({"format": FORMAT, "backbone": "sage", "config": json.dumps(SIZES)}, "does not fit its own header"),
    ]:
        save_file(tensors, path, header)
        with pytest.raises(GraphMendError, match=message):
            load_model(path)
