"""Attention against its formula written out with dense matrices, and its gradients against finite differences."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATConv

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.attention import attend
from support.graphs import directed, rng, undirected
from support.sparse_patterns import devices, dtypes, halves

HUB = torch.stack([torch.arange(1, 301), torch.zeros(300, dtype=torch.long)])
GRAPHS = {
    "directed": (directed(9), 9),
    "undirected": (undirected(9), 9),
    "hubs": (torch.cat([HUB, HUB.flip(0)], dim=1), 301),
    "loops and repeated edges": (torch.tensor([[0, 1, 1, 2, 2, 0], [1, 1, 2, 1, 1, 1]]), 4),
    "no edges": (torch.empty(2, 0, dtype=torch.long), 4),
}
graphs = pytest.mark.parametrize(("edge_index", "nodes"), GRAPHS.values(), ids=GRAPHS)
SLOPE = 0.2


def inputs(edge_index: Tensor, nodes: int, heads: int, width: int, far: float = 1.0) -> list[Tensor]:
    """Features, both shares of the scores, and weights of which a third is 0."""
    h = torch.randn(nodes, heads, width, generator=rng(1), dtype=torch.float64)
    source, target = (far * torch.randn(nodes, heads, generator=rng(s), dtype=torch.float64) for s in (2, 3))
    weight = torch.rand(edge_index.size(1), generator=rng(4), dtype=torch.float64)
    return [h, source, target, weight * (weight > 1 / 3)]


def by_hand(
    edge_index: Tensor, h: Tensor, source: Tensor, target: Tensor, weight: Tensor, slope: float = SLOPE
) -> Tensor:
    """One dense softmax per head."""
    nodes, heads, _ = h.shape
    dense = torch.eye(nodes, dtype=h.dtype).index_put((edge_index[1], edge_index[0]), weight, accumulate=True)
    out = []
    for k in range(heads):
        score = F.leaky_relu(source[None, :, k] + target[:, None, k], slope)
        top = score.masked_fill(dense == 0, -torch.inf).amax(1, keepdim=True).detach()
        numerator = dense * (score - top).clamp(max=40.0).exp()
        out.append(numerator / numerator.sum(1, keepdim=True) @ h[:, k])
    return torch.stack(out, dim=1)


def ours(edge_index: Tensor, h: Tensor, source: Tensor, target: Tensor, weight: Tensor, slope: float = SLOPE) -> Tensor:
    adjacency = Adjacency.of(edge_index, h.size(0))
    return attend(adjacency, h, source, target, adjacency.order(weight), slope)


@devices
@dtypes
@pytest.mark.parametrize("far", [1.0, 30.0], ids=["close scores", "scores far apart"])
@pytest.mark.parametrize(("heads", "width"), [(1, 5), (3, 8), (4, 33), (1, 130), (2, 300)])
@graphs
def test_attention_and_its_gradients_are_the_formula(
    edge_index: Tensor, nodes: int, heads: int, width: int, far: float, dtype: torch.dtype, device: str
) -> None:
    given = inputs(edge_index, nodes, heads, width, far)
    seen = torch.randn(given[0].shape, generator=rng(6), dtype=torch.float64)
    results = []
    for function, kind, where in ((by_hand, torch.float64, "cpu"), (ours, dtype, device)):
        leaves = [t.to(where, kind).requires_grad_() for t in given]
        out = function(edge_index.to(where), *leaves)
        results.append([out, *torch.autograd.grad((out * seen.to(where, kind)).sum(), leaves)])
    for actual, wanted in zip(results[1], results[0], strict=True):
        largest = wanted.abs().max().clamp(min=1.0) if wanted.numel() else torch.tensor(1.0)
        tolerance = 1e-10 if dtype == torch.float64 else 2e-4
        torch.testing.assert_close(actual.double().cpu() / largest, wanted / largest, atol=tolerance, rtol=tolerance)


@devices
@dtypes
def test_a_layer_of_torch_geometric(dtype: torch.dtype, device: str) -> None:
    edge_index = directed(9).to(device)
    conv = GATConv(6, 5, heads=3, bias=False).to(device, dtype).requires_grad_(False)
    x = torch.randn(9, 6, generator=rng(1), dtype=torch.float64).to(device, dtype)
    h = conv.lin(x).view(9, 3, 5)
    source, target = ((h * share).sum(-1) for share in (conv.att_src, conv.att_dst))
    out = ours(edge_index, h, source, target, x.new_ones(edge_index.size(1)), conv.negative_slope)
    torch.testing.assert_close(out.flatten(1), conv(x, edge_index))


@pytest.mark.parametrize("edge_index", [directed(9), undirected(9)], ids=["directed", "undirected"])
def test_gradients_equal_finite_differences(edge_index: Tensor) -> None:
    h, source, target, weight = (t.requires_grad_() for t in inputs(edge_index, 9, 2, 3))

    def function(*given: Tensor) -> Tensor:
        return ours(edge_index, *given)

    assert torch.autograd.gradcheck(function, (h, source, target, weight.detach() + 0.1))
    assert torch.autograd.gradcheck(lambda w: function(h.detach(), source.detach(), target.detach(), w), weight)


@devices
@pytest.mark.parametrize("slope", [-10.0, 0.0, 1.0, 10.0])
def test_other_slopes(slope: float, device: str) -> None:
    edge_index = undirected(9)
    given = inputs(edge_index, 9, 2, 3)
    expected = by_hand(edge_index, *given, slope)
    torch.testing.assert_close(ours(edge_index.to(device), *(t.to(device) for t in given), slope).cpu(), expected)


@devices
@dtypes
@pytest.mark.parametrize(
    "asked", [{"h"}, {"source"}, {"target"}, {"weight"}, {"h", "weight"}], ids=lambda names: " and ".join(sorted(names))
)
def test_gradients_that_are_asked_for_alone(asked: set[str], dtype: torch.dtype, device: str) -> None:
    edge_index = directed(9)
    names, given = ("h", "source", "target", "weight"), inputs(edge_index, 9, 2, 3)

    def gradients(wanted: set[str]) -> dict[str, Tensor]:
        leaves = {name: t.to(device, dtype) for name, t in zip(names, given, strict=True)}
        variables = {name: leaves[name].requires_grad_() for name in sorted(wanted)}
        out = ours(edge_index.to(device), **leaves)
        return dict(zip(variables, torch.autograd.grad(out.square().sum(), [*variables.values()]), strict=True))

    together = gradients(set(names))
    for name, alone in gradients(asked).items():
        torch.testing.assert_close(alone, together[name])


@devices
@halves
def test_half_precision_is_computed_in_single_precision(half: torch.dtype, device: str) -> None:
    edge_index = undirected(9)
    h, source, target, weight = (t.to(device, torch.float32) for t in inputs(edge_index, 9, 2, 3))
    leaf = h.to(half).requires_grad_()
    out = ours(edge_index.to(device), leaf, source, target, weight)
    assert out.dtype == half
    expected = ours(edge_index.to(device), h.to(half).float(), source, target, weight)
    torch.testing.assert_close(out, expected.to(half))
    assert torch.autograd.grad(out.float().sum(), leaf)[0].dtype == half


@devices
def test_nothing_is_kept_without_a_gradient(device: str) -> None:
    edge_index = undirected(9)
    given = (t.to(device, torch.float32) for t in inputs(edge_index, 9, 2, 3))
    assert not ours(edge_index.to(device), *given).requires_grad


@devices
@dtypes
def test_an_absent_edge_with_a_huge_score_changes_nothing(dtype: torch.dtype, device: str) -> None:
    edge_index = torch.tensor([[1, 2, 3], [0, 0, 0]], device=device)
    h = torch.arange(4.0, dtype=dtype, device=device).view(4, 1, 1).requires_grad_()
    source = torch.tensor([0.0, 1.0, 2.0, 1e4], dtype=dtype, device=device).view(4, 1).requires_grad_()
    weight = torch.tensor([1.0, 1.0, 0.0], dtype=dtype, device=device, requires_grad=True)
    target = torch.zeros(4, 1, dtype=dtype, device=device)
    out = ours(edge_index, h, source, target, weight)
    expected = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64).softmax(0) @ torch.arange(3.0, dtype=torch.float64)
    assert float(out[0].detach()) == pytest.approx(float(expected), rel=1e-5)
    assert float(out[3].detach()) == pytest.approx(3.0)
    for grad in torch.autograd.grad(out.square().sum(), [h, source, weight]):
        assert torch.isfinite(grad).all()
