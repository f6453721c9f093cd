"""Surrogates against their formulas, written out entry by entry. Gradients are a matter of the contract."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import FrozenGNN
from graphmend.cards import card
from graphmend.surrogates import Contrastive, Entropy, Moments, Reconstruction, Supervised
from graphmend.transforms import VIEWS, Shuffle, view_of
from support.graphs import dense, dense_norm, rng
from support.surrogate_cases import OUT, Fixed, N, graph, model, some, weights

# ---------------------------------------------------------------- contrastive


def mean_cosine_distance(u: np.ndarray, v: np.ndarray) -> float:
    """Node by node, with the released code's 1e-15."""
    total = 0.0
    for a, b in zip(u, v, strict=True):
        total += 1 - float(a @ b) / ((math.sqrt(a @ a) + 1e-15) * (math.sqrt(b @ b) + 1e-15))
    return total / len(u)


@torch.no_grad()
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ["gcn", "gat", "simp_gcn"])
def test_contrastive(name: str, view: str, weighted: bool) -> None:
    """The views are those that the generator draws, one after the other."""
    data, net, generator = graph(), model(name), rng(5)
    if weighted:
        data.edge_weight = weights(data)
    graphs = data, view_of(view)(data, generator), Shuffle()(data, generator)
    z, positive, negative = (net.embed(g.x, g.edge_index, g.edge_weight).numpy() for g in graphs)
    pull, push = mean_cosine_distance(positive, z), -mean_cosine_distance(negative, z)
    surrogate = Contrastive(view_of(view))
    terms = surrogate.terms(net, data, rng(5))
    assert {name: float(value) for name, value in terms.items()} == pytest.approx({"pull": pull, "push": push})
    assert float(surrogate(net, data, rng(5))) == pytest.approx(pull + push, abs=1e-12)
    assert not torch.equal(surrogate(net, data), surrogate(net, data)), "without a generator, torch's own"


# ---------------------------------------------------------------- entropy


def slow_entropy(rows: list[list[float]]) -> float:
    total = 0.0
    for row in rows:
        norm = sum(math.exp(value) for value in row)
        total -= sum(math.exp(value) / norm * math.log(math.exp(value) / norm) for value in row)
    return total / len(rows)


@pytest.mark.parametrize("nodes", [None, 1, 5, N, 1000])
def test_entropy_of_all_nodes_or_the_first_ones(nodes: int | None) -> None:
    logits = 3 * torch.randn(N, OUT, generator=rng(), dtype=torch.float64)
    for given in (logits, logits.log_softmax(1)):
        terms = Entropy(nodes).terms(Fixed(given), graph())
        assert list(terms) == ["entropy"]
        assert float(terms["entropy"]) == pytest.approx(slow_entropy(logits.tolist()[:nodes]), abs=1e-12)
    binary = [[0.0, value] for value in logits[:, 0].tolist()]  # a single logit is that of class 1
    for given in (logits[:, 0], logits[:, :1]):
        loss = Entropy(nodes)(Fixed(given), graph())
        assert float(loss) == pytest.approx(slow_entropy(binary[:nodes]), abs=1e-12)
        assert torch.autograd.gradcheck(lambda z: Entropy(nodes)(Fixed(z), graph()), given.clone().requires_grad_())


def test_sure_predictions_have_no_entropy_and_even_ones_the_most() -> None:
    sure = torch.eye(OUT).repeat(N // OUT, 1) * 1e4
    assert float(Entropy()(Fixed(sure), graph())) == 0.0
    assert float(Entropy()(Fixed(torch.zeros(N, OUT)), graph())) == pytest.approx(math.log(OUT))
    logits = torch.full((N,), 1e4, requires_grad=True)
    (slope,) = torch.autograd.grad(Entropy()(Fixed(logits), graph()), logits)
    assert not bool(slope.any())


# ---------------------------------------------------------------- reconstruction


def slow_reconstruction(z: np.ndarray, edge_index: Tensor, weight: list[float]) -> float:
    """Edge by edge; a zero row has the cosine 0 with every other one."""
    total = norm = 0.0
    for (i, j), w in zip(edge_index.t().tolist(), weight, strict=True):
        length = math.sqrt(z[i] @ z[i]) * math.sqrt(z[j] @ z[j])
        total += w * (1 - (float(z[i] @ z[j]) / length if length > 0 else 0.0))
        norm += w
    return total / norm if norm > 0 else 0.0


@torch.no_grad()
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("has_weights", [True, False])
def test_reconstruction(has_weights: bool, weighted: bool) -> None:
    data, net = graph(), model("gat")
    if has_weights:
        data.edge_weight = weights(data)
    z = net.embed(data.x, data.edge_index, data.edge_weight).numpy()
    counted = data.edge_weight.tolist() if weighted and has_weights else [1.0] * data.edge_index.size(1)
    terms = Reconstruction(weighted).terms(net, data)
    assert list(terms) == ["reconstruction"]
    assert float(terms["reconstruction"]) == pytest.approx(slow_reconstruction(z, data.edge_index, counted), abs=1e-12)


def test_an_edge_of_weight_0_is_not_there_unless_as_released() -> None:
    data, net = graph(), Fixed(torch.randn(N, 5, generator=rng(1), dtype=torch.float64))
    keep = torch.arange(data.edge_index.size(1)) % 2 == 0
    absent = Data(x=data.x, edge_index=data.edge_index, edge_weight=keep.double())
    removed = Data(x=data.x, edge_index=data.edge_index[:, keep])
    torch.testing.assert_close(Reconstruction()(net, absent), Reconstruction()(net, removed))
    torch.testing.assert_close(Reconstruction(False)(net, absent), Reconstruction()(net, data))
    assert not torch.isclose(Reconstruction()(net, removed), Reconstruction()(net, data))
    given = absent.edge_weight.requires_grad_()
    for weighted in (True, False):
        assert torch.autograd.gradcheck(
            lambda z, w, weighted=weighted: Reconstruction(weighted)(
                Fixed(z), Data(x=data.x, edge_index=data.edge_index, edge_weight=w)
            ),
            (net.out.clone().requires_grad_(), given),
        )


@pytest.mark.parametrize("kind", ["no edges", "weights of 0", "edges"])
def test_without_edges_it_is_0_and_flat_and_zero_rows_have_no_gradient(kind: str) -> None:
    z = torch.randn(N, 5, generator=rng(1), dtype=torch.float64)
    z[::2] = 0.0
    z.requires_grad_()
    data = graph()
    if kind == "no edges":
        data.edge_index = data.edge_index[:, :0]
    elif kind == "weights of 0":
        data.edge_weight = torch.zeros(data.edge_index.size(1), dtype=torch.float64)
    loss = Reconstruction()(Fixed(z), data)
    (slope,) = torch.autograd.grad(loss, z)
    assert bool(slope.isfinite().all()) and not bool(slope[::2].any())
    assert (float(loss.detach()) == 0.0 and not bool(slope.any())) == (kind != "edges")


def test_half_precision_is_summed_up_in_single() -> None:
    z = torch.randn(N, 5, generator=rng(1)).bfloat16()
    half = Reconstruction()(Fixed(z), graph())
    assert half.dtype == torch.float32
    assert float(half) == pytest.approx(float(Reconstruction()(Fixed(z.float()), graph())), abs=1e-6)


# ---------------------------------------------------------------- supervised


def test_supervised() -> None:
    logits, data, mask = torch.randn(N, OUT, generator=rng(), dtype=torch.float64), graph(), some()
    rows, labels = logits[mask].numpy(), data.y[mask].numpy()
    expected = -np.mean([row[k] - np.log(np.exp(row).sum()) for row, k in zip(rows, labels, strict=True)])
    for given in (logits, logits.log_softmax(1)):
        terms = Supervised(mask).terms(Fixed(given), data)
        assert list(terms) == ["supervised"]
        assert float(terms["supervised"]) == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.parametrize("shape", [(N,), (N, 1)])
@pytest.mark.parametrize("dtype", [torch.long, torch.float32, torch.bool], ids=str)
def test_supervised_with_a_single_logit(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    logits = torch.randn(N, generator=rng(), dtype=torch.float64)
    data, mask = graph(), some()
    data.y = (torch.arange(N) % 3 == 0).to(dtype)
    sign = np.where(data.y[mask].bool().numpy(), 1.0, -1.0)
    expected = np.mean(np.log1p(np.exp(-sign * logits[mask].numpy())))
    assert float(Supervised(mask)(Fixed(logits.view(shape)), data)) == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.uint8, torch.long, torch.float32], ids=str)
@pytest.mark.parametrize("kind", [torch.bool, torch.uint8, torch.int64], ids=str)
def test_labels_and_masks_of_any_type(dtype: torch.dtype, kind: torch.dtype) -> None:
    """A mask of zeros and ones is no list of nodes."""
    data, gcn = graph(), model()
    expected = Supervised(some())(gcn, data)
    for shape in ((N,), (N, 1)):
        data.y = (torch.arange(N) % OUT).to(dtype).view(shape)
        torch.testing.assert_close(Supervised(some().to(kind))(gcn, data), expected)


def test_labels_outside_the_mask_do_not_matter() -> None:
    data, gcn = graph(), model()
    first = Supervised(some())(gcn, data)
    data.y = torch.where(some(), data.y, -100)
    assert torch.equal(Supervised(some())(gcn, data), first)
    data.y = (data.y + 1) % OUT
    assert not torch.isclose(Supervised(some())(gcn, data), first)


# ---------------------------------------------------------------- moments


def shifted(data: Data) -> Data:
    out = copy.copy(data)
    out.x = 1.3 * data.x + 0.5
    return out


def columns(net: nn.Module, data: Data) -> tuple[np.ndarray, np.ndarray]:
    """The first layer and Z of a two-layer GCN, with dense matrices."""
    hop = dense_norm(dense(data.edge_index, data.x.size(0)))
    h = hop @ data.x @ net.convs[0].weight + net.convs[0].bias
    return h.numpy(), h.relu().numpy()


def slow_squared_distance(now: np.ndarray, then: np.ndarray) -> float:
    """One column after another, one row after another."""
    total, width = 0.0, then.shape[1]
    deviations = [float(np.sqrt(np.mean((then[:, k] - np.mean(then[:, k])) ** 2))) for k in range(width)]
    floor = 0.05 * sum(deviations) / width
    for k in range(width):
        unit = max(deviations[k], floor)
        mean = sum(now[i, k] for i in range(len(now))) / len(now)
        deviation = (sum((now[i, k] - mean) ** 2 for i in range(len(now))) / len(now)) ** 0.5
        total += ((mean - np.mean(then[:, k])) / unit) ** 2 + ((deviation - deviations[k]) / unit) ** 2
    return total / width


def test_moments() -> None:
    net, data = model(), graph()
    test = shifted(data)
    with FrozenGNN(net, test) as frozen:
        terms = Moments(card(net, data, task="classes")).terms(frozen, test)
    (h, z), (h0, z0) = columns(net, test), columns(net, data)
    assert list(terms) == ["first", "embedding"]
    assert float(terms["first"]) == pytest.approx(slow_squared_distance(h, h0), rel=1e-10)
    assert float(terms["embedding"]) == pytest.approx(slow_squared_distance(z, z0), rel=1e-10)


def test_moments_on_the_training_graph_are_zero_and_flat() -> None:
    net, data = model(), graph()
    x = data.x.clone().requires_grad_()
    with FrozenGNN(net, data) as frozen:
        loss = Moments(card(net, data, task="classes"))(frozen, Data(x=x, edge_index=data.edge_index))
        (slope,) = torch.autograd.grad(loss, x)
    assert float(loss.detach()) < 1e-25 and float(slope.abs().max()) < 1e-12


def test_units_that_never_fire_have_a_gradient() -> None:
    """A ReLU that is off at every node has no spread, and the root of 0 no slope."""
    net, data = model(), graph()
    net.convs[0].bias[:3] = -100.0
    x = shifted(data).x.requires_grad_()
    with FrozenGNN(net, data) as frozen:
        terms = Moments(card(net, data, task="classes")).terms(frozen, Data(x=x, edge_index=data.edge_index))
    for value in terms.values():
        (slope,) = torch.autograd.grad(value, x, retain_graph=True)
        assert bool(value.isfinite()) and bool(slope.isfinite().all()) and float(slope.abs().max()) > 0
