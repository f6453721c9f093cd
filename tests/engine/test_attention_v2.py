"""GATv2's attention against its formula written out with dense matrices, its gradients against finite differences."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATv2Conv

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.attention_v2 import attend_v2
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
graphs = pytest.mark.parametrize(("edge_index", "nodes"), GRAPHS.values(), ids=GRAPHS)
SLOPE = 0.2


def inputs(edge_index: Tensor, nodes: int, heads: int, width: int, far: float = 1.0) -> list[Tensor]:
    """Both shares of the scores, the vectors that weigh them, and weights of which a third is 0."""
    shape = (nodes, heads, width)
    left, right = (torch.randn(shape, generator=rng(s), dtype=torch.float64) for s in (1, 2))
    attention = far * torch.randn(heads, width, generator=rng(3), dtype=torch.float64) / width**0.5
    weight = torch.rand(edge_index.size(1), generator=rng(4), dtype=torch.float64)
    return [left, right, attention, weight * (weight > 1 / 3)]


def by_hand(
    edge_index: Tensor, left: Tensor, right: Tensor, attention: Tensor, weight: Tensor, slope: float = SLOPE
) -> Tensor:
    """The scores of all pairs of nodes and one dense softmax per head."""
    nodes = left.size(0)
    dense = torch.eye(nodes, dtype=left.dtype).index_put((edge_index[1], edge_index[0]), weight, accumulate=True)
    out = []
    for l, r, a in zip(left.unbind(1), right.unbind(1), attention, strict=True):  # noqa: E741
        score = F.leaky_relu(l[None, :, :] + r[:, None, :], slope) @ a
        top = score.masked_fill(dense == 0, -torch.inf).amax(1, keepdim=True).detach()
        numerator = dense * (score - top).clamp(max=40.0).exp()
        out.append(numerator / numerator.sum(1, keepdim=True) @ l)
    return torch.stack(out, dim=1)


def ours(
    edge_index: Tensor, left: Tensor, right: Tensor, attention: Tensor, weight: Tensor, slope: float = SLOPE
) -> Tensor:
    adjacency = Adjacency.of(edge_index, left.size(0))
    return attend_v2(adjacency, left, right, attention, adjacency.order(weight), slope)


def assert_close(actual: Tensor, wanted: Tensor, tolerance: float) -> None:
    """Up to errors relative to the largest number."""
    largest = wanted.abs().max().clamp(min=1.0) if wanted.numel() else torch.tensor(1.0)
    torch.testing.assert_close(actual.double().cpu() / largest, wanted / largest, atol=tolerance, rtol=tolerance)


@devices
@dtypes
@pytest.mark.parametrize("far", [1.0, 30.0], ids=["close scores", "scores far apart"])
@pytest.mark.parametrize(("heads", "width"), [(1, 1), (1, 5), (4, 8), (2, 33), (1, 130), (1, 260)])
@graphs
def test_attention_and_its_gradients_are_the_formula(
    edge_index: Tensor, nodes: int, heads: int, width: int, far: float, dtype: torch.dtype, device: str
) -> None:
    given = inputs(edge_index, nodes, heads, width, far)
    compare_gradients(edge_index, given, [0, 1, 3], dtype, device)


@devices
@dtypes
@graphs
def test_the_attention_vectors_can_have_a_gradient_too(
    edge_index: Tensor, nodes: int, dtype: torch.dtype, device: str
) -> None:
    compare_gradients(edge_index, inputs(edge_index, nodes, 2, 5), [0, 1, 2, 3], dtype, device)


def compare_gradients(
    edge_index: Tensor, given: list[Tensor], variables: list[int], dtype: torch.dtype, device: str
) -> None:
    seen = torch.randn(given[0].shape, generator=rng(6), dtype=torch.float64)
    results = []
    for function, kind, where in ((by_hand, torch.float64, "cpu"), (ours, dtype, device)):
        leaves = [t.to(where, kind) for t in given]
        wanted = [leaves[k].requires_grad_() for k in variables]
        out = function(edge_index.to(where), *leaves)
        results.append([out, *torch.autograd.grad((out * seen.to(where, kind)).sum(), wanted)])
    for actual, expected in zip(results[1], results[0], strict=True):
        assert_close(actual, expected, 1e-10 if dtype == torch.float64 else 2e-4)


@devices
@dtypes
@pytest.mark.parametrize("share_weights", [False, True])
def test_a_layer_of_torch_geometric(share_weights: bool, dtype: torch.dtype, device: str) -> None:
    edge_index = directed(9).to(device)
    conv = GATv2Conv(6, 5, heads=3, share_weights=share_weights, bias=False).to(device, dtype).requires_grad_(False)
    x = torch.randn(9, 6, generator=rng(1), dtype=torch.float64).to(device, dtype)
    left = conv.lin_l(x).view(9, 3, 5)
    right = left if share_weights else conv.lin_r(x).view(9, 3, 5)
    out = ours(edge_index, left, right, conv.att[0], x.new_ones(edge_index.size(1)), conv.negative_slope)
    torch.testing.assert_close(out.flatten(1), conv(x, edge_index))


@pytest.mark.parametrize("edge_index", [directed(9), undirected(9)], ids=["directed", "undirected"])
def test_gradients_equal_finite_differences(edge_index: Tensor) -> None:
    left, right, attention, weight = inputs(edge_index, 9, 2, 3)

    def function(left: Tensor, right: Tensor, weight: Tensor) -> Tensor:
        return ours(edge_index, left, right, attention, weight)

    leaves = [t.requires_grad_() for t in (left, right, weight + 0.1)]
    assert torch.autograd.gradcheck(function, leaves)
    assert torch.autograd.gradcheck(lambda w: function(left.detach(), right.detach(), w), weight.requires_grad_())


@devices
@dtypes
def test_shared_projections_get_the_sum_of_both_gradients(dtype: torch.dtype, device: str) -> None:
    edge_index = directed(9)
    left, _, attention, weight = inputs(edge_index, 9, 2, 3)
    expected = by_hand(edge_index, left.requires_grad_(), left, attention, weight)
    shared = left.detach().to(device, dtype).requires_grad_()
    out = ours(edge_index.to(device), shared, shared, attention.to(device, dtype), weight.to(device, dtype))
    for actual, wanted in zip(
        (out, *torch.autograd.grad(out.square().sum(), shared)),
        (expected, *torch.autograd.grad(expected.square().sum(), left)),
        strict=True,
    ):
        assert_close(actual, wanted, 1e-10 if dtype == torch.float64 else 1e-5)


@devices
@dtypes
def test_edges_of_weight_0_and_loops_might_as_well_be_removed(dtype: torch.dtype, device: str) -> None:
    edge_index = directed(9, loops=True)
    left, right, attention, weight = (t.to(dtype) for t in inputs(edge_index, 9, 2, 3))
    weight = weight * (edge_index[0] != edge_index[1])
    kept = weight > 0
    assert 0 < int(kept.sum()) < kept.numel()
    full = ours(edge_index.to(device), *(t.to(device) for t in (left, right, attention, weight)))
    less = ours(edge_index[:, kept].to(device), *(t.to(device) for t in (left, right, attention, weight[kept])))
    torch.testing.assert_close(full, less)
    torch.testing.assert_close(full[-1].cpu(), left[-1])  # an isolated node has nobody but itself


@devices
@pytest.mark.parametrize("slope", [-10.0, 0.0, 1.0, 10.0])
def test_other_slopes(slope: float, device: str) -> None:
    edge_index = undirected(9)
    left, right, attention, weight = inputs(edge_index, 9, 2, 3)
    leaves = [t.requires_grad_() for t in (left, right, weight)]
    expected = by_hand(edge_index, left, right, attention, weight, slope)
    wanted = torch.autograd.grad(expected.square().sum(), leaves)
    leaves = [t.detach().to(device).requires_grad_() for t in leaves]
    left, right, weight = leaves
    out = ours(edge_index.to(device), left, right, attention.to(device), weight, slope)
    torch.testing.assert_close(out.cpu(), expected)
    for actual, grad in zip(torch.autograd.grad(out.square().sum(), leaves), wanted, strict=True):
        torch.testing.assert_close(actual.cpu(), grad)


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
        out = ours(edge_index, left, right, vector, weight)
        results.append(torch.autograd.grad(out[0].sum(), [left, right]))
    for blocked, plain in zip(*results, strict=True):
        torch.testing.assert_close(blocked, plain, rtol=1e-4, atol=1e-9)


def test_blocks_cut_through_rows_without_a_trace() -> None:
    """Vectors this wide come in blocks of 256 edges; every row has 29."""
    edge_index = directed(30, density=1.1, isolated=0)
    assert edge_index.size(1) > 3 * 256
    compare_gradients(edge_index, inputs(edge_index, 30, 1, 4096), [0, 1, 3], torch.float64, "cpu")


@devices
@dtypes
@pytest.mark.parametrize(
    "asked", [{"left"}, {"right"}, {"weight"}, {"left", "weight"}], ids=lambda names: " and ".join(sorted(names))
)
def test_gradients_that_are_asked_for_alone(asked: set[str], dtype: torch.dtype, device: str) -> None:
    edge_index = directed(9)
    names, given = ("left", "right", "weight"), inputs(edge_index, 9, 2, 3)
    attention = given.pop(2).to(device, dtype)

    def gradients(wanted: set[str]) -> dict[str, Tensor]:
        leaves = {name: t.to(device, dtype) for name, t in zip(names, given, strict=True)}
        variables = {name: leaves[name].requires_grad_() for name in sorted(wanted)}
        out = ours(edge_index.to(device), attention=attention, **leaves)
        return dict(zip(variables, torch.autograd.grad(out.square().sum(), [*variables.values()]), strict=True))

    together = gradients(set(names))
    for name, alone in gradients(asked).items():
        torch.testing.assert_close(alone, together[name])


@devices
@halves
def test_half_precision_is_computed_in_single_precision(half: torch.dtype, device: str) -> None:
    edge_index = undirected(9)
    left, right, attention, weight = (t.to(device, torch.float32) for t in inputs(edge_index, 9, 2, 3))
    leaf = left.to(half).requires_grad_()
    out = ours(edge_index.to(device), leaf, right, attention, weight)
    assert out.dtype == half
    expected = ours(edge_index.to(device), left.to(half).float(), right, attention, weight)
    torch.testing.assert_close(out, expected.to(half))
    assert torch.autograd.grad(out.float().sum(), leaf)[0].dtype == half


@devices
@dtypes
def test_an_absent_edge_with_a_huge_score_changes_nothing(dtype: torch.dtype, device: str) -> None:
    edge_index = torch.tensor([[1, 2, 3], [0, 0, 0]], device=device)
    left = torch.tensor([0.0, 1.0, 2.0, 1e4], dtype=dtype, device=device).view(4, 1, 1).requires_grad_()
    right = torch.zeros(4, 1, 1, dtype=dtype, device=device, requires_grad=True)
    weight = torch.tensor([1.0, 1.0, 0.0], dtype=dtype, device=device, requires_grad=True)
    out = ours(edge_index, left, right, torch.ones(1, 1, dtype=dtype, device=device), weight)
    expected = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64).softmax(0) @ torch.arange(3.0, dtype=torch.float64)
    assert float(out[0].detach()) == pytest.approx(float(expected), rel=1e-5)
    assert float(out[3].detach()) == pytest.approx(1e4)
    for grad in torch.autograd.grad(out.square().sum(), [left, right, weight]):
        assert torch.isfinite(grad).all()


@devices
def test_nothing_is_kept_without_a_gradient(device: str) -> None:
    edge_index = undirected(9).to(device)
    given = (t.to(device, torch.float32) for t in inputs(undirected(9), 9, 2, 3))
    assert not ours(edge_index, *given).requires_grad
