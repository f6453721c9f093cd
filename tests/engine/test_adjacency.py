"""The sparse kernels against dense float64 algebra, and the cache of sorted edge lists."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from graphmend.engine import adjacency as sparse
from graphmend.engine import propagation
from graphmend.engine.adjacency import Adjacency, column_sums, edge_softmax, head_sum, row_sum, spmm, spread
from graphmend.engine.cache import remembering
from graphmend.engine.ops import row_products
from graphmend.engine.propagation import Propagation, gcn_norm
from graphs import DEVICES, dense, dense_norm, directed, rng, undirected

pytestmark = pytest.mark.usefixtures("one_thread")

N, WIDTH = 9, 4
PATTERNS = {
    "directed": directed(N),
    "undirected": undirected(N),
    "self-loops": directed(N, loops=True),
    "undirected with self-loops": undirected(N, loops=True),
    "dense": directed(N, density=1.1, isolated=0, loops=True),
    "sorted": torch.tensor([[1, 2, 0, 4], [0, 0, 3, 5]]),
    "duplicates": torch.tensor([[1, 1, 0, 1, 4, 4], [2, 2, 3, 2, 4, 4]]),
    "one edge": torch.tensor([[8], [0]]),
    "no edges": torch.empty(2, 0, dtype=torch.long),
}
patterns = pytest.mark.parametrize("edge_index", PATTERNS.values(), ids=PATTERNS)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
devices = pytest.mark.parametrize("device", DEVICES)
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


def values_of(edge_index: Tensor, seed: int = 1) -> Tensor:
    return torch.randn(edge_index.size(1), generator=rng(seed), dtype=torch.float64)


def weights_of(edge_index: Tensor, seed: int = 1) -> Tensor:
    return torch.rand(edge_index.size(1), generator=rng(seed), dtype=torch.float64) + 0.1


def features(seed: int = 2, width: int = WIDTH) -> Tensor:
    return torch.randn(N, width, generator=rng(seed), dtype=torch.float64)


def close(actual: Tensor, expected: Tensor) -> None:
    tolerance = TOLERANCE[actual.dtype]
    torch.testing.assert_close(actual.double().cpu(), expected.double().cpu(), atol=tolerance, rtol=tolerance)


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
@patterns
def test_only_the_gradients_asked_for(edge_index: Tensor, dtype: torch.dtype) -> None:
    if not edge_index.size(1):
        return
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


@patterns
def test_spmm_gradients_equal_finite_differences(edge_index: Tensor) -> None:
    adjacency = Adjacency(edge_index, N)
    if edge_index.size(1):
        inputs = (values_of(edge_index).requires_grad_(), features(width=2).requires_grad_())
        assert torch.autograd.gradcheck(lambda v, x: spmm(adjacency, adjacency.order(v), x), inputs)


@dtypes
def test_without_edges_everything_is_zero(dtype: torch.dtype) -> None:
    adjacency = Adjacency(PATTERNS["no edges"], N)
    x, none = features().to(dtype), torch.empty(0, dtype=dtype)
    assert torch.equal(spmm(adjacency, none, x), torch.zeros(N, WIDTH, dtype=dtype))
    assert torch.equal(row_sum(adjacency, none), torch.zeros(N, dtype=dtype))
    assert torch.equal(gcn_norm(adjacency, none, dtype)(x), x)  # nothing but the self-loops
    attention, loop = edge_softmax(adjacency, none.view(0, 2), none, torch.zeros(N, 2, dtype=dtype))
    assert attention.shape == (0, 2) and loop is not None and torch.equal(loop, torch.ones(N, 2, dtype=dtype))


@devices
@dtypes
@patterns
def test_row_sum(edge_index: Tensor, dtype: torch.dtype, device: str) -> None:
    adjacency = Adjacency(edge_index.to(device), N)
    heads = torch.stack([values_of(edge_index), values_of(edge_index, 5)], dim=1)
    expected = torch.stack([dense(edge_index, N, heads[:, k]).sum(1) for k in range(2)], dim=1)
    ordered = adjacency.order(heads.to(device, dtype))
    close(head_sum(adjacency, ordered), expected)
    close(row_sum(adjacency, ordered.t()), expected.t())
    close(row_sum(adjacency, ordered[:, 0]), expected[:, 0])


@patterns
def test_row_sum_gradients(edge_index: Tensor) -> None:
    adjacency = Adjacency(edge_index, N)
    if edge_index.size(1):
        values = values_of(edge_index).requires_grad_()
        assert torch.autograd.gradcheck(lambda v: row_sum(adjacency, adjacency.order(v)).square(), values)
        heads = torch.stack([values, 2 * values], dim=1).detach().requires_grad_()
        assert torch.autograd.gradcheck(lambda v: head_sum(adjacency, adjacency.order(v)).square(), heads)
        nodes = features().t().contiguous().requires_grad_()
        assert torch.autograd.gradcheck(lambda v: spread(adjacency, v).square(), nodes)


def test_sums_in_bfloat16_do_not_stall() -> None:
    star = torch.stack([torch.arange(1, 1001), torch.zeros(1000, dtype=torch.long)])
    adjacency, ones = Adjacency(star, 1001), torch.ones(1000, dtype=torch.bfloat16)
    assert float(row_sum(adjacency, ones)[0]) == float(head_sum(adjacency, ones.view(-1, 1))[0]) == 1000
    loop = gcn_norm(adjacency, ones, torch.bfloat16).loop
    assert loop is not None and float(loop[0]) == pytest.approx(1 / 1001)


@devices
@pytest.mark.parametrize("views", [1, 3])
def test_features_in_bfloat16_beside_values_in_single_precision(views: int, device: str) -> None:
    """A hop, its gradients and those of the edges: sums are taken in single precision, only features are rounded."""
    nodes, adjacency = 300, Adjacency(HUB.to(device), 300)
    x = torch.randn(nodes, views, 32, generator=rng(1)).bfloat16()
    weight = torch.rand(views, HUB.size(1), generator=rng(2))
    if views == 1:
        x, weight = x[:, 0], weight[0]
    found = []
    for dtype in (torch.bfloat16, torch.float32):
        given = [weight.to(device).requires_grad_(), x.to(device, dtype).requires_grad_()]
        out = gcn_norm(adjacency, given[0], torch.float32)(given[1], relu=True)
        assert out.dtype == dtype
        found.append([out, *torch.autograd.grad(out.float().square().sum(), given)])
    for half, whole in zip(*found, strict=True):
        scale = whole.abs().max()
        torch.testing.assert_close(half.float() / scale, whole / scale, atol=0.01, rtol=0.02)


HUB = torch.stack([torch.arange(600) % 300, torch.arange(600) // 300 * 7])  # nodes 0 and 7 have 300 neighbours each
WIDE_PATTERNS = {"hubs": HUB, "hubs and loops": torch.cat([HUB, HUB.flip(0), torch.arange(300).repeat(2, 1)], dim=1)}


@devices
@dtypes
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("width", [1, 32, 40, 130])
@pytest.mark.parametrize("views", [1, 2, 3])
@pytest.mark.parametrize("edge_index", WIDE_PATTERNS.values(), ids=WIDE_PATTERNS)
def test_views_side_by_side_are_what_each_is_alone(
    edge_index: Tensor, views: int, width: int, relu: bool, dtype: torch.dtype, device: str
) -> None:
    """Normalisation, a hop with everything around it, a polynomial, and all gradients, against dense float64."""
    nodes = 300
    weight = torch.rand(views, edge_index.size(1), generator=rng(1), dtype=torch.float64)
    x, add, seen = (torch.randn(nodes, views, width, generator=rng(s), dtype=torch.float64) for s in (2, 3, 4))
    scale, shift = torch.rand(2, width, generator=rng(5), dtype=torch.float64)
    c = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)

    def expected(weight: Tensor, x: Tensor, add: Tensor) -> Tensor:
        out = []
        for b in range(views):
            a = dense_norm(dense(edge_index, nodes, weight[b]))
            hop = (a @ x[:, b] + add[:, b]) * scale + shift
            hop = hop.relu() if relu else hop
            out.append(c[0] * hop + c[1] * (a @ hop) + c[2] * (a @ (a @ hop)))
        return torch.stack(out, dim=1)

    def ours(weight: Tensor, x: Tensor, add: Tensor) -> Tensor:
        a = gcn_norm(adjacency, weight, dtype)
        hop = a(x, add=add, scale=scale.to(x), shift=shift.to(x), relu=relu)
        return a.polynomial(hop, c.to(x))

    adjacency = Adjacency(edge_index.to(device), nodes)
    results = []
    for function, kind, where in ((expected, torch.float64, "cpu"), (ours, dtype, device)):
        given = [t.detach().to(where, kind).requires_grad_() for t in (weight, x, add)]
        out = function(*given)
        results.append([out, *torch.autograd.grad((out * seen.to(where, kind)).sum(), given)])
    tolerance = 1e-10 if dtype == torch.float64 else 2e-4
    for found, wanted in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(found.double().cpu(), wanted, atol=tolerance, rtol=tolerance)
    alone = Propagation(adjacency, adjacency.order(weight[0].to(device, dtype)))(x[:, 0].to(device, dtype))
    close(alone / alone.abs().max(), dense(edge_index, nodes, weight[0]) @ x[:, 0] / alone.abs().max().cpu())


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


@dtypes
@pytest.mark.parametrize("learned", ["features", "features and weights"])
@pytest.mark.parametrize("relu", [True, False])
@patterns
def test_wide_graphs_scale_rows_instead_of_entries(
    edge_index: Tensor, relu: bool, learned: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hop with everything around it, and a polynomial, with all gradients."""
    monkeypatch.setattr(propagation, "WIDE", 0)
    adjacency, c = Adjacency(edge_index, N), torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    scale, shift = torch.rand(2, WIDTH, generator=rng(5), dtype=torch.float64)

    def expected(x: Tensor, add: Tensor, weight: Tensor) -> Tensor:
        a = dense_norm(dense(edge_index, N, weight))
        out = (a @ x + add) * scale + shift
        out = out.relu() if relu else out
        return c[0] * out + c[1] * (a @ out) + c[2] * (a @ a @ out)

    def ours(x: Tensor, add: Tensor, weight: Tensor) -> Tensor:
        propagate = gcn_norm(adjacency, weight, dtype)
        assert propagate.outer is not None
        return propagate.polynomial(propagate(x, add=add, scale=scale.to(x), shift=shift.to(x), relu=relu), c.to(x))

    found = []
    for function, kind in ((expected, torch.float64), (ours, dtype)):
        given = [tensor.to(kind).requires_grad_() for tensor in (features(2), features(3), weights_of(edge_index))]
        if learned == "features":
            given[2].requires_grad_(False)
        out = function(*given)
        wanted = [tensor for tensor in given if tensor.requires_grad]
        found.append([out, *torch.autograd.grad((out * features(4).to(kind)).sum(), wanted)])
    for actual, wanted in zip(found[1], found[0], strict=True):
        close(actual, wanted)


def wide_and_small(
    monkeypatch: pytest.MonkeyPatch, weight: Tensor, x: Tensor, norm: torch.dtype
) -> list[tuple[Tensor, ...]]:
    """Results and gradients of a hop and a polynomial: of a wide graph, and of one that is not."""
    found = []
    for nodes in (0, N):
        monkeypatch.setattr(propagation, "WIDE", nodes)
        given = [weight.clone().requires_grad_(), x.clone().requires_grad_()]
        propagate = gcn_norm(Adjacency(PATTERNS["undirected"], N), given[0], norm)
        assert (propagate.outer is not None) == (nodes == 0)
        hop, many = propagate(given[1]), propagate.polynomial(given[1], torch.tensor([0.5, 0.3, 0.2]).to(x))
        assert hop.dtype == many.dtype == x.dtype
        found.append((hop, many, *torch.autograd.grad(hop.square().sum() + many.square().sum(), given)))
    return found


@pytest.mark.parametrize("norm, dtype", [(torch.float64, torch.float32), (torch.float32, torch.float64)], ids=str)
def test_wide_graphs_take_features_of_another_type(
    norm: torch.dtype, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = weights_of(PATTERNS["undirected"])
    for wide, small in zip(*wide_and_small(monkeypatch, weight.to(norm), features().to(dtype), norm), strict=True):
        torch.testing.assert_close(wide, small, atol=2e-5, rtol=2e-5)


def test_wide_graphs_take_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = weights_of(PATTERNS["undirected"]).float()
    for wide, small in zip(*wide_and_small(monkeypatch, weight, features().bfloat16(), torch.float32), strict=True):
        scale = small.abs().max().float()
        torch.testing.assert_close(wide.float() / scale, small.float() / scale, atol=0.02, rtol=0.02)


def test_wide_graphs_take_several_views(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.stack([weights_of(PATTERNS["undirected"], seed) for seed in (1, 6)])
    x = torch.stack([features(2), features(3)], dim=1)
    for wide, small in zip(*wide_and_small(monkeypatch, weight, x, torch.float64), strict=True):
        torch.testing.assert_close(wide, small)


def test_wide_graphs_cut_nodes_of_negative_degree_off(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = weights_of(PATTERNS["undirected"])
    weight[PATTERNS["undirected"][1] == PATTERNS["undirected"][1, 0]] = -1.5
    for wide, small in zip(*wide_and_small(monkeypatch, weight, features(), torch.float64), strict=True):
        assert torch.isfinite(wide).all()
        torch.testing.assert_close(wide, small)


def test_a_polynomial_asked_for_without_gradients_does_not_lose_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propagation, "WIDE", 0)
    weight = weights_of(PATTERNS["undirected"]).requires_grad_()
    propagate, c = gcn_norm(Adjacency(PATTERNS["undirected"], N), weight, torch.float64), torch.ones(2).double()
    with torch.no_grad():
        before = propagate.polynomial(features(), c)
    after = propagate.polynomial(features(), c)
    assert after.requires_grad and torch.equal(before, after.detach())


@pytest.mark.parametrize("name", ["sorted", "self-loops"])
def test_a_wide_graph_forgets_weights_that_are_gone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propagation, "WIDE", 0)
    adjacency, x = Adjacency(PATTERNS[name], N), features()
    with remembering(), nothing_collected():
        weight = weights_of(PATTERNS[name])
        out = gcn_norm(adjacency, weight, torch.float64)
        assert gcn_norm(adjacency, weight, torch.float64) is out
        out(x), out.polynomial(x, torch.ones(2).double())
        gone = weakref.ref(weight), weakref.ref(out)
        del weight, out
        assert [ref() for ref in gone] == [None, None]


def test_multiplying_out_what_is_multiplied_out_makes_no_cycle() -> None:
    with nothing_collected():
        propagate = gcn_norm(Adjacency(PATTERNS["sorted"], N), weights_of(PATTERNS["sorted"]), torch.float64)
        assert propagate.multiplied_out is propagate
        gone = weakref.ref(propagate)
        del propagate
        assert gone() is None


@contextmanager
def nothing_collected() -> Iterator[None]:
    """What goes in here goes by itself."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@devices
@dtypes
@patterns
def test_column_sums(edge_index: Tensor, dtype: torch.dtype, device: str) -> None:
    adjacency, values = Adjacency(edge_index.to(device), N), values_of(edge_index)
    found = column_sums(adjacency, adjacency.order(values.to(device, dtype)))
    close(found, dense(edge_index, N, values).sum(0))


@patterns
def test_gcn_norm_gradients(edge_index: Tensor) -> None:
    """The gradient also flows through the degrees."""
    if not edge_index.size(1):
        return
    adjacency = Adjacency(edge_index, N)
    weight = weights_of(edge_index)
    weight[0] = 0.0
    inputs = (weight.requires_grad_(), features(width=2).requires_grad_())
    assert torch.autograd.gradcheck(lambda w, x: gcn_norm(adjacency, w, torch.float64)(x), inputs)


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
        close(head_sum(adjacency, attention) + own, torch.ones(N, 3))


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


def test_rows_are_sorted_and_order_says_how() -> None:
    edge_index = PATTERNS["directed"]
    adjacency = Adjacency(edge_index, N)
    assert adjacency.perm is not None
    order = adjacency.order(torch.arange(edge_index.size(1)))
    assert torch.equal(edge_index[1][order], adjacency.row.long()) and torch.equal(
        edge_index[0][order], adjacency.col.long()
    )
    assert sorted(zip(adjacency.row.tolist(), adjacency.col.tolist(), strict=True)) == list(
        zip(adjacency.row.tolist(), adjacency.col.tolist(), strict=True)
    )
    in_order = Adjacency(PATTERNS["sorted"], N)
    values = torch.arange(4.0)
    assert in_order.perm is None and in_order.order(values) is values


def test_symmetry_is_seen() -> None:
    assert Adjacency(PATTERNS["undirected with self-loops"], N).is_symmetric
    assert not Adjacency(PATTERNS["directed"], N).is_symmetric
    same_degrees = torch.tensor([[0, 1, 2], [1, 2, 0]])  # a circle: in- and out-degrees agree, the pattern does not
    assert not Adjacency(same_degrees, 3).is_symmetric


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
def test_the_index_type_of_the_edge_list_does_not_matter(index: torch.dtype) -> None:
    """With 100,000 nodes, target * nodes + source does not fit into 32 bits."""
    n = 100_000
    edge_index = torch.randint(n, (2, 200), generator=rng())
    adjacency = Adjacency(edge_index.to(index), n)
    assert adjacency.crow.dtype == adjacency.col.dtype == torch.int32
    x = torch.randn(n, 2, generator=rng(1))
    expected = torch.zeros(n, 2).index_add(0, edge_index[1], x[edge_index[0]])
    torch.testing.assert_close(spmm(adjacency, torch.ones(200), x), expected)


def test_the_cache_returns_the_same_object_for_the_same_tensor() -> None:
    edge_index = directed(N, 11)
    adjacency = Adjacency.of(edge_index, N)
    assert Adjacency.of(edge_index, N) is adjacency
    assert Adjacency.of(edge_index.clone(), N) is not adjacency
    assert Adjacency.of(edge_index, N + 1).num_nodes == N + 1


def test_the_cache_notices_changes_in_place() -> None:
    edge_index = directed(N, 12)
    x = features()
    before = Adjacency.of(edge_index, N)
    edge_index[:, 0] = torch.tensor([0, 8])
    after = Adjacency.of(edge_index, N)
    assert after is not before and Adjacency.of(edge_index, N) is after
    ones = torch.ones(edge_index.size(1), dtype=torch.float64)
    close(spmm(after, ones, x), dense(edge_index, N) @ x)


def test_the_cache_forgets_tensors_that_are_gone() -> None:
    edge_index = directed(N, 13)
    adjacency = weakref.ref(Adjacency.of(edge_index, N))
    edge_index[:, 0] = torch.tensor([0, 8])
    adjacency_after = weakref.ref(Adjacency.of(edge_index, N))
    key = id(edge_index)
    assert key in sparse._CACHE and adjacency() is None
    del edge_index
    gc.collect()
    assert key not in sparse._CACHE and adjacency_after() is None


def test_inference_mode_leaves_nothing_behind_that_backward_cannot_use() -> None:
    edge_index, x = directed(N, 14), features().float()
    with torch.inference_mode():
        first = gcn_norm(Adjacency.of(edge_index, N), None, torch.float32)(x)
    h = x.clone().requires_grad_()
    out = gcn_norm(Adjacency.of(edge_index, N), None, torch.float32)(h)
    assert torch.equal(out, first)
    out.square().sum().backward()
    assert torch.isfinite(h.grad).all()
    with torch.inference_mode():
        inside = directed(N, 14)
        assert torch.equal(gcn_norm(Adjacency.of(inside, N), None, torch.float32)(x), first)
    h.grad = None
    gcn_norm(Adjacency.of(inside, N), None, torch.float32)(h).square().sum().backward()  # an inference tensor, outside
    assert torch.isfinite(h.grad).all()


def test_products_of_many_rows() -> None:
    left, right = (torch.randn(70_000, 8, generator=rng(seed), dtype=torch.float64) for seed in (1, 2))
    torch.testing.assert_close(row_products(left, right), (left * right).sum(-1))
    assert row_products(left[:0], right[:0]).shape == (0,)
