"""Several views of a graph in one pass through a model are what each of them is alone."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.nn import BACKBONES, build
from graphmend.nn.layers import takes_views
from graphmend.rows import Rows
from graphmend.side_by_side import SideBySide, embeddings
from graphmend.transforms import DropEdge, Shuffle
from graphs import DEVICES, rng, undirected

pytestmark = pytest.mark.usefixtures("one_thread")

N, IN = 12, 5
backbones = pytest.mark.parametrize("name", BACKBONES)
devices = pytest.mark.parametrize("device", DEVICES)


class Takes(nn.Module):
    """A backbone that says it takes views, as the frozen model does on a GPU."""

    takes_views = True

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model.eval().requires_grad_(False)
        self.shapes: list[tuple[int, ...]] = []

    def embed(self, x: Tensor, edge_index: Tensor, weight: Tensor | None) -> Tensor:
        self.shapes.append(tuple(x.shape))
        out: Tensor = self.model.embed(x, edge_index, weight)
        return out


def made(name: str, device: str, dtype: torch.dtype) -> Takes:
    torch.manual_seed(1)
    return Takes(build(name, IN, 8, 3, num_layers=3, batch_norm=True).to(device, dtype))


def views(device: str, dtype: torch.dtype, rows: bool = True) -> tuple[Tensor, Tensor, list[Data]]:
    """The leaves and the three graphs of a loss."""
    edge_index = undirected(N).to(device)
    x = torch.randn(N, IN, generator=rng(), dtype=torch.float64).to(device, dtype).requires_grad_()
    weight = torch.rand(edge_index.size(1), generator=rng(2), dtype=torch.float64).to(device, dtype).requires_grad_()
    data = Data(x=Rows.of(x) if rows else x, edge_index=edge_index, edge_weight=weight)
    generator = torch.Generator(device).manual_seed(3)
    return x, weight, [data, DropEdge(0.3)(data, generator), Shuffle()(data, generator)]


@devices
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@backbones
def test_each_view_is_what_it_is_alone(name: str, dtype: torch.dtype, device: str) -> None:
    model = made(name, device, dtype)
    found = []
    for rows in (True, False):
        x, weight, graphs = views(device, dtype, rows)
        z = embeddings(model, graphs)
        loss = sum((part * (k + 1)).sin().sum() for k, part in enumerate(z))
        by_edge = torch.autograd.grad(loss, weight, retain_graph=True)[0]
        by_row = graphs[0].x.gradient(loss).rows(0, N) if rows else torch.autograd.grad(loss, x)[0]
        found.append([*z, by_edge, by_row])
    assert model.shapes == [(N, 3, IN), *[(N, IN)] * 3]
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    for one, alone in zip(*found, strict=True):
        torch.testing.assert_close(one, alone, atol=tolerance, rtol=tolerance)


def test_graphs_that_differ_go_through_one_by_one() -> None:
    model = made("gcn", "cpu", torch.float64)
    _, _, graphs = views("cpu", torch.float64)
    graphs[1].edge_index = graphs[1].edge_index.clone()
    embeddings(model, graphs)
    _, _, graphs = views("cpu", torch.float64)
    for graph in graphs:
        graph.edge_weight = None
    embeddings(model, graphs)
    model.takes_views = False
    embeddings(model, views("cpu", torch.float64)[2])
    assert model.shapes == [(N, IN)] * 9


def test_what_takes_views() -> None:
    """Hooks would see another shape; statistics over the nodes would mix the views."""
    for name in BACKBONES:
        assert takes_views(build(name, IN, 8, 3)) and takes_views(build(name, IN, 8, 3, batch_norm=True))
    for norm in (nn.BatchNorm1d(8, track_running_stats=False), nn.SyncBatchNorm(8), pyg.GraphNorm(8)):
        model = build("gcn", IN, 8, 3, batch_norm=True)
        model.norms[0] = norm
        assert not takes_views(model)
    model = build("gcn", IN, 8, 3)
    handle = model.convs[0].register_forward_hook(lambda *_: None)
    assert not takes_views(model)
    handle.remove()
    assert takes_views(model)


@pytest.mark.parametrize("name", ["gcn", "sage", "gat", "gpr"])
def test_a_normalisation_without_weights_of_its_own(name: str) -> None:
    takes = made(name, "cpu", torch.float64)
    norms = takes.model.mlp.norms if name == "gpr" else takes.model.norms
    width = norms[0].num_features
    norms[0] = nn.BatchNorm1d(width, affine=False).double().eval()
    assert takes_views(takes.model)
    together = embeddings(takes, views("cpu", torch.float64)[2])
    takes.takes_views = False
    for one, alone in zip(together, embeddings(takes, views("cpu", torch.float64)[2]), strict=True):
        torch.testing.assert_close(one, alone)


def test_what_is_no_linear_map_works_on_a_copy() -> None:
    x, _, graphs = views("cpu", torch.float64)
    side = SideBySide.of([graph.x for graph in graphs])
    copied = side * 1
    assert type(copied) is Tensor and side.shape == (N, 3, IN) == copied.shape and side.dim() == 3 and len(side) == N
    torch.testing.assert_close(copied[:, 0], x)
    assert torch.equal(side[:, 2].sort(0).values, x.sort(0).values)
    linear = nn.Linear(IN, 2).double().requires_grad_(False)
    torch.testing.assert_close(linear(side), linear(copied))
    torch.testing.assert_close(
        torch.nn.functional.dropout(side, 0.5, False) @ linear.weight.t(), copied @ linear.weight.t()
    )
    weight = linear.weight.clone().requires_grad_()
    torch.testing.assert_close(side @ weight.t(), copied @ weight.t())
