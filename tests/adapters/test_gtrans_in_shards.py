"""GTrans on a graph in shards: the gradient of the whole, one budget for all shards, the loss of the whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from graphmend import GraphMendError, GTrans, mend
from graphmend.graph.budget import project
from graphmend.graph.edge_flips import EdgeFlips
from graphmend.graph.limits import Limits
from graphmend.graph.mapped import MappedGraph
from graphmend.graph.shard_flips import ShardFlips
from graphmend.lab.backbones import GCN
from graphmend.surrogates import Entropy


def graph(nodes: int = 60, edges: int = 150, seed: int = 0, both: bool = True, loops: bool = False) -> Data:
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(nodes, (2, edges), generator=generator)
    ends = ends if loops else ends[:, ends[0] != ends[1]]
    ends = torch.cat([ends, ends.flip(0)], dim=1) if both else ends
    keys = torch.unique(ends[1] * nodes + ends[0])
    return Data(
        x=torch.rand(nodes, 4, generator=generator),
        edge_index=torch.stack([keys % nodes, keys // nodes]),
        y=torch.arange(nodes) % 3,
    )


def in_shards(data: Data, shards: int) -> MappedGraph:
    out = MappedGraph(**data.to_dict())
    offsets = torch.searchsorted(data.edge_index[1].contiguous(), torch.arange(data.num_nodes + 1))
    source, target = data.edge_index
    forth, back = (target * data.num_nodes + source).sort().values, (source * data.num_nodes + target).sort().values
    out.mapped_from(Path("nowhere"), offsets, symmetric=torch.equal(forth, back), shards=shards)
    return out


def model() -> GCN:
    torch.manual_seed(0)
    return GCN(4, 8, 3).eval()


@pytest.mark.parametrize("shards", [2, 3, 9])
@pytest.mark.parametrize("both", [True, False], ids=["undirected", "directed"])
def test_without_random_views_all_steps_are_those_of_the_whole(shards: int, both: bool) -> None:
    """The entropy is a mean over nodes and draws nothing, so shards change nothing but the last digits."""
    data = graph(both=both, loops=True)
    gtrans = GTrans(Entropy(), steps=10, lr_feature=0.01, lr_edge=0.2, budget=0.1)
    expected, found = gtrans(model(), data), gtrans(model(), in_shards(data, shards))
    assert [s.kind for s in found.history] == [s.kind for s in expected.history]
    assert [s.loss for s in found.history] == pytest.approx([s.loss for s in expected.history], rel=1e-4)
    assert [s.gradient_norm for s in found.history] == pytest.approx(
        [s.gradient_norm for s in expected.history], rel=1e-3
    )
    named = {candidate.name: candidate for candidate in found.candidates}
    for candidate in expected.candidates[:2]:
        assert named[candidate.name].loss == pytest.approx(candidate.loss, rel=1e-4)
        assert named[candidate.name].flips == candidate.flips
    assert torch.allclose(found.data.x, expected.data.x, atol=2e-3)


@settings(max_examples=30, deadline=None)
@given(
    nodes=st.integers(3, 30),
    edges=st.integers(4, 90),
    seed=st.integers(0, 99),
    both=st.booleans(),
    shards=st.integers(2, 9),
    budget=st.sampled_from([0, 1, 3, 0.05, 0.3]),
)
def test_the_budget_holds_for_all_shards_together(
    nodes: int, edges: int, seed: int, both: bool, shards: int, budget: float
) -> None:
    data = graph(nodes, edges, seed, both)
    allowed = EdgeFlips.of(data.edge_index, nodes, budget=budget).budget
    result = GTrans(steps=6, feature_steps=1, edge_steps=2, lr_edge=0.5, budget=budget, num_samples=3)(
        model(), in_shards(data, shards)
    )
    assert all(step.flipped <= allowed * (1 + 1e-6) + 1e-6 for step in result.history)
    assert all(candidate.flips <= allowed for candidate in result.candidates)
    assert result.patch.num_removed <= allowed * (2 if both else 1)
    if both:
        ends = {tuple(edge) for edge in result.data.edge_index.t().tolist()}
        assert ends == {(b, a) for a, b in ends}, "both directions of an edge go together"


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 999), budget=st.integers(0, 40), width=st.sampled_from([0.05, 0.5, 3.0]))
def test_the_projection_is_that_of_the_whole(seed: int, budget: int, width: float) -> None:
    data = graph(seed=seed)
    flips = ShardFlips(in_shards(data, 2), budget)
    flips.blocks = [slice(k, min(flips.edges, k + 7)) for k in range(0, flips.edges, 7)]
    own = torch.where(flips.variable == torch.arange(flips.edges), 1.0, 0.0)
    start = (torch.rand(flips.edges, generator=torch.Generator().manual_seed(seed)) - 0.3) * width * own
    flips.p.copy_(start)
    flips.project_()
    assert torch.allclose(flips.p, project(start, flips.budget), atol=1e-6)
    assert float(flips.p.sum(dtype=torch.float64)) <= flips.budget + 1e-5


@settings(max_examples=30, deadline=None)
@given(nodes=st.integers(2, 20), edges=st.integers(1, 60), seed=st.integers(0, 99))
def test_both_directions_share_a_variable(nodes: int, edges: int, seed: int) -> None:
    data = graph(nodes, edges, seed, True, loops=True)
    flips = ShardFlips(in_shards(data, 2), 1.0)
    position = {tuple(edge): k for k, edge in enumerate(data.edge_index.t().tolist())}
    for (source, target), k in position.items():
        expected = -1 if source == target else min(k, position[(target, source)])
        assert int(flips.variable[k]) == expected


def test_frozen_edges_stay_in_both_directions() -> None:
    data = graph()
    frozen = torch.zeros(data.num_edges, dtype=torch.bool)
    frozen[:40] = True
    result = GTrans(steps=5, feature_steps=1, edge_steps=4, lr_edge=1.0, budget=0.5)(
        model(), in_shards(data, 3), limits=Limits(frozen_edges=frozen)
    )
    left = {tuple(edge) for edge in result.data.edge_index.t().tolist()}
    kept = {tuple(edge) for edge in data.edge_index[:, :40].t().tolist()}
    assert kept <= left and {(b, a) for a, b in kept} <= left


@pytest.mark.parametrize(
    ("gtrans", "words"),
    [
        (GTrans("reconstruction"), r"is mended by Contrastive\(\) or Entropy\(\).*got Reconstruction"),
        (GTrans(space="random_block"), "in shards no edges are added; use space='existing'"),
        (GTrans(validation=torch.ones(60, dtype=torch.bool)), "nothing is chosen by labels"),
    ],
)
def test_what_needs_the_whole_graph_says_so(gtrans: GTrans, words: str) -> None:
    with pytest.raises(GraphMendError, match=words):
        mend(model(), in_shards(graph(), 3), gtrans)


def test_an_edge_listed_twice_is_named() -> None:
    data = graph()
    data.edge_index = torch.cat([data.edge_index[:, :1], data.edge_index], dim=1)
    with pytest.raises(GraphMendError, match=r"edge 1 of the graph, .* is listed more than once"):
        mend(model(), in_shards(data, 3), GTrans())
