"""Several views of a graph in one pass through a model are what each of them is alone."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import FrozenGNN, GTrans
from graphmend.engine import propagation
from graphmend.engine import view_batch as side_by_side
from graphmend.engine.adjacency import Adjacency
from graphmend.engine.shared_features import Rows
from graphmend.engine.view_batch import SideBySide, embeddings
from graphmend.nn import BACKBONES, build
from graphmend.nn.layers import takes_views
from graphmend.transforms import DropEdge, Shuffle
from graphs import DEVICES, rng, undirected

pytestmark = pytest.mark.usefixtures("one_thread")

N, IN = 12, 5
backbones = pytest.mark.parametrize("name", BACKBONES)
devices = pytest.mark.parametrize("device", DEVICES)


def one_way() -> Tensor:
    """Directed edges and self-loops, in no order."""
    edge_index = torch.randint(N, (2, 3 * N), generator=rng(5))
    return edge_index[:, edge_index[1] != 4]  # a node that nobody points to


KINDS = {"": lambda: undirected(N), "directed": one_way}


class Takes(nn.Module):
    """A backbone that says how it takes views, as the frozen model does."""

    def __init__(self, model: nn.Module, along: int | None) -> None:
        super().__init__()
        self.model, self.views_along = model.eval().requires_grad_(False), along
        self.shapes: list[tuple[int, ...]] = []

    def embed(self, x: Tensor, edge_index: Tensor, weight: Tensor | None) -> Tensor:
        self.shapes.append(tuple(x.shape))
        out: Tensor = self.model.embed(x, edge_index, weight)
        return out


def made(name: str, device: str, dtype: torch.dtype, along: int = 1) -> Takes:
    torch.manual_seed(1)
    return Takes(build(name, IN, 8, 3, num_layers=3, batch_norm=True).to(device, dtype), along)


def views(device: str, dtype: torch.dtype, rows: bool = True, edges: str = "") -> tuple[Tensor, Tensor, list[Data]]:
    """The leaves and the three graphs of a loss."""
    edge_index = KINDS[edges]().to(device)
    x = torch.randn(N, IN, generator=rng(), dtype=torch.float64).to(device, dtype).requires_grad_()
    weight = torch.rand(edge_index.size(1), generator=rng(2), dtype=torch.float64).to(device, dtype).requires_grad_()
    data = Data(x=Rows.of(x) if rows else x, edge_index=edge_index, edge_weight=weight)
    generator = torch.Generator(device).manual_seed(3)
    return x, weight, [data, DropEdge(0.3)(data, generator), Shuffle()(data, generator)]


@devices
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("edges", KINDS)
@pytest.mark.parametrize("along", [0, 1])
@backbones
def test_each_view_is_what_it_is_alone(name: str, along: int, edges: str, dtype: torch.dtype, device: str) -> None:
    model = made(name, device, dtype, along)
    found = []
    for rows in (True, False):
        x, weight, graphs = views(device, dtype, rows, edges)
        z = embeddings(model, graphs)
        loss = sum((part * (k + 1)).sin().sum() for k, part in enumerate(z))
        by_edge = torch.autograd.grad(loss, weight, retain_graph=True)[0]
        by_row = graphs[0].x.gradient(loss).rows(0, N) if rows else torch.autograd.grad(loss, x)[0]
        found.append([*z, by_edge, by_row])
    assert model.shapes == [(N, 3, IN) if along else (3 * N, IN), *[(N, IN)] * 3]
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
    model.views_along = None
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
    handle = model.convs[0].register_full_backward_hook(lambda *_: None)
    assert not takes_views(model)
    handle.remove()
    assert takes_views(model)
    perceptron = build("gpr", IN, 8, 3)
    perceptron.mlp.linears[0] = nn.Sequential(nn.Linear(IN, 8), pyg.PairNorm())
    assert not takes_views(perceptron)


@pytest.mark.parametrize("name", ["gcn", "sage", "gat", "gpr"])
def test_a_normalisation_without_weights_of_its_own(name: str) -> None:
    takes = made(name, "cpu", torch.float64)
    norms = takes.model.mlp.norms if name == "gpr" else takes.model.norms
    width = norms[0].num_features
    norms[0] = nn.BatchNorm1d(width, affine=False).double().eval()
    assert takes_views(takes.model)
    together = embeddings(takes, views("cpu", torch.float64)[2])
    takes.views_along = None
    for one, alone in zip(together, embeddings(takes, views("cpu", torch.float64)[2]), strict=True):
        torch.testing.assert_close(one, alone)


@pytest.mark.parametrize(("along", "shape"), [(0, (3 * N, IN)), (1, (N, 3, IN))])
def test_what_is_no_linear_map_works_on_a_copy(along: int, shape: tuple[int, ...]) -> None:
    x, _, graphs = views("cpu", torch.float64)
    side = SideBySide.of([graph.x for graph in graphs], along)
    copied = side * 1
    assert type(copied) is Tensor
    assert side.shape == shape == copied.shape and side.dim() == len(shape) and len(side) == shape[0]
    first, _, last = copied.unbind(1) if along else copied.split(N)
    torch.testing.assert_close(first, x)
    assert torch.equal(last.sort(0).values, x.sort(0).values)
    linear = nn.Linear(IN, 2).double().requires_grad_(False)
    torch.testing.assert_close(linear(side), linear(copied))
    torch.testing.assert_close(
        torch.nn.functional.dropout(side, 0.5, False) @ linear.weight.t(), copied @ linear.weight.t()
    )
    weight = linear.weight.clone().requires_grad_()
    torch.testing.assert_close(side @ weight.t(), copied @ weight.t())


@pytest.mark.parametrize("edges", KINDS)
def test_copies_of_an_adjacency_are_what_sorting_gives(edges: str) -> None:
    edge_index = KINDS[edges]()
    copies = Adjacency.of(edge_index, N).copies(edge_index, 3)
    found, expected = Adjacency.of(copies, 3 * N), Adjacency(copies.clone(), 3 * N)
    assert vars(found).keys() == vars(expected).keys()
    for name, value in vars(expected).items():
        mine = getattr(found, name)
        if isinstance(value, tuple):
            assert all(map(torch.equal, mine, value)), name
        else:
            assert torch.equal(mine, value) if isinstance(value, Tensor) else mine == value, name


def spied(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the features that a model embeds from now on."""
    shapes: list[tuple[int, ...]] = []
    embed = type(model).embed

    def spy(self: nn.Module, x: Tensor, *args: Tensor) -> Tensor:
        shapes.append(tuple(x.shape))
        return embed(self, x, *args)  # type: ignore[no-any-return]

    monkeypatch.setattr(type(model), "embed", spy)
    return shapes


@backbones
def test_an_adaptation_with_all_views_at_once_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What small graphs get on a CPU, and what larger ones get, on one graph."""
    torch.manual_seed(2)
    data = Data(x=torch.randn(N, IN, generator=rng()), edge_index=undirected(N))
    model, found = build(name, IN, 8, 3), []
    shapes = spied(model, monkeypatch)
    for small, shape in ((side_by_side.SMALL, (3 * N, IN)), (0, (N, IN))):
        monkeypatch.setattr(side_by_side, "SMALL", small)
        found.append(GTrans(steps=10, budget=0.3)(model, data.clone()))
        assert set(shapes) == {shape}
        shapes.clear()
    one, other = found
    assert [c.flips for c in one.candidates] == [c.flips for c in other.candidates]
    torch.testing.assert_close(one.data.x, other.data.x, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(one.logits, other.logits, atol=1e-4, rtol=1e-4)


def test_small_is_the_graph_with_all_that_could_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Data(x=torch.randn(N, IN, generator=rng()), edge_index=undirected(N))
    model = build("gcn", IN, 8, 3)
    shapes = spied(model, monkeypatch)
    monkeypatch.setattr(side_by_side, "SMALL", data.num_edges + 1)
    for space, shape in (("existing", (3 * N, IN)), ("random_block", (N, IN))):
        GTrans(steps=5, budget=2, space=space)(model, data)
        assert set(shapes) == {shape}
        shapes.clear()


def test_how_a_frozen_model_takes_views() -> None:
    data = Data(x=torch.randn(N, IN, generator=rng()), edge_index=undirected(N))
    weighted = data.clone()
    weighted.edge_weight = torch.ones(data.num_edges)
    model = build("gcn", IN, 8, 3)
    stranger = pyg.GCN(IN, 8, 2, 3)
    for given, graph, embedding, along in (
        (model, data, None, 0),
        (model, data, "convs.0", None),
        (model, weighted, None, None),
        (stranger, data, None, None),
    ):
        with FrozenGNN(given, graph, embedding=embedding) as frozen:
            assert frozen.views_along == along


def test_weights_that_are_learned_are_normalised_once_for_views_that_have_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanting: list[bool] = []
    normalised = propagation.normalised

    def spy(adjacency: Adjacency, weight: Tensor) -> propagation.Propagation:
        wanting.append(weight.requires_grad)
        return normalised(adjacency, weight)

    monkeypatch.setattr(propagation, "normalised", spy)
    monkeypatch.setattr(side_by_side, "SMALL", 0)
    data = Data(x=torch.randn(N, IN, generator=rng()), edge_index=undirected(N))
    GTrans(steps=1, feature_steps=0, edge_steps=1)(build("gcn", IN, 8, 3), data)
    assert sum(wanting) == 2  # the graph and its shuffled view; the view with fewer edges
