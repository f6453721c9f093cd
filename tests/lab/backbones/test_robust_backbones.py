"""What RobustGCN and SimP-GCN have of their own; the contract of all backbones covers the rest."""

from __future__ import annotations

import gc

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphmend.lab.backbones import RobustGCN, SimPGCN, simp_gcn
from graphmend.lab.backbones.simp_gcn import cosine_neighbours
from support.graphs import pairs, rng, undirected

N, IN = 9, 5


def features(seed: int = 0, n: int = N) -> Tensor:
    return torch.randn(n, IN, generator=rng(seed), dtype=torch.float64)


def test_robust_gcn_draws_around_its_mean_in_training() -> None:
    torch.manual_seed(0)
    model, x, edge_index = RobustGCN(IN, 8, 3).double(), features(), undirected(N, 1)
    with torch.no_grad():
        mean = model.eval()(x, edge_index)
        assert torch.equal(mean, model(x, edge_index))
        propagations = model._propagations(x, edge_index, None)
        _, variance = model._layer(-1, *model._hidden(x, *propagations), *propagations)
        draws = torch.stack([model.train()(x, edge_index) for _ in range(1000)])
    torch.testing.assert_close(draws.mean(0), mean, atol=0.1, rtol=0)
    torch.testing.assert_close(draws.var(0), variance + 1e-8, atol=0.02, rtol=0.25)
    assert variance.max() > 0.01


def test_robust_gcn_can_draw_in_eval_mode_as_the_released_code_does() -> None:
    model = RobustGCN(IN, 8, 3, sample=True).double().eval()
    x, edge_index = features(), undirected(N, 1)
    assert not torch.equal(model(x, edge_index), model(x, edge_index))
    assert torch.equal(model.embed(x, edge_index), model.embed(x, edge_index))


def test_robust_gcn_listens_less_to_uncertain_nodes() -> None:
    """The larger the variance of a neighbour, the smaller its share in the mean."""
    layer, edge_index = RobustGCN(1, 1, 1).double(), torch.tensor([[1], [0]])
    with torch.no_grad():
        layer.convs[0].mean.weight.fill_(1.0)
        layer.convs[0].variance.weight.fill_(1.0)
        propagations = layer._propagations(torch.zeros(2, 1, dtype=torch.float64), edge_index, None)
        mean = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        outs = [
            layer.convs[0](mean, torch.tensor([[0.0], [v]], dtype=torch.float64), *propagations)[0][0].item()
            for v in (0.0, 1.0, 5.0)
        ]
    assert outs[0] > outs[1] > outs[2] > 0


def test_robust_gcn_without_self_loops_says_nothing_about_lonely_nodes() -> None:
    x, edge_index = features(), torch.tensor([[0, 1], [1, 0]])
    out = RobustGCN(IN, 8, 3, self_loops=False).double().eval()(x, edge_index)
    assert not out[2:].any() and out[:2].any()
    assert RobustGCN(IN, 8, 3).double().eval()(x, edge_index).abs().sum(1).min() > 0


@given(st.integers(0, 50), st.integers(1, 12), st.integers(1, 12), st.integers(1, 40))
def test_the_neighbours_are_the_nearest(seed: int, n: int, k: int, block: int) -> None:
    x = features(seed, n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simp_gcn, "_BLOCK", block)  # several rows at a time, or one
        edges = cosine_neighbours(x, k)
    unit = x / x.norm(dim=1, keepdim=True)
    for i in range(n):
        others = sorted(((float(unit[i] @ unit[j]), j) for j in range(n) if j != i), reverse=True)[:k]
        found = edges[0, edges[1] == i].tolist()
        assert sorted(found) == sorted(j for cosine, j in others if cosine > 0)


def test_neighbours_follow_a_change_of_the_features_that_leaves_no_trace() -> None:
    x = features()
    before = cosine_neighbours(x, 2)
    assert cosine_neighbours(x, 2) is before and cosine_neighbours(x, 3) is not before
    x.data.copy_(features(1))  # past the version counter
    assert pairs(cosine_neighbours(x, 2)) == pairs(cosine_neighbours(features(1), 2)) != pairs(before)


def test_nothing_is_kept_when_the_features_are_gone() -> None:
    gc.collect()
    kept = len(simp_gcn._CACHE)
    x = features(3)
    cosine_neighbours(x, 2)
    assert len(simp_gcn._CACHE) == kept + 1
    del x
    gc.collect()
    assert len(simp_gcn._CACHE) == kept


def test_rows_of_zeros_have_no_neighbours() -> None:
    x = features()
    x[4] = 0.0
    edges = cosine_neighbours(x, N)
    assert not (edges == 4).any() and edges.size(1) > 0
    assert torch.isfinite(SimPGCN(IN, 4, 3).double()(x, undirected(N, 1))).all()
