"""Attention against its formula written out with dense matrices, and its gradients against finite differences."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.attention import attend
from graphs import DEVICES, directed, rng, undirected

pytestmark = pytest.mark.usefixtures("one_thread")

HUB = torch.stack([torch.arange(1, 301), torch.zeros(300, dtype=torch.long)])
GRAPHS = {
    "directed": (directed(9), 9),
    "undirected": (undirected(9), 9),
    "hubs": (torch.cat([HUB, HUB.flip(0)], dim=1), 301),
    "loops and repeated edges": (torch.tensor([[0, 1, 1, 2, 2, 0], [1, 1, 2, 1, 1, 1]]), 4),
    "no edges": (torch.empty(2, 0, dtype=torch.long), 4),
}
graphs = pytest.mark.parametrize(("edge_index", "nodes"), GRAPHS.values(), ids=GRAPHS)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
devices = pytest.mark.parametrize("device", DEVICES)
SLOPE = 0.2


def inputs(edge_index: Tensor, nodes: int, views: int, heads: int, width: int, far: float = 1.0) -> list[Tensor]:
    """Features, both shares of the scores, and weights of which a third is 0."""
    shape = (nodes, views, heads)
    h = torch.randn(*shape, width, generator=rng(1), dtype=torch.float64)
    source, target = (far * torch.randn(shape, generator=rng(s), dtype=torch.float64) for s in (2, 3))
    weight = torch.rand(views, edge_index.size(1), generator=rng(4), dtype=torch.float64)
    return [h, source, target, weight * (weight > 1 / 3)]


def by_hand(
    edge_index: Tensor, h: Tensor, source: Tensor, target: Tensor, weight: Tensor, slope: float = SLOPE
) -> Tensor:
    """One dense softmax per view and head; weights go into the scores as logarithms."""
    nodes, views, heads, _ = h.shape
    out = []
    for b in range(views):
        dense = torch.eye(nodes, dtype=h.dtype).index_put((edge_index[1], edge_index[0]), weight[b], accumulate=True)
        for k in range(heads):
            score = F.leaky_relu(source[None, :, b, k] + target[:, None, b, k], slope)
            top = score.masked_fill(dense == 0, -torch.inf).amax(1, keepdim=True).detach()
            numerator = dense * (score - top).clamp(max=40.0).exp()
            out.append(numerator / numerator.sum(1, keepdim=True) @ h[:, b, k])
    return torch.stack(out, dim=1).view_as(h)


def ours(edge_index: Tensor, h: Tensor, source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    adjacency = Adjacency.of(edge_index, h.size(0))
    return attend(adjacency, h, source, target, adjacency.order_views(weight), SLOPE)


@devices
@dtypes
@pytest.mark.parametrize("far", [1.0, 30.0], ids=["close scores", "scores far apart"])
@pytest.mark.parametrize(("views", "heads", "width"), [(1, 1, 5), (3, 2, 8), (2, 4, 33), (3, 1, 130), (1, 2, 300)])
@graphs
def test_attention_and_its_gradients_are_the_formula(
    edge_index: Tensor, nodes: int, views: int, heads: int, width: int, far: float, dtype: torch.dtype, device: str
) -> None:
    given = inputs(edge_index, nodes, views, heads, width, far)
    seen = torch.randn(given[0].shape, generator=rng(6), dtype=torch.float64)
    results = []
    for function, kind, where in ((by_hand, torch.float64, "cpu"), (ours, dtype, device)):
        leaves = [t.to(where, kind).requires_grad_() for t in given]
        out = function(edge_index.to(where), *leaves)
        results.append([out, *torch.autograd.grad((out * seen.to(where, kind)).sum(), leaves)])
    for found, wanted in zip(results[1], results[0], strict=True):
        largest = wanted.abs().max().clamp(min=1.0) if wanted.numel() else torch.tensor(1.0)
        tolerance = 1e-10 if dtype == torch.float64 else 2e-4
        torch.testing.assert_close(found.double().cpu() / largest, wanted / largest, atol=tolerance, rtol=tolerance)


def test_gradients_equal_finite_differences() -> None:
    edge_index = directed(9)
    h, source, target, weight = (t.requires_grad_() for t in inputs(edge_index, 9, 2, 2, 3))

    def function(*given: Tensor) -> Tensor:
        return ours(edge_index, *given)

    assert torch.autograd.gradcheck(function, (h, source, target, weight.detach() + 0.1))
    assert torch.autograd.gradcheck(lambda w: function(h.detach(), source.detach(), target.detach(), w), weight)


@devices
@pytest.mark.parametrize("slope", [-10.0, 0.0, 1.0, 10.0])
def test_other_slopes(slope: float, device: str) -> None:
    edge_index = undirected(9)
    h, source, target, weight = inputs(edge_index, 9, 1, 2, 3)
    expected = by_hand(edge_index, h, source, target, weight, slope)
    adjacency = Adjacency(edge_index.to(device), 9)
    given = [t.to(device) for t in (h, source, target, adjacency.order_views(weight.to(device)))]
    torch.testing.assert_close(attend(adjacency, *given, slope).cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_short_floats_are_widened(dtype: torch.dtype) -> None:
    edge_index = undirected(9)
    h, source, target, weight = (t.float() for t in inputs(edge_index, 9, 1, 2, 3))
    out = ours(edge_index, h.to(dtype), source, target, weight)
    assert out.dtype == dtype
    expected = ours(edge_index, h.to(dtype).float(), source, target, weight)
    torch.testing.assert_close(out, expected.to(dtype))


@devices
def test_without_views_it_is_the_first_view(device: str) -> None:
    edge_index = undirected(9).to(device)
    h, source, target, weight = (t.to(device) for t in inputs(edge_index.cpu(), 9, 1, 2, 3))
    out = ours(edge_index, h, source, target, weight)
    alone = ours(edge_index, h[:, 0], source[:, 0], target[:, 0], weight[0])
    torch.testing.assert_close(alone, out[:, 0])
    assert not alone.requires_grad


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
