"""The variables of Algorithm 1, and the graphs they stand for."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from graphmend.graph.edge_flips import EdgeFlips
from graphmend.graph.relaxed import RelaxedGraph
from support.graphs import DEVICES, labelled, rng

devices = pytest.mark.parametrize("device", DEVICES)


def relaxed(data: Data, **options: object) -> RelaxedGraph:
    return RelaxedGraph(data, EdgeFlips.of(data.edge_index, data.x.size(0), budget=3, **options))


@devices
def test_at_the_start_it_is_the_graph(device: str) -> None:
    data = labelled(device=device)
    graph = relaxed(data)
    assert torch.equal(graph.x, data.x) and graph.p is not None and not graph.p.any()
    assert torch.equal(graph.presence(), torch.ones(data.num_edges, device=device))
    same = graph.as_data(graph.x, graph.presence())
    assert same.x is graph.x and same.edge_index is data.edge_index and same.y is data.y


@devices
def test_the_features_are_a_copy_of_their_own(device: str) -> None:
    data = labelled(device=device)
    data.x = data.x.t().contiguous().t()  # stored the other way round
    before, graph = data.x.clone(), RelaxedGraph(data)
    graph.x.add_(1)
    assert graph.x.is_contiguous() and graph.x.is_leaf and torch.equal(data.x, before)
    assert torch.equal(graph.as_data(graph.x, None).x, before + 1)


@pytest.mark.parametrize("weighted", [True, False])
def test_where_edges_stay(weighted: bool) -> None:
    data = labelled()
    graph = RelaxedGraph(data, weighted=weighted)
    assert graph.p is None and graph.edge_index is data.edge_index
    presence = graph.presence()
    assert torch.equal(presence, torch.ones(data.num_edges)) if weighted else presence is None
    assert list(graph.candidates(5, rng())) == []
    removed, added = graph.changes(None)
    assert removed.numel() == 0 and added.shape == (2, 0)


def test_the_presence_is_that_of_the_flips() -> None:
    data = labelled()
    graph = relaxed(data)
    assert graph.p is not None
    graph.p[2] = 0.25
    assert sorted(graph.presence().tolist())[:3] == [0.75, 0.75, 1.0]
    chosen = torch.arange(graph.p.numel()) == 2
    removed, added = graph.changes(chosen)
    assert removed.numel() == 2 and added.size(1) == 0
    assert (graph.presence(chosen) == 0).nonzero().view(-1).tolist() == removed.tolist()
    assert torch.equal(graph.presence(), graph.flips.presence())  # a choice changes nothing


def test_new_edges_stand_behind_those_of_the_graph() -> None:
    data = labelled()
    graph = relaxed(data, space="random_block", block_size=10, generator=rng())
    assert torch.equal(graph.edge_index[:, : data.num_edges], data.edge_index)
    whole = graph.as_data(graph.x, graph.presence())
    assert whole.edge_index.size(1) == whole.edge_weight.numel() > data.num_edges
    assert not whole.edge_weight[data.num_edges :].any() and data.edge_weight is None


def test_candidates_are_drawn_from_p() -> None:
    graph = relaxed(labelled())
    assert [name for name, _ in graph.candidates(2, rng())] == ["identity"]
    graph.p.fill_(0.5)
    names, flips = zip(*graph.candidates(2, rng()), strict=True)
    assert names == ("identity", "top", "sample 1", "sample 2") and all(int(f.sum()) <= 3 for f in flips)
