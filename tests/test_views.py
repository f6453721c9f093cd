"""One contract for every view, and what each of them does to a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.shared_features import SharedFeatures, as_tensor
from graphmend.errors import GraphMendError
from graphmend.transforms import VIEWS, DropEdge, DropNode, Shuffle, Subgraph, view_of
from support.graphs import DEVICES, directed, rng, undirected

pytestmark = pytest.mark.usefixtures("one_thread")

N = 40
VARIANTS: dict[str, Callable[[], Any]] = {
    "drop_edge": lambda: DropEdge(0.5),
    "drop_node": lambda: DropNode(0.3),
    "shuffle": Shuffle,
    "subgraph": lambda: Subgraph(5, 2),
}
views = pytest.mark.parametrize("view", [make() for make in VARIANTS.values()], ids=VARIANTS)
devices = pytest.mark.parametrize("device", DEVICES)


def graph(*, weighted: bool = True, loops: bool = True, device: str = "cpu") -> Data:
    edge_index = undirected(N, density=0.05, loops=loops)
    data = Data(x=torch.randn(N, 3, generator=rng()), edge_index=edge_index, y=torch.arange(N))
    if weighted:
        data.edge_weight = torch.rand(edge_index.size(1), generator=rng(1)) + 0.5
    return data.to(device)


def contents(data: Data) -> dict[str, Any]:
    return {name: value.clone() if isinstance(value, Tensor) else value for name, value in data.to_dict().items()}


def same(a: Data | dict[str, Any], b: Data | dict[str, Any]) -> bool:
    a, b = (d.to_dict() if isinstance(d, Data) else d for d in (a, b))
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_every_view_is_in_the_contract() -> None:
    assert set(VARIANTS) == set(VIEWS)
    for name, kind in VIEWS.items():
        assert type(view_of(name)) is kind
    with pytest.raises(
        GraphMendError, match="unknown view 'crop'; choose one of drop_edge, drop_node, shuffle, subgraph"
    ):
        view_of("crop")


@devices
@pytest.mark.parametrize("weighted", [True, False])
@views
def test_the_input_is_untouched_and_the_nodes_stay(view: Any, weighted: bool, device: str) -> None:
    data = graph(weighted=weighted, device=device)
    before = contents(data)
    out = view(data, torch.Generator(device).manual_seed(0))
    assert same(data, before) and out is not data
    assert out.x.shape == data.x.shape and out.x.dtype == data.x.dtype
    assert torch.equal(out.edge_index, data.edge_index) and torch.equal(out.y, data.y)


@devices
@views
def test_draws_come_from_the_generator_alone(view: Any, device: str) -> None:
    data = graph(device=device)
    state = torch.get_rng_state()
    first = view(data, torch.Generator(device).manual_seed(0))
    generator = torch.Generator(device).manual_seed(0)
    again, fresh = view(data, generator), view(data, generator)
    assert same(first, again)
    assert not same(first, fresh)
    assert not same(first, view(data, torch.Generator(device).manual_seed(1)))
    assert torch.equal(torch.get_rng_state(), state)


@views
def test_without_a_generator_the_global_one_draws(view: Any) -> None:
    data = graph()
    torch.manual_seed(7)
    first, second = view(data), view(data)
    torch.manual_seed(7)
    assert same(first, view(data)) and not same(first, second)


@views
def test_features_keep_their_gradient(view: Any) -> None:
    data = graph()
    data.x.requires_grad_()
    data.edge_weight.requires_grad_()
    out = view(data, rng())
    (out.x.sum() + out.edge_weight.sum()).backward()
    assert data.x.grad.abs().sum() > 0 and data.edge_weight.grad.abs().sum() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@views
def test_dtypes_stay(view: Any, dtype: torch.dtype) -> None:
    for weighted in (True, False):
        data = graph(weighted=weighted)
        data.x = data.x.to(dtype)
        out = view(data, rng())
        assert out.x.dtype == dtype
        if "edge_weight" in out:
            assert out.edge_weight.dtype == (torch.float32 if weighted else dtype)


@devices
@views
def test_views_of_shared_features_share_their_products(view: Any, device: str) -> None:
    """Where a view could not be told in terms of rows, its products would be computed from the features again."""
    data = graph(device=device)
    plain = view(data, torch.Generator(device).manual_seed(0)).x
    maps, weight = LinearMaps(data.x), torch.randn(3, 2, generator=rng(5)).to(device)
    data.x = SharedFeatures.of(maps)
    out = view(data, torch.Generator(device).manual_seed(0)).x
    assert isinstance(out, SharedFeatures) and torch.equal(as_tensor(out), plain)
    torch.testing.assert_close(out @ weight, plain @ weight)


# ---------------------------------------------------------------- DropEdge


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
def test_drop_edge_keeps_each_entry_with_probability_one_minus_p(p: float) -> None:
    data, generator = graph(), rng()
    kept = torch.stack([DropEdge(p)(data, generator).edge_weight != 0 for _ in range(2000)]).double()
    assert (kept.mean(0) - (1 - p)).abs().max() < 0.05
    forward = data.edge_index[0] < data.edge_index[1]
    position = {pair: e for e, pair in enumerate(zip(*data.edge_index.tolist(), strict=True))}
    back = torch.tensor([position[j, i] for i, j in zip(*data.edge_index.tolist(), strict=True)])
    together = (kept[:, forward] * kept[:, back[forward]]).mean()
    assert abs(float(together) - (1 - p) ** 2) < 0.01  # the two directions independently


def test_drop_edge_does_not_rescale() -> None:
    data = graph()
    out = DropEdge(0.5)(data, rng()).edge_weight
    assert torch.equal(out[out != 0], data.edge_weight[out != 0]) and bool((out == 0).any())
    plain = DropEdge(0.5)(graph(weighted=False), rng()).edge_weight
    assert set(plain.tolist()) == {0.0, 1.0} and torch.equal(plain != 0, out != 0)


def test_drop_edge_of_nothing_and_of_everything() -> None:
    data = graph()
    assert torch.equal(DropEdge(0.0)(data, rng()).edge_weight, data.edge_weight)
    assert not DropEdge(1.0)(data, rng()).edge_weight.any()


# ---------------------------------------------------------------- DropNode


def test_drop_node_blanks_whole_rows_and_keeps_the_edges() -> None:
    data, generator = graph(), rng()
    blank = []
    for _ in range(1500):
        out = DropNode(0.3)(data, generator)
        gone = (out.x == 0).all(1)
        assert torch.equal(out.x[~gone], data.x[~gone]) and out.edge_weight is data.edge_weight
        blank.append(gone)
    assert (torch.stack(blank).double().mean(0) - 0.3).abs().max() < 0.06
    assert torch.equal(DropNode(0.0)(data, rng()).x, data.x) and not DropNode(1.0)(data, rng()).x.any()
    assert DropNode().p == 0.05 and DropEdge().p == 0.5


# ---------------------------------------------------------------- Shuffle


def test_shuffle_permutes_the_rows_uniformly() -> None:
    data = Data(x=torch.arange(4.0).view(4, 1), edge_index=torch.tensor([[0], [1]]))
    generator = rng()
    draws = [tuple(Shuffle()(data, generator).x.view(-1).int().tolist()) for _ in range(2400)]
    assert all(sorted(draw) == [0, 1, 2, 3] for draw in draws)
    assert len(set(draws)) == 24 and min(map(draws.count, set(draws))) > 50
    wide = graph()
    out = Shuffle()(wide, rng()).x
    assert sorted(map(tuple, out.tolist())) == sorted(map(tuple, wide.x.tolist()))  # rows stay whole


# ---------------------------------------------------------------- Subgraph


def kept(data: Data, out: Data) -> set[tuple[int, int]]:
    return set(zip(*data.edge_index[:, out.edge_weight != 0].tolist(), strict=True))


@pytest.mark.parametrize("seed", range(8))
def test_a_subgraph_is_induced_by_the_nodes_a_walk_can_reach(seed: int) -> None:
    edge_index = directed(N, 2, density=0.05)
    data = Data(x=torch.ones(N, 1), edge_index=edge_index)
    stored = set(zip(*edge_index.tolist(), strict=True))
    edges = kept(data, Subgraph(1, 3)(data, rng(seed)))
    nodes = {i for edge in edges for i in edge}
    assert edges == {(i, j) for i, j in stored if i in nodes and j in nodes}  # all edges between visited nodes
    assert len(nodes) <= 4


def test_walks_follow_the_direction_of_the_edges() -> None:
    """On a path, a walk of length 3 from i visits i, i + 1, i + 2, i + 3: three edges, all ahead of it."""
    path = torch.stack([torch.arange(N - 1), torch.arange(1, N)])
    data = Data(x=torch.ones(N, 1), edge_index=path)
    starts = set()
    for seed in range(30):
        start = int(torch.randint(N, (1,), generator=rng(seed)))  # the first draw of the view
        edges = kept(data, Subgraph(1, 3)(data, rng(seed)))
        assert edges == {(i, i + 1) for i in range(start, min(start + 3, N - 1))}
        starts.add(start)
    assert len(starts) > 10


def test_walks_choose_among_neighbours_evenly() -> None:
    """From the middle of a star, one step: every leaf as often as any other."""
    star = torch.stack([torch.zeros(5, dtype=torch.long), torch.arange(1, 6)])
    data = Data(x=torch.ones(6, 1), edge_index=star)
    generator, counts = rng(), torch.zeros(5)
    for _ in range(4000):
        out = Subgraph(1, 1)(data, generator).edge_weight
        assert out.sum() <= 1
        counts += out
    assert counts.min() / counts.sum() > 0.16 and counts.max() / counts.sum() < 0.24


def test_walks_do_not_step_over_edges_of_weight_zero() -> None:
    """On a path through the nodes in random order, so that no sorting of its edges looks like another."""
    nodes = torch.randperm(N, generator=rng(1))
    path = torch.stack([nodes[:-1], nodes[1:]])
    weight = torch.ones(N - 1)
    weight[20] = 0.0
    shuffle = torch.randperm(N - 1, generator=rng())
    data = Data(x=torch.ones(N, 1), edge_index=path[:, shuffle], edge_weight=weight[shuffle])
    for seed in range(60):
        start = int((nodes == torch.randint(N, (1,), generator=rng(seed))).nonzero())
        edges = kept(data, Subgraph(1, 5)(data, rng(seed)))
        last = 20 if start <= 20 else N - 1
        assert edges == {(int(nodes[i]), int(nodes[i + 1])) for i in range(start, min(start + 5, last))}


def test_many_walks_visit_every_component_and_a_length_of_zero_none() -> None:
    data = graph(loops=False)
    whole = Subgraph(10_000, 100)(data, rng())
    assert torch.equal(whole.edge_weight, data.edge_weight)
    assert Subgraph() == Subgraph(1000, 10)
    none = Subgraph(1, 0)(data, rng())
    assert not none.edge_weight.any()


@pytest.mark.parametrize("weighted", [True, False])
def test_a_subgraph_of_a_graph_without_edges(weighted: bool) -> None:
    data = Data(x=torch.ones(4, 1), edge_index=torch.tensor([[0, 1], [1, 2]]))
    if weighted:
        data.edge_weight = torch.zeros(2)
    else:
        data.edge_index = data.edge_index[:, :0]
    assert not Subgraph(3, 3)(data, rng()).edge_weight.any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DropEdge(1.5), r"DropEdge's p must be a number in \[0, 1\] \(got 1.5\)"),
        (lambda: DropEdge(float("nan")), "DropEdge's p"),
        (lambda: DropNode(-0.1), r"DropNode's p must be a number in \[0, 1\] \(got -0.1\)"),
        (lambda: Subgraph(0), r"starts must be a whole number of at least 1 \(got 0\)"),
        (lambda: Subgraph(5, -1), r"length must be a whole number of at least 0 \(got -1\)"),
    ],
)
def test_bad_arguments(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(GraphMendError, match=message):
        make()
