"""Purification: how many edges are in excess, which of them are cut, and which never."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import FrozenGNN, Limits
from graphmend.adapters import Case, Purify
from graphmend.adapters.purify import MOST, excess_of, worst_edges
from graphmend.cards import SourceCard, card
from graphmend.cards.edges import edge_views
from graphmend.results.history import History
from support.adapter_cases import pairs_of
from support.graphs import directed, rng
from support.slow_edges import slow_fits
from support.untouched import assert_same, state_of

N, IN, HID, OUT = 150, 16, 8, 3


def graph(seed: int = 0) -> Data:
    """Three classes; nearly all edges lie within a class, and there are two self-loops."""
    y = torch.arange(N) % OUT
    centres = 1.5 * torch.randn(OUT, IN, generator=rng(50), dtype=torch.float64)
    x = centres[y] + torch.randn(N, IN, generator=rng(seed), dtype=torch.float64)
    chance = torch.where(y[:, None] == y, 0.12, 0.002)
    dense = torch.triu(torch.rand(N, N, generator=rng(seed + 1)) < chance, diagonal=1)
    dense = dense | dense.t()
    dense[4, 4] = dense[9, 9] = True
    return Data(x=x, edge_index=dense.nonzero().t().contiguous(), y=y)


def attacked(data: Data, number: int = 100) -> tuple[Data, Tensor]:
    """Edges between classes come in, in both directions; which ones they are."""
    candidates = torch.randint(N, (2, 10 * number), generator=rng(3))
    candidates = torch.stack([candidates.amin(0), candidates.amax(0)]).unique(dim=1)
    known = torch.isin(candidates[0] * N + candidates[1], data.edge_index[0] * N + data.edge_index[1])
    candidates = candidates[:, (data.y[candidates[0]] != data.y[candidates[1]]) & ~known]
    new = candidates[:, torch.randperm(candidates.size(1), generator=rng(4))[:number]]
    edge_index = torch.cat([data.edge_index, new, new.flip(0)], dim=1)
    is_new = torch.arange(edge_index.size(1)) >= data.edge_index.size(1)
    order = torch.randperm(edge_index.size(1), generator=rng(5))
    return Data(x=data.x, edge_index=edge_index[:, order], y=data.y), is_new[order]


def model(name: str = "GCN") -> nn.Module:
    torch.manual_seed(0)
    made: nn.Module = getattr(pyg, name)(IN, HID, num_layers=2, out_channels=OUT).double()
    return made


def task_of(net: nn.Module, data: Data, frozen: FrozenGNN | None = None, limits: Limits | None = None) -> Case:
    history = History(data.x.device, None, False)
    return Case(net, data, limits or Limits(), 0, torch.Generator(), history, frozen=frozen)


def slow_excess(fits: list[float], made: SourceCard) -> float:
    well = sum(f > made.edge_middle - 1e-6 for f in fits)
    return max(0.0, 1 - well / len(fits) / made.edge_share)


@pytest.mark.parametrize("strength", [0.5, 1.0, 1.5, 2.5])
@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GIN"])
def test_the_worst_edges_are_cut_as_many_as_are_in_excess(name: str, strength: float) -> None:
    net, data = model(name), graph()
    made, (test, _) = card(net, data, task="classes"), attacked(data)
    before = state_of(net, test)
    result = Purify(strength)(net, test, card=made)
    assert_same(before, state_of(net, test))
    with FrozenGNN(net, test) as frozen:
        views = edge_views(test.x, test.x @ frozen.first_map, test.edge_index)
        excess = excess_of(task_of(net, test, frozen), made)
    fits = slow_fits(views, made.edge_grid)
    assert excess.fits.tolist() == pytest.approx(fits)
    assert excess.share == pytest.approx(slow_excess(fits, made)) and excess.share > 0.1
    per_node = test.edge_index.size(1) / N / made.edges_per_node
    assert excess.kept == pytest.approx((1 - excess.share) * per_node)
    number = round(min(strength * excess.share, MOST) * len(fits))
    assert result.patch.num_removed - number in (0, 1), "one more where it is the other direction of the last"
    removed = set(result.patch.removed.tolist())
    free = [place for place, (i, j) in enumerate(test.edge_index.t().tolist()) if i != j]
    assert removed <= set(free)
    assert max(fits[e] for e in removed) <= min(fits[e] for e in free if e not in removed) + 1e-9
    assert result.patch.num_rows == result.patch.num_added == 0 and result.history == []
    kept = pairs_of(result.data.edge_index)
    assert all((j, i) in kept for i, j in kept), "edges go in both directions"
    assert {(4, 4), (9, 9)} <= kept


@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GIN"])
def test_nothing_is_cut_from_the_training_graph(name: str) -> None:
    net, data = model(name), graph()
    made = card(net, data, task="classes")
    result = Purify(10.0)(net, data, card=made)
    assert result.patch.num_removed == 0 and torch.equal(result.data.edge_index, data.edge_index)
    with FrozenGNN(net, data) as frozen:
        excess = excess_of(task_of(net, data, frozen), made)
    assert excess.share == 0 and excess.kept == pytest.approx(1)


@pytest.mark.parametrize("seed", [10, 20, 30])
def test_little_is_cut_from_another_clean_graph(seed: int) -> None:
    net = model()
    other = graph(seed)
    assert Purify()(
        net, other, card=card(net, graph(), task="classes")
    ).patch.num_removed < 0.15 * other.edge_index.size(1)


@pytest.mark.parametrize("types", [(torch.float32, torch.float64), (torch.float64, torch.float32)])
@pytest.mark.parametrize("constant", [False, True], ids=["features", "all rows alike"])
def test_a_card_may_be_of_another_type(types: tuple[torch.dtype, torch.dtype], constant: bool) -> None:
    """In single precision the median fit is another number, also where all edges fit alike."""
    made, (data, first, second) = [], (graph(), *types)
    if constant:
        data.x = data.x[:1].expand(N, -1).contiguous()
    for dtype in (first, second):
        one = Data(x=data.x.to(dtype), edge_index=data.edge_index)
        made.append((card(model().to(dtype), one, task="classes"), one))
    with FrozenGNN(model().to(second), made[1][1]) as frozen:
        case = task_of(model().to(second), made[1][1], frozen)
        of_training = made[0][0].to(torch.device("cpu"), second)
        assert excess_of(case, of_training).share < 0.02


@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GIN", "GAT"])
@pytest.mark.parametrize(("number", "strength", "most"), [(60, 1.0, 0.15), (150, 1.0, 0.25), (60, 1.5, 0.35)])
def test_most_inserted_edges_go_and_most_others_stay(name: str, number: int, strength: float, most: float) -> None:
    """More others go than inserted ones stay: inserted edges spoil the neighbourhoods of the others."""
    net, data = model(name), graph()
    test, is_new = attacked(data, number)
    removed = Purify(strength)(net, test, card=card(net, data, task="classes")).patch.removed
    cut = torch.zeros_like(is_new).index_fill(0, removed, True)
    assert float(cut[is_new].double().mean()) > 0.9 and float(cut[~is_new].double().mean()) < most


def test_a_larger_strength_cuts_more_of_the_same() -> None:
    net, data = model(), graph()
    made, (test, _) = card(net, data, task="classes"), attacked(data)
    cuts = [set(Purify(s)(net, test, card=made).patch.removed.tolist()) for s in (0.2, 0.7, 1.5, 100.0)]
    assert cuts[0] and all(a < b for a, b in itertools.pairwise(cuts))
    assert len(cuts[-1]) == pytest.approx(MOST * test.edge_index.size(1), abs=1), "never more than half of all"


def test_frozen_edges_stay_in_both_directions() -> None:
    net, data = model(), graph()
    made, (test, _) = card(net, data, task="classes"), attacked(data)
    cut = Purify()(net, test, card=made).patch.removed
    chosen = cut[::3]
    frozen = torch.zeros(test.edge_index.size(1), dtype=torch.bool).index_fill(0, chosen, True)
    result = Purify()(net, test, card=made, limits=Limits(frozen_edges=frozen))
    kept, stay = pairs_of(result.data.edge_index), pairs_of(test.edge_index[:, chosen])
    assert stay and all((i, j) in kept and (j, i) in kept for i, j in stay)
    assert result.patch.num_removed > 0
    everything = Limits(frozen_edges=torch.ones_like(frozen))
    assert Purify()(net, test, card=made, limits=everything).patch.num_removed == 0


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.33, 0.5, 0.9])
@pytest.mark.parametrize("levels", [1, 2, 5])
def test_edges_that_fit_equally_badly(share: float, levels: int) -> None:
    """No more go than were asked for, but for the other direction of the last; and not only at the first nodes."""
    data = graph()
    low, high = data.edge_index.amin(0), data.edge_index.amax(0)
    fits = ((7 * low + 3 * high) % levels).double()
    net = model()
    with FrozenGNN(net, data) as frozen:
        got = worst_edges(fits, share, task_of(net, data, frozen))
    number = round(min(share, MOST) * fits.numel())
    assert got.numel() - number in (0, 1) and got.unique().numel() == got.numel()
    gone = pairs_of(data.edge_index[:, got])
    assert all((j, i) in gone and i != j for i, j in gone)
    if number:
        left = torch.ones_like(fits, dtype=torch.bool).index_fill(0, got, False) & (low != high)
        assert float(fits[got].max()) <= float(fits[left].min())
    if number > 100:
        assert 0.35 < float(low[got].double().mean() / low.double().mean()) < 1.65


def test_directed_edges_and_their_attributes() -> None:
    net, data = model(), graph()
    made = card(net, data, task="classes")
    edge_index = directed(N, density=0.05)
    test = Data(x=data.x, edge_index=edge_index, edge_time=torch.arange(edge_index.size(1)))
    result = Purify()(net, test, card=made)
    gone = set(result.patch.removed.tolist())
    assert gone and result.data.edge_time.tolist() == [e for e in range(edge_index.size(1)) if e not in gone]
    assert torch.equal(result.patch.revert(result.data).edge_time, test.edge_time)


def test_inserted_edges_of_a_directed_graph_are_found() -> None:
    data = graph()
    data.edge_index = data.edge_index[:, data.edge_index[0] <= data.edge_index[1]]
    test, is_new = attacked(data, 60)
    one_way = test.edge_index[0] <= test.edge_index[1]
    test.edge_index, is_new = test.edge_index[:, one_way], is_new[one_way]
    removed = Purify()(model(), test, card=card(model(), data, task="classes")).patch.removed
    cut = torch.zeros_like(is_new).index_fill(0, removed, True)
    assert float(cut[is_new].double().mean()) > 0.8 and float(cut[~is_new].double().mean()) < 0.25
