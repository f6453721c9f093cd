"""The contrastive loss against its formula written by hand, and finite differences."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.lab.backbones import BACKBONES
from graphmend.surrogates import Contrastive
from graphmend.transforms import VIEWS, DropEdge, DropNode, Shuffle, view_of
from support.graphs import dense, dense_norm, rng
from support.surrogate_cases import IN, N, graph, model


def mean_cosine_distance(u: np.ndarray, v: np.ndarray) -> float:
    """Node by node, with the released code's 1e-15."""
    total = 0.0
    for a, b in zip(u, v, strict=True):
        total += 1 - float(a @ b) / ((math.sqrt(a @ a) + 1e-15) * (math.sqrt(b @ b) + 1e-15))
    return total / len(u)


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
    data, gcn = graph(), model()
    twice = Data(x=data.x.repeat(2, 1), edge_index=torch.cat([data.edge_index, data.edge_index + N], dim=1))
    pull = [Contrastive(DropEdge(1.0)).terms(gcn, one, rng())["pull"] for one in (data, twice)]
    assert float(pull[0].detach()) > 0
    torch.testing.assert_close(*pull)


def test_a_graph_of_zeros_gives_a_finite_loss_and_gradient() -> None:
    data, gcn = graph(), model().requires_grad_(False)
    data.x = torch.zeros_like(data.x).requires_grad_()
    weight = torch.ones(data.edge_index.size(1), dtype=torch.float64, requires_grad=True)
    data.edge_weight = weight
    loss = Contrastive()(gcn, data, rng())
    gradients = torch.autograd.grad(loss, (data.x, weight))
    assert torch.isfinite(loss) and all(torch.isfinite(g).all() for g in gradients)


def test_the_kind_of_view_tells_losses_apart() -> None:
    """Trials are kept under it: another probability is the same computation, another view is not."""
    assert Contrastive(DropEdge(0.1)).signature() == Contrastive(DropEdge(0.9)).signature()
    assert Contrastive(DropEdge()).signature() != Contrastive(DropNode()).signature()
