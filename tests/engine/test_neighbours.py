"""Differentiable sums over neighbours against dense float64 algebra and finite differences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.neighbours import (
    at_sources,
    at_targets,
    column_sums,
    edge_softmax,
    highest_score,
    incoming_sum,
    spmm,
)
from support.graphs import dense, rng
from support.sparse_patterns import (
    PATTERNS,
    WIDTH,
    N,
    close,
    devices,
    dtypes,
    features,
    halves,
    patterns,
    patterns_with_edges,
    values_of,
    weights_of,
)

# ---------------------------------------------------------------- spmm


@devices
@dtypes
@patterns
def test_spmm_and_its_gradients_are_those_of_the_dense_product(
    edge_index: Tensor, dtype: torch.dtype, device: str
) -> None:
    values, x, seen = values_of(edge_index), features(), features(3)
    expected_v, expected_x = values.clone().requires_grad_(), x.clone().requires_grad_()
    expected = dense(edge_index, N, expected_v) @ expected_x
    (expected * seen).sum().backward()
    v, h = (t.to(device, dtype).requires_grad_() for t in (values, x))
    adjacency = Adjacency(edge_index.to(device), N)
    out = spmm(adjacency, adjacency.order(v), h)
    assert out.dtype == dtype and out.shape == (N, WIDTH)
    close(out, expected)
    if edge_index.size(1):
        (out * seen.to(out)).sum().backward()
        close(v.grad, expected_v.grad)
        close(h.grad, expected_x.grad)


@dtypes
@patterns_with_edges
def test_only_the_gradients_asked_for(edge_index: Tensor, dtype: torch.dtype) -> None:
    adjacency, values, x = Adjacency(edge_index, N), values_of(edge_index).to(dtype), features().to(dtype)
    matrix = dense(edge_index, N, values)
    h = x.clone().requires_grad_()
    spmm(adjacency, adjacency.order(values), h).sum().backward()  # its gradient is one number, expanded
    close(h.grad, matrix.t() @ torch.ones(N, WIDTH, dtype=torch.float64))
    v = values.clone().requires_grad_()
    spmm(adjacency, adjacency.order(v), x).sum().backward()
    close(v.grad, x.sum(1)[edge_index[0]])
    assert not spmm(adjacency, adjacency.order(values), x).requires_grad


@devices
@dtypes
def test_features_and_values_may_be_strided(dtype: torch.dtype, device: str) -> None:
    """As those of one attention head are; CUDA's sparse product takes strided values for contiguous ones."""
    edge_index = PATTERNS["directed"].to(device)
    adjacency = Adjacency(edge_index, N)
    wide = features(width=2 * WIDTH).to(device, dtype).requires_grad_()
    heads = torch.stack([values_of(edge_index, seed) for seed in (1, 2, 3)], dim=1).to(device, dtype).requires_grad_()
    for x in (wide[:, ::2], wide[:, :WIDTH].t().contiguous().t()):
        ours, theirs = [], []
        for k in range(3):
            out = spmm(adjacency, adjacency.order(heads)[:, k], x)
            expected = dense(edge_index, N, heads[:, k]) @ x.double()
            close(out, expected)
            ours += torch.autograd.grad(out.t().contiguous().t().square().sum(), (wide, heads), retain_graph=True)
            theirs += torch.autograd.grad(expected.square().sum(), (wide, heads), retain_graph=True)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@patterns_with_edges
def test_spmm_gradients_equal_finite_differences(edge_index: Tensor) -> None:
    adjacency = Adjacency(edge_index, N)
    inputs = (values_of(edge_index).requires_grad_(), features(width=2).requires_grad_())
    assert torch.autograd.gradcheck(lambda v, x: spmm(adjacency, adjacency.order(v), x), inputs)


@dtypes
def test_without_edges_everything_is_zero(dtype: torch.dtype) -> None:
    adjacency = Adjacency(PATTERNS["no edges"], N)
    x, none = features().to(dtype), torch.empty(0, dtype=dtype)
    assert torch.equal(spmm(adjacency, none, x), torch.zeros(N, WIDTH, dtype=dtype))
    assert torch.equal(incoming_sum(adjacency, none), torch.zeros(N, dtype=dtype))
    assert torch.equal(incoming_sum(adjacency, none.view(0, 2)), torch.zeros(N, 2, dtype=dtype))
    assert torch.equal(column_sums(adjacency, none), torch.zeros(N, dtype=dtype))
    assert at_targets(adjacency, x).shape == at_sources(adjacency, x).shape == (0, WIDTH)
    attention, loop = edge_softmax(adjacency, none.view(0, 2), none, torch.zeros(N, 2, dtype=dtype))
    assert attention.shape == (0, 2) and loop is not None and torch.equal(loop, torch.ones(N, 2, dtype=dtype))


# ---------------------------------------------------------------- sums over edges, values at edges


@devices
@dtypes
@patterns
def test_sums_over_incoming_and_outgoing_edges(edge_index: Tensor, dtype: torch.dtype, device: str) -> None:
    adjacency = Adjacency(edge_index.to(device), N)
    heads = torch.stack([values_of(edge_index), values_of(edge_index, 5)], dim=1)
    matrices = [dense(edge_index, N, heads[:, k]) for k in range(2)]
    ordered = adjacency.order(heads.to(device, dtype))
    for sums, dim in ((incoming_sum, 1), (column_sums, 0)):
        expected = torch.stack([matrix.sum(dim) for matrix in matrices], dim=1)
        close(sums(adjacency, ordered), expected)
        close(sums(adjacency, ordered[:, 0]), expected[:, 0])


@devices
@halves
def test_half_precision_is_summed_up_in_single_precision(half: torch.dtype, device: str) -> None:
    star = torch.stack([torch.arange(1, 1001), torch.zeros(1000, dtype=torch.long)]).to(device)
    ones = torch.ones(1000, dtype=half, device=device)
    adjacency, turned = Adjacency(star, 1001), Adjacency(star.flip(0), 1001)
    for values in (ones, ones.view(-1, 1)):
        for out in (incoming_sum(adjacency, values), column_sums(turned, values)):
            assert out.dtype == half and float(out[0]) == 1000
    x = features(width=3, nodes=1001).to(device, half).requires_grad_()
    v = ones.clone().requires_grad_()
    out, single = spmm(adjacency, v, x), spmm(adjacency, ones.float(), x.detach().float())
    assert out.dtype == half
    torch.testing.assert_close(out, single.to(half))
    grads = torch.autograd.grad(out.float().sum(), (v, x))
    assert [grad.dtype for grad in grads] == [half, half]
    torch.testing.assert_close(grads[0], x.detach()[1:].float().sum(1).to(half))
    nodes = ones.new_ones(1001).requires_grad_()
    assert float(torch.autograd.grad(at_targets(adjacency, nodes).sum(), nodes)[0][0]) == 1000


@devices
@patterns
def test_values_of_nodes_at_the_ends_of_their_edges(edge_index: Tensor, device: str) -> None:
    adjacency, x = Adjacency(edge_index.to(device), N), features().to(device)
    source, target = adjacency.order(edge_index.t().to(device)).t()
    for values in (x, x[:, 0]):
        assert torch.equal(at_targets(adjacency, values), values[target])
        assert torch.equal(at_sources(adjacency, values), values[source])


@patterns_with_edges
def test_their_gradients_equal_finite_differences(edge_index: Tensor) -> None:
    adjacency = Adjacency(edge_index, N)
    heads = torch.stack([values_of(edge_index), values_of(edge_index, 5)], dim=1)
    for values in (heads, heads[:, 0]):
        given = values.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda v: incoming_sum(adjacency, adjacency.order(v)).square(), given)
    for values in (features(), features()[:, 0]):
        for at_ends in (at_targets, at_sources):
            given = values.clone().requires_grad_()
            assert torch.autograd.gradcheck(lambda v, at_ends=at_ends: at_ends(adjacency, v).square(), given)


# ---------------------------------------------------------------- edge_softmax


def softmax_by_hand(edge_index: Tensor, score: Tensor, weight: Tensor, loop: Tensor | None) -> tuple[Tensor, Tensor]:
    """Edge by edge, in the order of ``edge_index``."""
    top = [score[:, 0].max() if score.numel() else torch.tensor(0.0)] * N
    totals = []
    for i in range(N):
        mine = (edge_index[1] == i).nonzero().view(-1)
        parts = [weight[e] * (score[e] - top[i]).exp() for e in mine]
        parts += [] if loop is None else [(loop[i] - top[i]).exp()]
        totals.append(sum(parts, torch.zeros(score.size(1), dtype=torch.float64)))
    edges = [weight[e] * (score[e] - top[i]).exp() / totals[i] for e, i in enumerate(edge_index[1].tolist())]
    loops = [totals[0] * 0 if loop is None else (loop[i] - top[i]).exp() / totals[i] for i in range(N)]
    return torch.stack(edges), torch.stack(loops)


@devices
@dtypes
@pytest.mark.parametrize("with_loops", [True, False])
@pytest.mark.parametrize("name", ["directed", "undirected", "self-loops", "duplicates", "one edge"])
def test_edge_softmax(name: str, with_loops: bool, dtype: torch.dtype, device: str) -> None:
    edge_index = PATTERNS[name]
    score = torch.randn(edge_index.size(1), 3, generator=rng(4), dtype=torch.float64)
    weight = weights_of(edge_index)
    loop = torch.randn(N, 3, generator=rng(5), dtype=torch.float64) if with_loops else None
    expected, expected_loop = softmax_by_hand(edge_index, score, weight, loop)
    adjacency = Adjacency(edge_index.to(device), N)
    attention, own = edge_softmax(
        adjacency,
        adjacency.order(score.to(device, dtype)),
        adjacency.order(weight.to(device, dtype)),
        None if loop is None else loop.to(device, dtype),
    )
    close(attention, expected[adjacency.order(torch.arange(score.size(0), device=device)).cpu()])
    assert (own is None) == (loop is None)
    if own is not None:
        close(own, expected_loop)
        close(incoming_sum(adjacency, attention) + own, torch.ones(N, 3))


@pytest.mark.parametrize("with_loops", [True, False])
def test_edge_softmax_gradients(with_loops: bool) -> None:
    edge_index = PATTERNS["self-loops"]
    adjacency = Adjacency(edge_index, N)
    score = torch.randn(edge_index.size(1), 2, generator=rng(4), dtype=torch.float64)
    weight = weights_of(edge_index)
    weight[3] = 0.0
    loop = torch.randn(N, 2, generator=rng(5), dtype=torch.float64)

    def function(score: Tensor, weight: Tensor, loop: Tensor) -> Tensor:
        attention, own = edge_softmax(adjacency, score, weight, loop if with_loops else None)
        return attention.square().sum(0) if own is None else attention.square().sum(0) + own.pow(3).sum(0)

    assert torch.autograd.gradcheck(function, tuple(t.requires_grad_() for t in (score, weight, loop)))


@dtypes
def test_an_absent_edge_with_a_huge_score_changes_nothing(dtype: torch.dtype) -> None:
    edge_index = torch.tensor([[1, 2, 3], [0, 0, 0]])
    adjacency = Adjacency(edge_index, N)
    score = torch.tensor([[1.0], [2.0], [1e4]], dtype=dtype, requires_grad=True)
    weight = torch.tensor([1.0, 1.0, 0.0], dtype=dtype, requires_grad=True)
    attention, _ = edge_softmax(adjacency, score, weight)
    close(attention[:, 0], torch.tensor([1 / (1 + torch.e), torch.e / (1 + torch.e), 0.0], dtype=torch.float64))
    attention.square().sum().backward()
    assert torch.isfinite(score.grad).all() and torch.isfinite(weight.grad).all()
    large = torch.tensor([[1e4], [1e4 + 1], [-1e4]], dtype=dtype)
    attention, _ = edge_softmax(adjacency, large, torch.ones(3, dtype=dtype))
    close(attention.sum(), torch.tensor(1.0))


@dtypes
def test_edge_softmax_of_vanished_edges_is_zero_with_a_finite_gradient(dtype: torch.dtype) -> None:
    edge_index = PATTERNS["directed"]
    adjacency = Adjacency(edge_index, N)
    score = torch.randn(edge_index.size(1), 2, generator=rng(4)).to(dtype).requires_grad_()
    weight = torch.zeros(edge_index.size(1), dtype=dtype, requires_grad=True)
    attention, loop = edge_softmax(adjacency, score, weight, torch.zeros(N, 2, dtype=dtype))
    assert loop is not None and torch.equal(loop, torch.ones_like(loop)) and not attention.any()
    attention.sum().backward()
    assert torch.isfinite(score.grad).all() and torch.isfinite(weight.grad).all() and bool((weight.grad > 0).all())


def test_the_highest_score_is_that_of_an_edge_that_exists() -> None:
    adjacency = Adjacency(torch.tensor([[1, 2, 3, 0], [0, 0, 0, 1]]), 4)
    score, weight = torch.tensor([[1.0], [5.0], [9.0], [-3.0]]), torch.tensor([1.0, 0.5, 0.0, 0.0])
    assert highest_score(adjacency, score, weight, None).view(-1).tolist() == [5.0, 0.0, 0.0, 0.0]
    loops = torch.tensor([[7.0], [-8.0], [0.0], [-1.0]])
    assert highest_score(adjacency, score, weight, loops).view(-1).tolist() == [7.0, -8.0, 0.0, -1.0]
