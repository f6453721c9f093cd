"""Surrogate losses against formulas written by hand, their sums, and what they refuse."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import GTrans
from graphmend.errors import GraphMendError
from graphmend.nn import BACKBONES, GCN, build
from graphmend.surrogates import SURROGATES, Contrastive, Custom, Supervised, surrogate_of
from graphmend.surrogates.contrastive import distances
from graphmend.transforms import VIEWS, DropEdge, DropNode, Shuffle, view_of
from graphs import dense, dense_norm, rng, undirected

pytestmark = pytest.mark.usefixtures("one_thread")

N, IN, OUT = 12, 4, 3


def graph(**more: Any) -> Data:
    x = torch.randn(N, IN, generator=rng(), dtype=torch.float64)
    return Data(x=x, edge_index=undirected(N, 1), y=torch.arange(N) % OUT, **more)


def model(name: str = "gcn", out: int = OUT) -> nn.Module:
    torch.manual_seed(0)
    return build(name, IN, 8, out).double().eval()


def some() -> Tensor:
    return torch.arange(N) % 2 == 0


def distance(u: Tensor, v: Tensor) -> Tensor:
    return distances(u, v)[0]


def mean_cosine_distance(u: np.ndarray, v: np.ndarray) -> float:
    """Node by node, with the released code's 1e-15."""
    total = 0.0
    for a, b in zip(u, v, strict=True):
        total += 1 - float(a @ b) / ((math.sqrt(a @ a) + 1e-15) * (math.sqrt(b @ b) + 1e-15))
    return total / len(u)


# ---------------------------------------------------------------- Contrastive


@torch.no_grad()
@pytest.mark.parametrize("weighted", [True, False])
def test_contrastive_is_the_formula_for_the_same_draws(weighted: bool) -> None:
    data, gcn = graph(), model()
    if weighted:
        data.edge_weight = torch.rand(data.edge_index.size(1), generator=rng(3), dtype=torch.float64) + 0.5
    generator = rng(5)
    drop = torch.rand(data.edge_index.size(1), generator=generator) < 0.4
    order = torch.randperm(N, generator=generator)
    weight = torch.ones(drop.numel(), dtype=torch.float64) if data.edge_weight is None else data.edge_weight
    first = gcn.convs[0]

    def embed(x: Tensor, weight: Tensor) -> np.ndarray:
        z = dense_norm(dense(data.edge_index, N, weight)) @ x @ first.weight + first.bias
        return z.relu().numpy()

    z, positive = embed(data.x, weight), embed(data.x, weight * ~drop)
    negative = embed(data.x[order], weight)
    terms = Contrastive(DropEdge(0.4)).terms(gcn, data, rng(5))
    assert list(terms) == ["pull", "push"]
    assert float(terms["pull"]) == pytest.approx(mean_cosine_distance(positive, z), abs=1e-12)
    assert float(terms["push"]) == pytest.approx(-mean_cosine_distance(negative, z), abs=1e-12)
    expected = mean_cosine_distance(positive, z) - mean_cosine_distance(negative, z)
    assert float(Contrastive(DropEdge(0.4))(gcn, data, rng(5))) == pytest.approx(expected, abs=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", BACKBONES)
def test_contrastive_of_every_backbone_and_view(name: str, view: str) -> None:
    data, gnn, generator = graph(), model(name), rng(5)
    changed = view_of(view)(data, generator)
    shuffled = Shuffle()(data, generator)
    z, positive, negative = (gnn.embed(g.x, g.edge_index, g.edge_weight).numpy() for g in (data, changed, shuffled))
    expected = mean_cosine_distance(positive, z) - mean_cosine_distance(negative, z)
    assert float(Contrastive(view_of(view))(gnn, data, rng(5))) == pytest.approx(expected, abs=1e-12)


def test_contrastive_depends_on_the_features_and_edges_passed_in() -> None:
    """Not on features it remembers from somewhere: a public re-implementation does."""
    data, gcn = graph(), model()
    loss = Contrastive()
    first = loss(gcn, data, rng())
    other = copy.copy(data)
    other.x = data.x + torch.randn(N, IN, generator=rng(9), dtype=torch.float64)
    assert not torch.isclose(loss(gcn, other, rng()), first)
    assert torch.equal(loss(gcn, data, rng()), first)
    weighted = copy.copy(data)
    weighted.edge_weight = torch.linspace(0.1, 1, data.edge_index.size(1), dtype=torch.float64)
    assert not torch.isclose(loss(gcn, weighted, rng()), first)


def test_contrastive_draws_afresh_and_only_from_its_generator() -> None:
    data, gcn, generator = graph(), model(), rng()
    state = torch.get_rng_state()
    first, second = Contrastive()(gcn, data, generator), Contrastive()(gcn, data, generator)
    assert not torch.equal(first, second) and torch.equal(torch.get_rng_state(), state)
    with_global = Contrastive()(gcn, data), Contrastive()(gcn, data)
    assert not torch.equal(*with_global)


def test_contrastive_gradients_equal_finite_differences() -> None:
    data, gcn = graph(), model().requires_grad_(False)
    weight = torch.rand(data.edge_index.size(1), generator=rng(3), dtype=torch.float64) + 0.2

    def loss(x: Tensor, weight: Tensor) -> Tensor:
        return Contrastive()(gcn, Data(x=x, edge_index=data.edge_index, edge_weight=weight), rng(1))

    assert torch.autograd.gradcheck(loss, (data.x.requires_grad_(), weight.requires_grad_()))


def test_the_mean_does_not_grow_with_the_graph() -> None:
    """Two copies of a graph side by side: the mean stays, a sum would double."""
    u, v = (torch.randn(7, 3, generator=rng(seed), dtype=torch.float64) for seed in (0, 1))
    one, two = distance(u, v), distance(torch.cat([u, u]), torch.cat([v, v]))
    torch.testing.assert_close(one, two)
    assert float(one) == pytest.approx(mean_cosine_distance(u.numpy(), v.numpy()), abs=1e-14)
    assert float(distance(u, 5 * u)) == pytest.approx(0, abs=1e-14)
    assert float(distance(u, -u)) == pytest.approx(2, abs=1e-14)
    assert float(distance(u, u.flip(0))) == pytest.approx(float(distance(u.flip(0), u)), abs=1e-14)


def test_many_rows_are_taken_block_by_block() -> None:
    u, v = (torch.randn(70_000, 5, generator=rng(seed), dtype=torch.float64).requires_grad_() for seed in (0, 1))
    found = torch.autograd.grad(distance(u, v), (u, v))
    cosine = (u * v).sum(1) / (u.norm(dim=1) * v.norm(dim=1))
    torch.testing.assert_close(distance(u, v), 1 - cosine.mean())
    for ours, expected in zip(found, torch.autograd.grad(1 - cosine.mean(), (u, v)), strict=True):
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_zero_rows_have_cosine_zero_and_a_finite_gradient(dtype: torch.dtype) -> None:
    """Rows die under ReLU; one NaN there would end every adaptation."""
    u = torch.randn(4, 3, generator=rng(), dtype=dtype)
    v = torch.randn(4, 3, generator=rng(1), dtype=dtype)
    u[1], v[2], u[3], v[3] = 0.0, 0.0, 0.0, 0.0
    u.requires_grad_()
    v.requires_grad_()
    out = distance(u, v)
    expected = mean_cosine_distance(u.detach().double().numpy(), v.detach().double().numpy())
    assert float(out.detach()) == pytest.approx(expected, abs=1e-6)
    out.backward()
    for z in (u, v):
        assert torch.isfinite(z.grad).all() and z.grad[0].any() and not z.grad[3].any()
    assert not u.grad[1].any() and not v.grad[2].any()  # no direction, no gradient


@pytest.mark.parametrize("scale", [1e-20, 1e-15, 1e15])
def test_the_scale_of_an_embedding_does_not_matter(scale: float) -> None:
    u, v = (torch.randn(5, 3, generator=rng(seed)) for seed in (0, 1))
    small = (scale * u).requires_grad_()
    out = distance(small, v)
    torch.testing.assert_close(out.detach(), distance(u, v))
    out.backward()
    assert torch.isfinite(small.grad).all()


def test_a_graph_of_zeros_gives_a_finite_loss_and_gradient() -> None:
    data, gcn = graph(), model().requires_grad_(False)
    data.x = torch.zeros_like(data.x).requires_grad_()
    weight = torch.ones(data.edge_index.size(1), dtype=torch.float64, requires_grad=True)
    data.edge_weight = weight
    loss = Contrastive()(gcn, data, rng())
    gradients = torch.autograd.grad(loss, (data.x, weight))
    assert torch.isfinite(loss) and all(torch.isfinite(g).all() for g in gradients)


# ---------------------------------------------------------------- Supervised


class Fixed(nn.Module):
    """Returns what it was given."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.logits

    embed = forward


def test_supervised_is_the_mean_negative_log_likelihood_of_the_marked_nodes() -> None:
    logits = torch.randn(N, OUT, generator=rng(), dtype=torch.float64)
    data, mask = graph(), some()
    rows, labels = logits[mask].numpy(), data.y[mask].numpy()
    expected = -np.mean([row[k] - np.log(np.exp(row).sum()) for row, k in zip(rows, labels, strict=True)])
    assert float(Supervised(mask)(Fixed(logits), data)) == pytest.approx(float(expected), abs=1e-12)
    assert float(Supervised(mask)(Fixed(logits.log_softmax(1)), data)) == pytest.approx(float(expected), abs=1e-12)
    assert list(Supervised(mask).terms(Fixed(logits), data)) == ["supervised"]


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
def test_labels_of_any_dtype_and_as_a_column(dtype: torch.dtype) -> None:
    data, gcn = graph(), model()
    expected = Supervised(some())(gcn, data)
    data.y = data.y.to(dtype)
    torch.testing.assert_close(Supervised(some())(gcn, data), expected)
    data.y = data.y.view(-1, 1)
    torch.testing.assert_close(Supervised(some())(gcn, data), expected)


def test_labels_outside_the_mask_do_not_matter() -> None:
    data, gcn = graph(), model()
    first = Supervised(some())(gcn, data)
    scrambled = copy.copy(data)
    scrambled.y = torch.where(some(), data.y, -100)
    assert torch.equal(Supervised(some())(gcn, scrambled), first)
    changed = copy.copy(data)
    changed.y = torch.where(some(), (data.y + 1) % OUT, data.y)
    assert not torch.isclose(Supervised(some())(gcn, changed), first)


def test_supervised_reads_features_and_weights() -> None:
    data, gcn = graph(), model().requires_grad_(False)
    x = data.x.clone().requires_grad_()
    weight = torch.rand(data.edge_index.size(1), generator=rng(3), dtype=torch.float64).requires_grad_()

    def loss(x: Tensor, weight: Tensor) -> Tensor:
        return Supervised(some())(gcn, Data(x=x, edge_index=data.edge_index, edge_weight=weight, y=data.y))

    assert torch.autograd.gradcheck(loss, (x, weight))
    logits = gcn(data.x, data.edge_index, weight.detach())[some()].log_softmax(1)
    expected = -logits.gather(1, data.y[some()].view(-1, 1)).mean()
    torch.testing.assert_close(loss(x, weight).detach(), expected)
    assert all(g.any() for g in torch.autograd.grad(loss(x, weight), (x, weight)))


def test_supervised_says_what_is_wrong() -> None:
    data, gcn = graph(), model()
    with pytest.raises(GraphMendError, match=r"1-D bool \(got torch\.int64"):
        Supervised(torch.arange(3))
    with pytest.raises(GraphMendError, match="1-D bool"):
        Supervised(torch.ones(N, 2, dtype=torch.bool))
    with pytest.raises(GraphMendError, match="marks no node"):
        Supervised(torch.zeros(N, dtype=torch.bool))
    with pytest.raises(GraphMendError, match="has 5 entries but the graph 12 nodes"):
        Supervised(torch.ones(5, dtype=torch.bool))(gcn, data)
    data.y = None
    with pytest.raises(GraphMendError, match="the graph has no y"):
        Supervised(some())(gcn, data)


# ---------------------------------------------------------------- sums


def test_weighted_sums_read_as_they_are_written() -> None:
    data, gcn, mask, view = graph(), model(), some(), DropEdge(0.3)
    loss = Supervised(mask) + 0.01 * Contrastive(view)
    expected = Supervised(mask)(gcn, data) + 0.01 * Contrastive(view)(gcn, data, rng(2))
    torch.testing.assert_close(loss(gcn, data, rng(2)), expected)
    terms = loss.terms(gcn, data, rng(2))
    parts = Contrastive(view).terms(gcn, data, rng(2))
    assert list(terms) == ["supervised", "pull", "push"]
    torch.testing.assert_close(terms["pull"], 0.01 * parts["pull"])
    torch.testing.assert_close(sum(terms.values()), expected)
    torch.testing.assert_close((Contrastive(view) * 0.01)(gcn, data, rng(2)), 0.01 * sum(parts.values()))
    scaled = 2 * (Supervised(mask) + 3 * Supervised(~mask))
    torch.testing.assert_close(scaled(gcn, data), 2 * Supervised(mask)(gcn, data) + 6 * Supervised(~mask)(gcn, data))


def test_terms_of_the_same_name_add_up_with_draws_of_their_own() -> None:
    data, gcn = graph(), model()
    generator = rng(4)
    expected = Contrastive(DropEdge(0.2))(gcn, data, generator) + Contrastive(DropNode(0.2))(gcn, data, generator)
    both = Contrastive(DropEdge(0.2)) + Contrastive(DropNode(0.2))
    torch.testing.assert_close(both(gcn, data, rng(4)), expected)
    assert list(both.terms(gcn, data, rng(4))) == ["pull", "push"]


def test_sums_refuse_what_is_no_surrogate() -> None:
    with pytest.raises(TypeError):
        Contrastive() + 3  # type: ignore[operator]
    for factor in (float("nan"), float("inf")):
        with pytest.raises(GraphMendError, match="factor must be finite"):
            factor * Contrastive()


# ---------------------------------------------------------------- functions and names


def entropy(model: Any, data: Data) -> Tensor:
    p = model(data.x, data.edge_index, data.edge_weight).softmax(-1)
    return -(p * p.log()).sum(-1).mean()


def test_a_function_is_a_surrogate() -> None:
    data, gcn = graph(), model()
    loss = surrogate_of(entropy)
    assert isinstance(loss, Custom) and list(loss.terms(gcn, data)) == ["entropy"]
    torch.testing.assert_close(loss(gcn, data), entropy(gcn, data))
    torch.testing.assert_close((loss + 2 * loss)(gcn, data), 3 * entropy(gcn, data))
    result = GTrans(entropy, steps=6, lr_feature=0.1)(gcn, data)
    losses = [step.terms["entropy"] for step in result.history]
    assert result.reason is None and losses[-1] < losses[0]
    one = surrogate_of(lambda model, data: entropy(model, data).view(1))
    assert one(gcn, data).shape == ()


@pytest.mark.parametrize("value", [3.0, None, torch.ones(N), torch.ones(2, 1)], ids=str)
def test_a_function_must_return_one_number(value: Any) -> None:
    with pytest.raises(GraphMendError, match="the surrogate bad must return a tensor with one number"):

        def bad(model: Any, data: Data) -> Any:
            return value

        surrogate_of(bad)(GCN(IN, 8, OUT), graph())


def test_names() -> None:
    assert surrogate_of("contrastive") == Contrastive() and "contrastive" in SURROGATES
    made = Contrastive(DropNode())
    assert surrogate_of(made) is made
    with pytest.raises(GraphMendError) as error:
        surrogate_of("constrastive")
    assert "'constrastive'" in str(error.value) and all(name in str(error.value) for name in SURROGATES)
    with pytest.raises(GraphMendError, match=r"a surrogate is a Surrogate, a name or a function .*got 3"):
        surrogate_of(3)  # type: ignore[arg-type]
