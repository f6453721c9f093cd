"""The reconstruction loss against a loop over edges, and what an edge of weight 0 means to it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.surrogates import Reconstruction
from support.graphs import rng
from support.surrogate_cases import N, graph, model


def slow(z: np.ndarray, edge_index: Tensor, weight: list[float]) -> float:
    """Edge by edge; a zero row has the cosine 0 with every other one."""
    total = norm = 0.0
    for (i, j), w in zip(edge_index.t().tolist(), weight, strict=True):
        length = math.sqrt(z[i] @ z[i]) * math.sqrt(z[j] @ z[j])
        total += w * (1 - (float(z[i] @ z[j]) / length if length > 0 else 0.0))
        norm += w
    return total / norm if norm > 0 else 0.0


class Fixed(nn.Module):
    """Embeds every graph in the same way, so that edges matter to the loss alone."""

    def __init__(self, z: Tensor) -> None:
        super().__init__()
        self.z = z

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.z

    embed = forward


def weights(data: Data, zero: bool = True) -> Tensor:
    weight = torch.rand(data.edge_index.size(1), generator=rng(3), dtype=torch.float64)
    return weight * (torch.arange(weight.numel()) % 3 > 0) if zero else weight


@torch.no_grad()
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", ["gcn", "gat", "appnp"])
def test_it_is_the_formula(name: str, weighted: bool) -> None:
    data, net = graph(), model(name)
    data.edge_weight = weights(data)
    z = net.embed(data.x, data.edge_index, data.edge_weight).numpy()
    counted = data.edge_weight.tolist() if weighted else [1.0] * data.edge_index.size(1)
    terms = Reconstruction(weighted).terms(net, data)
    assert list(terms) == ["reconstruction"]
    assert float(terms["reconstruction"]) == pytest.approx(slow(z, data.edge_index, counted), abs=1e-12)


@torch.no_grad()
def test_without_weights_every_edge_counts_once_in_both_variants() -> None:
    data, net = graph(), model()
    z = net.embed(data.x, data.edge_index).numpy()
    expected = slow(z, data.edge_index, [1.0] * data.edge_index.size(1))
    for weighted in (True, False):
        assert float(Reconstruction(weighted)(net, data)) == pytest.approx(expected, abs=1e-12)


def test_an_edge_of_weight_0_is_not_there_unless_as_released() -> None:
    data = graph()
    net = Fixed(torch.randn(N, 5, generator=rng(1), dtype=torch.float64))
    keep = torch.arange(data.edge_index.size(1)) % 2 == 0
    absent = Data(x=data.x, edge_index=data.edge_index, edge_weight=keep.double())
    removed = Data(x=data.x, edge_index=data.edge_index[:, keep])
    torch.testing.assert_close(Reconstruction()(net, absent), Reconstruction()(net, removed))
    torch.testing.assert_close(Reconstruction(False)(net, absent), Reconstruction()(net, data))
    assert not torch.isclose(Reconstruction()(net, removed), Reconstruction()(net, data))


@pytest.mark.parametrize("weighted", [True, False])
def test_gradients_equal_finite_differences_also_at_weight_0(weighted: bool) -> None:
    data, net = graph(), model().requires_grad_(False)

    def loss(x: Tensor, weight: Tensor) -> Tensor:
        return Reconstruction(weighted)(net, Data(x=x, edge_index=data.edge_index, edge_weight=weight))

    assert torch.autograd.gradcheck(loss, (data.x.requires_grad_(), weights(data).requires_grad_()))


def test_without_edges_it_is_0_and_flat_and_zero_rows_have_no_gradient() -> None:
    z = torch.randn(N, 5, generator=rng(1), dtype=torch.float64)
    z[::2] = 0.0
    z.requires_grad_()
    data = graph()
    for edge_index, weight in (
        (data.edge_index[:, :0], None),
        (data.edge_index, torch.zeros(data.edge_index.size(1), dtype=torch.float64)),
        (data.edge_index, None),
    ):
        loss = Reconstruction()(Fixed(z), Data(x=data.x, edge_index=edge_index, edge_weight=weight))
        (slope,) = torch.autograd.grad(loss, z)
        assert bool(slope.isfinite().all()) and not bool(slope[::2].any())
        is_empty = edge_index.numel() == 0 or weight is not None
        assert (float(loss.detach()) == 0.0 and not bool(slope.any())) == is_empty


def test_half_precision_is_summed_up_in_single() -> None:
    z, data = torch.randn(N, 5, generator=rng(1)), graph()
    half = Reconstruction()(Fixed(z.bfloat16()), data)
    assert half.dtype == torch.float32
    assert float(half) == pytest.approx(float(Reconstruction()(Fixed(z.bfloat16().float()), data)), abs=1e-6)
