"""Purification: which edges are cut, and which never."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from adapter_cases import pairs_of
from graphmend import FrozenGNN, GraphMendError, Limits
from graphmend.adapters import Purify
from graphmend.cards import card
from graphmend.cards.edges import LEVELS
from graphs import directed, rng
from untouched import assert_same, state_of

pytestmark = pytest.mark.usefixtures("one_thread")

N, IN, HID, OUT = 120, 16, 8, 3


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


def attacked(data: Data, number: int = 60) -> tuple[Data, Tensor]:
    """Edges between classes come in, in both directions; which ones they are."""
    candidates = torch.randint(N, (2, 10 * number), generator=rng(3))
    different = data.y[candidates[0]] != data.y[candidates[1]]
    new = candidates[:, different][:, :number]
    edge_index = torch.cat([data.edge_index, new, new.flip(0)], dim=1)
    is_new = torch.arange(edge_index.size(1)) >= data.edge_index.size(1)
    order = torch.randperm(edge_index.size(1), generator=rng(5))
    return Data(x=data.x, edge_index=edge_index[:, order], y=data.y), is_new[order]


def model(name: str = "GCN") -> nn.Module:
    torch.manual_seed(0)
    made: nn.Module = getattr(pyg, name)(IN, HID, num_layers=2, out_channels=OUT).double()
    return made


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GIN"])
def test_edges_below_the_quantile_are_cut(name: str, level: float) -> None:
    """The cosine in the coordinates of the first layer, edge by edge."""
    net, data = model(name), graph()
    made, (test, _) = card(net, data), attacked(data)
    before = state_of(net, test)
    result = Purify(level)(net, test, card=made)
    assert_same(before, state_of(net, test))
    with FrozenGNN(net, test) as frozen:
        u = test.x @ frozen.first_map
    removed, certain = set(result.patch.removed.tolist()), 0
    for place, (i, j) in enumerate(test.edge_index.t().tolist()):
        cosine = float(u[i] @ u[j] / (u[i].norm() * u[j].norm()))
        if abs(cosine - made.quantile(level)) > 1e-9:  # the quantile is that of an edge, which is here, too
            certain += 1
            assert (place in removed) is (i != j and cosine < made.quantile(level))
    assert removed and certain >= test.edge_index.size(1) - 4
    assert result.patch.num_rows == result.patch.num_added == 0 and result.history == []
    kept = pairs_of(result.data.edge_index)
    assert all((j, i) in kept for i, j in kept), "edges go in both directions"
    assert {(4, 4), (9, 9)} <= kept


@pytest.mark.parametrize("level", LEVELS)
def test_on_the_training_graph_that_share_is_cut(level: float) -> None:
    net, data = model(), graph()
    result = Purify(level)(net, data, card=card(net, data))
    assert result.patch.num_removed == pytest.approx(level * data.edge_index.size(1), abs=4)


def test_inserted_edges_go_and_most_others_stay() -> None:
    net, data = model(), graph()
    test, is_new = attacked(data)
    removed = Purify(0.1)(net, test, card=card(net, data)).patch.removed
    cut = torch.zeros_like(is_new).index_fill(0, removed, True)
    assert float(cut[is_new].double().mean()) > 0.8 and float(cut[~is_new].double().mean()) < 0.12


def test_columns_that_the_model_ignores_do_not_matter() -> None:
    net, data = model(), graph()
    with torch.no_grad():
        net.convs[0].lin.weight[:, :5] = 0.0
    made, (test, _) = card(net, data), attacked(data)
    expected = Purify()(net, test, card=made).patch.removed
    test.x = test.x.clone()
    test.x[:, :5] = 100 * torch.randn(N, 5, generator=rng(8), dtype=torch.float64)
    assert torch.equal(Purify()(net, test, card=made).patch.removed, expected)


def test_frozen_edges_stay_in_both_directions() -> None:
    net, data = model(), graph()
    made, (test, _) = card(net, data), attacked(data)
    cut = Purify(0.3)(net, test, card=made).patch.removed
    chosen = cut[::3]
    frozen = torch.zeros(test.edge_index.size(1), dtype=torch.bool).index_fill(0, chosen, True)
    result = Purify(0.3)(net, test, card=made, limits=Limits(frozen_edges=frozen))
    kept, stay = pairs_of(result.data.edge_index), pairs_of(test.edge_index[:, chosen])
    assert stay and all((i, j) in kept and (j, i) in kept for i, j in stay)
    assert 0 < result.patch.num_removed < cut.numel()


def test_directed_edges_and_their_attributes() -> None:
    net, data = model(), graph()
    made = card(net, data)
    edge_index = directed(N, density=0.05)
    test = Data(x=data.x, edge_index=edge_index, edge_time=torch.arange(edge_index.size(1)))
    result = Purify()(net, test, card=made)
    gone = set(result.patch.removed.tolist())
    assert gone and result.data.edge_time.tolist() == [e for e in range(edge_index.size(1)) if e not in gone]
    assert torch.equal(result.patch.revert(result.data).edge_time, test.edge_time)


def test_without_a_card_or_with_an_odd_level_it_says_so() -> None:
    with pytest.raises(GraphMendError, match=r"level must be one of 0.05, 0.1, 0.2, 0.3, 0.5 \(got 0.15\)"):
        Purify(0.15)
    with pytest.raises(GraphMendError, match=r"Purify compares the graph .* needs a source card; make one with"):
        Purify()(model(), graph())
