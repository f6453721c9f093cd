"""Attention of both kinds against formulas with dense matrices, its gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATConv, GATv2Conv

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.gat import attend
from graphmend.engine.gatv2 import attend_v2
from support.graphs import directed, rng, undirected
from support.sparse_patterns import devices, dtypes, halves

HUB = torch.stack([torch.arange(1, 301), torch.zeros(300, dtype=torch.long)])
GRAPHS = {
    "directed": (directed(9), 9),
    "undirected": (undirected(9), 9),
    "hubs": (torch.cat([HUB, HUB.flip(0)], dim=1), 301),
    "repeated edges": (torch.tensor([[0, 1, 3, 2, 2, 0], [1, 2, 2, 1, 1, 1]]), 4),
    "one edge": (torch.tensor([[2], [0]]), 3),
    "no edges": (torch.empty(2, 0, dtype=torch.long), 4),
}
LOOPS = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 1, 2, 1, 1, 1]])  # and repeated edges
SLOPE = 0.2


class Kind(NamedTuple):
    """What a kind of attention takes before the weights, values first, its scores of all pairs, and its kernel."""

    names: tuple[str, ...]
    learned: tuple[str, ...]  #: what the kernel itself has gradients for
    make: Callable[[int, int, int, float], list[Tensor]]
    scores: Callable[..., Tensor]
    kernel: Callable[..., Tensor]


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=rng(seed), dtype=torch.float64)


def gat_inputs(nodes: int, heads: int, width: int, far: float) -> list[Tensor]:
    """Features, and both shares of the scores."""
    return [normal(1, nodes, heads, width), far * normal(2, nodes, heads), far * normal(3, nodes, heads)]


def gat_scores(head: int, slope: float, h: Tensor, source: Tensor, target: Tensor) -> Tensor:
    return F.leaky_relu(source[None, :, head] + target[:, None, head], slope)


def gat_v2_inputs(nodes: int, heads: int, width: int, far: float) -> list[Tensor]:
    """Both shares of the scores, and the vectors that weigh them."""
    shape = (nodes, heads, width)
    return [normal(1, *shape), normal(2, *shape), far * normal(3, heads, width) / width**0.5]


def gat_v2_scores(head: int, slope: float, left: Tensor, right: Tensor, attention: Tensor) -> Tensor:
    return F.leaky_relu(left[None, :, head] + right[:, None, head], slope) @ attention[head]


GAT = Kind(("h", "source", "target", "weight"), ("h", "source", "target", "weight"), gat_inputs, gat_scores, attend)
GAT_V2 = Kind(
    ("left", "right", "attention", "weight"), ("left", "right", "weight"), gat_v2_inputs, gat_v2_scores, attend_v2
)
KINDS = {"GAT": GAT, "GATv2": GAT_V2}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def inputs(kind: Kind, edge_index: Tensor, nodes: int, heads: int, width: int, far: float = 1.0) -> list[Tensor]:
    """With weights of which a third is 0."""
    weight = torch.rand(edge_index.size(1), generator=rng(4), dtype=torch.float64)
    return [*kind.make(nodes, heads, width, far), weight * (weight > 1 / 3)]


def by_hand(kind: Kind, edge_index: Tensor, *given: Tensor, slope: float = SLOPE) -> Tensor:
    """One dense softmax per head."""
    *tensors, weight = given
    values = tensors[0]
    dense = torch.eye(len(values), dtype=weight.dtype).index_put(
        (edge_index[1], edge_index[0]), weight, accumulate=True
    )
    out = []
    for head in range(values.size(1)):
        score = kind.scores(head, slope, *tensors)
        top = score.masked_fill(dense == 0, -torch.inf).amax(1, keepdim=True).detach()
        numerator = dense * (score - top).clamp(max=40.0).exp()
        out.append(numerator / numerator.sum(1, keepdim=True) @ values[:, head])
    return torch.stack(out, dim=1)


def ours(kind: Kind, edge_index: Tensor, *given: Tensor, slope: float = SLOPE) -> Tensor:
    *tensors, weight = given
    adjacency = Adjacency.of(edge_index, tensors[0].size(0))
    out: Tensor = kind.kernel(adjacency, *tensors, adjacency.order(weight), slope)
    return out


def assert_close(actual: Tensor, wanted: Tensor, tolerance: float) -> None:
    """Up to errors relative to the largest number."""
    largest = wanted.abs().max().clamp(min=1.0) if wanted.numel() else torch.tensor(1.0)
    torch.testing.assert_close(actual.double().cpu() / largest, wanted / largest, atol=tolerance, rtol=tolerance)


def assert_is_the_formula(
    kind: Kind,
    edge_index: Tensor,
    given: list[Tensor],
    learned: tuple[str, ...],
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
    slope: float = SLOPE,
) -> None:
    """The output, and its gradients by what is learned."""
    seen = torch.randn(given[0].shape, generator=rng(6), dtype=torch.float64)
    results = []
    for function, number, where in ((by_hand, torch.float64, "cpu"), (ours, dtype, device)):
        leaves = [t.detach().to(where, number) for t in given]
        wanted = [leaves[kind.names.index(name)].requires_grad_() for name in learned]
        out = function(kind, edge_index.to(where), *leaves, slope=slope)
        results.append([out, *torch.autograd.grad((out * seen.to(where, number)).sum(), wanted)])
    for actual, expected in zip(results[1], results[0], strict=True):
        assert_close(actual, expected, 1e-10 if dtype == torch.float64 else 2e-4)


SIZES = {
    "GAT": ((1, 5), (3, 8), (4, 33), (1, 130), (2, 300)),
    "GATv2": ((1, 1), (1, 5), (4, 8), (2, 33), (1, 130), (1, 260)),
}
CASES = [(name, heads, width, KINDS[name].learned) for name in KINDS for heads, width in SIZES[name]]
CASES.append(("GATv2", 2, 5, GAT_V2.names))  # the vectors can have a gradient, too


@devices
@dtypes
@pytest.mark.parametrize("far", [1.0, 30.0], ids=["close scores", "scores far apart"])
@pytest.mark.parametrize(("name", "heads", "width", "learned"), CASES)
@pytest.mark.parametrize(("edge_index", "nodes"), GRAPHS.values(), ids=GRAPHS)
def test_attention_and_its_gradients_are_the_formula(
    edge_index: Tensor,
    nodes: int,
    name: str,
    heads: int,
    width: int,
    learned: tuple[str, ...],
    far: float,
    dtype: torch.dtype,
    device: str,
) -> None:
    given = inputs(KINDS[name], edge_index, nodes, heads, width, far)
    assert_is_the_formula(KINDS[name], edge_index, given, learned, dtype, device)


@devices
@dtypes
def test_loops_of_a_gat_count_like_any_edge(dtype: torch.dtype, device: str) -> None:
    assert_is_the_formula(GAT, LOOPS, inputs(GAT, LOOPS, 4, 3, 8), GAT.names, dtype, device)


@devices
@kinds
@pytest.mark.parametrize("slope", [-10.0, 0.0, 1.0, 10.0])
def test_other_slopes(slope: float, kind: Kind, device: str) -> None:
    edge_index = undirected(9)
    given = inputs(kind, edge_index, 9, 2, 3)
    assert_is_the_formula(kind, edge_index, given, kind.learned, device=device, slope=slope)


def test_blocks_cut_through_rows_without_a_trace() -> None:
    """Vectors this wide come in blocks of 256 edges; every row has 29."""
    edge_index = directed(30, density=1.1, isolated=0)
    assert edge_index.size(1) > 3 * 256
    assert_is_the_formula(GAT_V2, edge_index, inputs(GAT_V2, edge_index, 30, 1, 4096), GAT_V2.learned)


@devices
@dtypes
@pytest.mark.parametrize("layer", ["GAT", "GATv2", "GATv2 with shared weights"])
def test_a_layer_of_torch_geometric(layer: str, dtype: torch.dtype, device: str) -> None:
    edge_index = directed(9).to(device)
    x = normal(1, 9, 6).to(device, dtype)
    weight = x.new_ones(edge_index.size(1))
    if layer == "GAT":
        conv = GATConv(6, 5, heads=3, bias=False).to(device, dtype).requires_grad_(False)
        h = conv.lin(x).view(9, 3, 5)
        shares = ((h * share).sum(-1) for share in (conv.att_src, conv.att_dst))
        out = ours(GAT, edge_index, h, *shares, weight, slope=conv.negative_slope)
    else:
        is_shared = layer != "GATv2"
        conv = GATv2Conv(6, 5, heads=3, share_weights=is_shared, bias=False).to(device, dtype).requires_grad_(False)
        left = conv.lin_l(x).view(9, 3, 5)
        right = left if is_shared else conv.lin_r(x).view(9, 3, 5)
        out = ours(GAT_V2, edge_index, left, right, conv.att[0], weight, slope=conv.negative_slope)
    torch.testing.assert_close(out.flatten(1), conv(x, edge_index))


@kinds
@pytest.mark.parametrize("edge_index", [directed(9), undirected(9)], ids=["directed", "undirected"])
def test_gradients_equal_finite_differences(edge_index: Tensor, kind: Kind) -> None:
    given = dict(zip(kind.names, inputs(kind, edge_index, 9, 2, 3), strict=True))

    def function(*leaves: Tensor) -> Tensor:
        return ours(kind, edge_index, *{**given, **dict(zip(kind.learned, leaves, strict=True))}.values())

    *others, weight = (given[name].requires_grad_() for name in kind.learned)
    assert torch.autograd.gradcheck(function, (*others, weight.detach() + 0.1))
    assert torch.autograd.gradcheck(lambda w: function(*(t.detach() for t in others), w), weight)


@devices
@dtypes
@kinds
@pytest.mark.parametrize("asked", [{0}, {1}, {2}, {-1}, {0, -1}], ids=str)
def test_gradients_that_are_asked_for_alone(asked: set[int], kind: Kind, dtype: torch.dtype, device: str) -> None:
    edge_index = directed(9)
    given = inputs(kind, edge_index, 9, 2, 3)

    def gradients(wanted: set[str]) -> dict[str, Tensor]:
        leaves = {name: t.to(device, dtype) for name, t in zip(kind.names, given, strict=True)}
        variables = {name: leaves[name].requires_grad_() for name in sorted(wanted)}
        out = ours(kind, edge_index.to(device), *leaves.values())
        return dict(zip(variables, torch.autograd.grad(out.square().sum(), [*variables.values()]), strict=True))

    together = gradients(set(kind.learned))
    for name, alone in gradients({kind.learned[place] for place in asked}).items():
        torch.testing.assert_close(alone, together[name])


@devices
@halves
@kinds
def test_half_precision_is_computed_in_single_precision(kind: Kind, half: torch.dtype, device: str) -> None:
    edge_index = undirected(9)
    values, *others = (t.to(device, torch.float32) for t in inputs(kind, edge_index, 9, 2, 3))
    leaf = values.to(half).requires_grad_()
    out = ours(kind, edge_index.to(device), leaf, *others)
    assert out.dtype == half
    torch.testing.assert_close(out, ours(kind, edge_index.to(device), values.to(half).float(), *others).to(half))
    assert torch.autograd.grad(out.float().sum(), leaf)[0].dtype == half


@devices
@kinds
def test_nothing_is_kept_without_a_gradient(kind: Kind, device: str) -> None:
    edge_index = undirected(9)
    given = (t.to(device, torch.float32) for t in inputs(kind, edge_index, 9, 2, 3))
    assert not ours(kind, edge_index.to(device), *given).requires_grad


@devices
@dtypes
@kinds
def test_an_absent_edge_with_a_huge_score_changes_nothing(kind: Kind, dtype: torch.dtype, device: str) -> None:
    edge_index = torch.tensor([[1, 2, 3], [0, 0, 0]], device=device)
    scores = torch.tensor([0.0, 1.0, 2.0, 1e4], dtype=dtype, device=device)
    if kind is GAT:
        given = [
            torch.arange(4.0, dtype=dtype, device=device).view(4, 1, 1),
            scores.view(4, 1),
            torch.zeros_like(scores).view(4, 1),
        ]
    else:
        given = [scores.view(4, 1, 1), torch.zeros_like(scores).view(4, 1, 1), torch.ones_like(scores[:1]).view(1, 1)]
    given.append(torch.tensor([1.0, 1.0, 0.0], dtype=dtype, device=device))
    leaves = [given[kind.names.index(name)].requires_grad_() for name in kind.learned]
    out = ours(kind, edge_index, *given)
    expected = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64).softmax(0) @ torch.arange(3.0, dtype=torch.float64)
    assert float(out[0].detach()) == pytest.approx(float(expected), rel=1e-5)
    assert float(out[3].detach()) == pytest.approx(float(given[0][3].detach()))
    assert all(bool(grad.isfinite().all()) for grad in torch.autograd.grad(out.square().sum(), leaves))


@devices
@dtypes
@kinds
def test_edges_of_weight_0_and_loops_might_as_well_be_removed(kind: Kind, dtype: torch.dtype, device: str) -> None:
    edge_index = directed(9, loops=True)
    *given, weight = (t.to(device, dtype) for t in inputs(kind, edge_index, 9, 2, 3))
    weight = weight * (edge_index[0] != edge_index[1]).to(device)
    kept = (weight > 0).cpu()
    assert 0 < int(kept.sum()) < kept.numel()
    full = ours(kind, edge_index.to(device), *given, weight)
    less = ours(kind, edge_index[:, kept].to(device), *given, weight[kept.to(device)])
    torch.testing.assert_close(full, less)
    torch.testing.assert_close(full[-1], given[0][-1])  # an isolated node has nobody but itself


# ---------------------------------------------------------------- GATv2 alone


@devices
@dtypes
def test_shared_projections_get_the_sum_of_both_gradients(dtype: torch.dtype, device: str) -> None:
    edge_index = directed(9)
    left, _, attention, weight = inputs(GAT_V2, edge_index, 9, 2, 3)
    expected = by_hand(GAT_V2, edge_index, left.requires_grad_(), left, attention, weight)
    shared = left.detach().to(device, dtype).requires_grad_()
    out = ours(GAT_V2, edge_index.to(device), shared, shared, attention.to(device, dtype), weight.to(device, dtype))
    for actual, wanted in zip(
        (out, *torch.autograd.grad(out.square().sum(), shared)),
        (expected, *torch.autograd.grad(expected.square().sum(), left)),
        strict=True,
    ):
        assert_close(actual, wanted, 1e-10 if dtype == torch.float64 else 1e-5)


@devices
@dtypes
@pytest.mark.parametrize("shift", [0.0, -1.0, 1.0, -2e-20])
def test_at_the_kink_the_slope_is_that_below_zero(shift: float, dtype: torch.dtype, device: str) -> None:
    """Sums of exactly 0 have the slope below zero, sums that are hardly positive that above: as autograd has it."""
    edge_index = torch.tensor([[1, 2, 3], [0, 0, 0]], device=device)
    numbers = torch.tensor([1.0, -1.0, 3e-20, 1e10], dtype=dtype, device=device)
    left, right = numbers.view(4, 1, 1).requires_grad_(), torch.full_like(numbers, shift).view(4, 1, 1).requires_grad_()
    weight = torch.tensor([1.0, 1.0, 0.0], dtype=dtype, device=device)
    attention = torch.full((1, 1), 1e-3, dtype=dtype, device=device)
    results = []
    for vector in (attention, attention.clone().requires_grad_()):  # by the blocks, and by autograd
        out = ours(GAT_V2, edge_index, left, right, vector, weight)
        results.append(torch.autograd.grad(out[0].sum(), [left, right]))
    for blocked, plain in zip(*results, strict=True):
        torch.testing.assert_close(blocked, plain, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("far", [-60.0, 60.0])
def test_what_all_scores_of_a_node_share_does_not_matter(far: float) -> None:
    """The softmax is computed relative to a bound of the scores, which must follow the target, of either sign."""
    edge_index, nodes = GRAPHS["directed"]
    h, source, _ = (tensor.float() for tensor in gat_inputs(nodes, 1, 4, 1.0))
    target, weight = torch.full((nodes, 1), far), torch.ones(edge_index.size(1))
    slope = 1.0  # so that the share is the same for every source
    found = ours(GAT, edge_index, h, source, target, weight, slope=slope)
    expected = ours(GAT, edge_index, h, source, torch.zeros_like(target), weight, slope=slope)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
