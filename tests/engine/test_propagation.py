"""Hops, polynomials and the normalisation of GCN against dense float64 algebra and finite differences."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.cache import caching
from graphmend.engine.propagation import Propagation, gcn_norm, normalised, pagerank
from support.graphs import dense, dense_norm, rng
from support.sparse_patterns import (
    HUB_NODES,
    HUBS,
    PATTERNS,
    N,
    close,
    devices,
    dtypes,
    features,
    halves,
    patterns,
    patterns_with_edges,
    weights_of,
)

COEFFICIENTS = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)


def reference(
    edge_index: Tensor, weight: Tensor, x: Tensor, add: Tensor, scale: Tensor, shift: Tensor, relu: bool
) -> Tensor:
    """A hop with everything around it, then a polynomial, with dense matrices."""
    a = dense_norm(dense(edge_index, x.size(0), weight))
    out = (a @ x + add) * scale + shift
    out = out.relu() if relu else out
    return COEFFICIENTS[0] * out + COEFFICIENTS[1] * (a @ out) + COEFFICIENTS[2] * (a @ (a @ out))


@devices
@dtypes
@pytest.mark.parametrize("learned", ["features", "weights", "features and weights"])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("width", [1, 40, 130])
@pytest.mark.parametrize("edge_index", HUBS.values(), ids=HUBS)
def test_a_hop_with_everything_around_it_and_a_polynomial(
    edge_index: Tensor, width: int, relu: bool, learned: str, dtype: torch.dtype, device: str
) -> None:
    compare_with_dense(edge_index, HUB_NODES, width, relu, learned, dtype, device)


@devices
@dtypes
@pytest.mark.parametrize("relu", [True, False])
@patterns
def test_the_same_on_patterns_of_all_kinds(edge_index: Tensor, relu: bool, dtype: torch.dtype, device: str) -> None:
    compare_with_dense(edge_index, N, 4, relu, "features and weights", dtype, device)


def compare_with_dense(
    edge_index: Tensor, nodes: int, width: int, relu: bool, learned: str, dtype: torch.dtype, device: str
) -> None:
    weight = torch.rand(edge_index.size(1), generator=rng(1), dtype=torch.float64)
    x, add, seen = (features(seed, width, nodes) for seed in (2, 3, 4))
    scale, shift = torch.rand(2, width, generator=rng(5), dtype=torch.float64)
    adjacency = Adjacency(edge_index.to(device), nodes)

    def expected(weight: Tensor, x: Tensor, add: Tensor) -> Tensor:
        return reference(edge_index, weight, x, add, scale, shift, relu)

    def ours(weight: Tensor, x: Tensor, add: Tensor) -> Tensor:
        a = gcn_norm(adjacency, weight, dtype)
        out = a(x, add=add, scale=scale.to(x), shift=shift.to(x), relu=relu)
        return a.polynomial(out, COEFFICIENTS.to(x))

    results = []
    for function, kind, where in ((expected, torch.float64, "cpu"), (ours, dtype, device)):
        given = {"weights": weight, "features": x, "added features": add}
        leaves = {name: tensor.detach().to(where, kind) for name, tensor in given.items()}
        variables = [leaf.requires_grad_() for name, leaf in leaves.items() if name.split()[-1] in learned]
        out = function(*leaves.values())
        results.append([out, *torch.autograd.grad((out * seen.to(where, kind)).sum(), variables)])
    tolerance = 1e-10 if dtype == torch.float64 else 2e-4
    for actual, wanted in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(actual.double().cpu(), wanted, atol=tolerance, rtol=tolerance)


@devices
@dtypes
@patterns
def test_a_plain_hop_without_a_diagonal(edge_index: Tensor, dtype: torch.dtype, device: str) -> None:
    adjacency, weight, x = Adjacency(edge_index.to(device), N), weights_of(edge_index), features()
    propagate = Propagation(adjacency, adjacency.order(weight.to(device, dtype)))
    close(propagate(x.to(device, dtype)), dense(edge_index, N, weight) @ x)
    expected = dense(edge_index, N, weight)
    expected = 0.5 * x + 0.3 * expected @ x + 0.2 * expected @ expected @ x
    close(propagate.polynomial(x.to(device, dtype), COEFFICIENTS.to(device, dtype)), expected)


@pytest.mark.parametrize("symmetric_values", [True, False])
def test_the_transpose_is_that_of_the_values(symmetric_values: bool) -> None:
    """On an undirected graph the pattern is its own transpose, its values need not be."""
    edge_index = PATTERNS["undirected"]
    weight = weights_of(edge_index)
    matrix = dense(edge_index, N, weight)
    if symmetric_values:
        weight = (matrix + matrix.t())[edge_index[1], edge_index[0]]
        matrix = matrix + matrix.t()
    adjacency, x = Adjacency(edge_index, N), features().requires_grad_()
    out = Propagation(adjacency, adjacency.order(weight))(x)
    close(torch.autograd.grad(out, x, features(3))[0], matrix.t() @ features(3))


@devices
@halves
def test_half_precision_is_computed_in_single_precision(half: torch.dtype, device: str) -> None:
    """Hop, polynomial and gradients: only features and results are rounded, sums are not."""
    edge_index = HUBS["hubs"]
    adjacency, nodes = Adjacency(edge_index.to(device), HUB_NODES), HUB_NODES
    weight = torch.rand(edge_index.size(1), generator=rng(2)).to(device)
    x, add = (features(seed, 32, nodes).to(device, half) for seed in (1, 3))
    scale, shift = torch.rand(2, 32, generator=rng(5)).to(device)
    hops, polynomials = [], []
    for dtype in (half, torch.float32):
        given = [weight.clone().requires_grad_(), x.to(dtype).requires_grad_(), add.to(dtype).requires_grad_()]
        propagate = gcn_norm(adjacency, given[0], dtype)
        out = propagate(given[1], add=given[2], scale=scale, shift=shift, relu=True)
        hops.append([out, *torch.autograd.grad(out.float().square().sum(), given, retain_graph=True)])
        out = propagate.polynomial(given[1], COEFFICIENTS.to(device))
        polynomials.append([out, *torch.autograd.grad(out.float().square().sum(), given[:2])])
    for in_half, in_single in (*zip(*hops, strict=True), *zip(*polynomials, strict=True)):
        scale_of_it = in_single.abs().max()
        assert in_half.dtype in (half, torch.float32)
        torch.testing.assert_close(in_half.float() / scale_of_it, in_single / scale_of_it, atol=0.01, rtol=0.02)
    for results in (hops, polynomials):
        assert results[0][0].dtype == half
        torch.testing.assert_close(results[0][0], results[1][0].to(half))  # one rounding, at the very end


@halves
def test_degrees_in_half_precision_do_not_stall(half: torch.dtype) -> None:
    star = torch.stack([torch.arange(1, 1001), torch.zeros(1000, dtype=torch.long)])
    loop = gcn_norm(Adjacency(star, 1001), torch.ones(1000, dtype=half), half).loop
    assert loop is not None and float(loop[0]) == pytest.approx(1 / 1001)


@pytest.mark.parametrize("norm, dtype", [(torch.float64, torch.float32), (torch.float32, torch.float64)], ids=str)
def test_features_may_have_another_type_than_the_weights(norm: torch.dtype, dtype: torch.dtype) -> None:
    edge_index = PATTERNS["undirected"]
    weight, x = weights_of(edge_index).to(norm).requires_grad_(), features().to(dtype).requires_grad_()
    out = gcn_norm(Adjacency(edge_index, N), weight, norm)(x)
    expected = dense_norm(dense(edge_index, N, weight)) @ x.double()
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), expected, atol=2e-5, rtol=2e-5)
    grads = (torch.autograd.grad(y.square().sum(), (weight, x)) for y in (out, expected))
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=2e-4)


def test_a_polynomial_asked_for_without_gradients_does_not_lose_them() -> None:
    weight = weights_of(PATTERNS["undirected"]).requires_grad_()
    propagate, c = gcn_norm(Adjacency(PATTERNS["undirected"], N), weight, torch.float64), torch.ones(2).double()
    with torch.no_grad():
        before = propagate.polynomial(features(), c)
    after = propagate.polynomial(features(), c)
    assert after.requires_grad and torch.equal(before, after.detach())


# ---------------------------------------------------------------- the normalisation of GCN


@devices
@dtypes
@pytest.mark.parametrize("weighted", [True, False])
@patterns
def test_gcn_norm(edge_index: Tensor, weighted: bool, dtype: torch.dtype, device: str) -> None:
    weight = weights_of(edge_index) if weighted else None
    adjacency = Adjacency(edge_index.to(device), N)
    propagate = gcn_norm(adjacency, None if weight is None else weight.to(device, dtype), dtype)
    close(propagate(features().to(device, dtype)), dense_norm(dense(edge_index, N, weight)) @ features())
    assert torch.all(propagate.values[adjacency.is_loop] == 0)


@patterns_with_edges
def test_gcn_norm_gradients(edge_index: Tensor) -> None:
    """The gradient also flows through the degrees."""
    adjacency = Adjacency(edge_index, N)
    weight = weights_of(edge_index)
    weight[0] = 0.0
    inputs = (weight.requires_grad_(), features(width=2).requires_grad_())
    assert torch.autograd.gradcheck(lambda w, x: gcn_norm(adjacency, w, torch.float64)(x), inputs)


def test_weights_may_already_be_in_row_order() -> None:
    edge_index = PATTERNS["directed"]
    adjacency, weight = Adjacency(edge_index, N), weights_of(edge_index)
    ordered = normalised(adjacency, adjacency.order(weight))
    assert torch.equal(ordered(features()), gcn_norm(adjacency, weight, torch.float64)(features()))


@dtypes
def test_the_unweighted_normalisation_is_computed_once(dtype: torch.dtype) -> None:
    adjacency = Adjacency(PATTERNS["undirected"], N)
    propagate = gcn_norm(adjacency, None, dtype)
    again = gcn_norm(adjacency, None, dtype)
    assert again.values is propagate.values and again.loop is propagate.loop and again.values.dtype == dtype
    ones = torch.ones(adjacency.row.numel(), dtype=dtype)
    close(propagate.values, gcn_norm(adjacency, ones, dtype).values)


def test_negative_degrees_do_not_become_nan() -> None:
    """Weights of -1 and below: such a node is cut off, as in PyG."""
    edge_index = torch.tensor([[1, 2], [0, 0]])
    weight = torch.tensor([-1.0, -0.5], requires_grad=True)
    out = gcn_norm(Adjacency(edge_index, 3), weight, torch.float32)(torch.ones(3, 2))
    out.sum().backward()
    assert torch.equal(out[0], torch.zeros(2)) and torch.isfinite(weight.grad).all()


def test_inference_mode_leaves_nothing_behind_that_backward_cannot_use() -> None:
    edge_index, x = PATTERNS["directed"].clone(), features().float()
    with torch.inference_mode():
        first = gcn_norm(Adjacency.of(edge_index, N), None, torch.float32)(x)
    h = x.clone().requires_grad_()
    out = gcn_norm(Adjacency.of(edge_index, N), None, torch.float32)(h)
    assert torch.equal(out, first)
    out.square().sum().backward()
    assert torch.isfinite(h.grad).all()


# ---------------------------------------------------------------- how long results are kept


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Inside, objects go only when nobody refers to them any more."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["sorted", "self-loops"])
def test_what_was_made_of_weights_goes_with_them(name: str) -> None:
    adjacency, x = Adjacency(PATTERNS[name], N), features()
    with caching(), without_garbage_collection():
        weight = weights_of(PATTERNS[name])
        propagate = gcn_norm(adjacency, weight, torch.float64)
        assert gcn_norm(adjacency, weight, torch.float64) is propagate
        propagate(x), propagate.polynomial(x, torch.ones(2).double())
        gone = weakref.ref(weight), weakref.ref(propagate)
        del weight, propagate
        assert [ref() for ref in gone] == [None, None]


def test_an_adjacency_and_its_normalisation_do_not_keep_each_other() -> None:
    with without_garbage_collection():
        adjacency = Adjacency(PATTERNS["sorted"], N)
        gcn_norm(adjacency, None, torch.float64)(features().requires_grad_()).sum().backward()
        gone = weakref.ref(adjacency)
        del adjacency
        assert gone() is None


# ---------------------------------------------------------------- personalised PageRank


@devices
@pytest.mark.parametrize("alpha", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("hops", [0, 1, 10])
def test_pagerank_coefficients_are_those_of_the_iteration(hops: int, alpha: float, device: str) -> None:
    matrix, h = dense_norm(dense(PATTERNS["undirected"], N)), features()
    x = h
    for _ in range(hops):
        x = (1 - alpha) * matrix @ x + alpha * h
    coefficients = pagerank(hops, alpha, torch.device(device))
    assert coefficients.device.type == device and float(coefficients.sum()) == pytest.approx(1.0)
    propagate = gcn_norm(Adjacency(PATTERNS["undirected"].to(device), N), None, torch.float64)
    close(propagate.polynomial(h.to(device), coefficients), x)
