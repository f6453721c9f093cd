"""Statistics of graphs, by hand and with sets of pairs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

import graphmend.lab.metrics.graphs as module
from graphmend.errors import GraphMendError
from graphmend.lab.metrics import GraphStats, graph_stats
from support.graphs import rng

pytestmark = pytest.mark.usefixtures("one_thread")


def both(*pairs: tuple[int, int]) -> Tensor:
    return torch.tensor([pair for i, j in pairs for pair in ((i, j), (j, i))]).t()


def version(*pairs: tuple[int, int], **more: Any) -> Data:
    return Data(x=torch.eye(5), edge_index=both(*pairs), **more)


def test_an_attack_by_hand() -> None:
    """The attack adds two edges and removes one; mending removes one of the two, and a clean one."""
    clean = version((0, 1), (1, 2), (2, 3), (3, 4))
    attacked = version((0, 1), (1, 2), (2, 3), (0, 4), (0, 3))
    mended = version((0, 1), (1, 2), (0, 3), y=torch.tensor([0, 0, 0, 1, 1]))
    assert graph_stats(mended, clean, attacked) == GraphStats(
        edges=6,
        homophily=4 / 6,
        feature_similarity=0.0,
        edges_added=2,
        edges_removed=4,
        adversarial_removed=0.5,
        clean_removed=1 / 3,
    )
    alone = graph_stats(mended)
    assert alone.edges_added is None and alone.adversarial_removed is None and alone.edges == 6
    assert graph_stats(mended, clean).edges_removed == 4 and graph_stats(mended, clean).clean_removed is None
    assert graph_stats(clean, clean, attacked).adversarial_removed == 1.0
    assert graph_stats(attacked, clean, attacked).clean_removed == 0.0
    assert graph_stats(clean, clean, clean).adversarial_removed is None


@given(seed=st.integers(0, 100), edges=st.integers(1, 40), block=st.sampled_from([8, 1 << 24]))
def test_similarity_and_homophily_edge_by_edge(seed: int, edges: int, block: int) -> None:
    nodes = 7
    x = torch.randn(nodes, 3, generator=rng(seed)) * (torch.arange(nodes) > 0).unsqueeze(1)  # node 0 has no features
    y = torch.randint(-1, 3, (nodes,), generator=rng(seed))
    edge_index = torch.randint(nodes, (2, edges), generator=rng(seed))
    weight = (torch.arange(edges) % 3 > 0).float()
    cosines, same = [], []
    for (i, j), w in zip(edge_index.t().tolist(), weight.tolist(), strict=True):
        if w == 0:
            continue
        a, b = x[i].double().tolist(), x[j].double().tolist()
        length = math.hypot(*a) * math.hypot(*b)
        cosines.append(sum(s * t for s, t in zip(a, b, strict=True)) / length if length else 0.0)
        if y[i] >= 0 and y[j] >= 0:
            same.append(bool(y[i] == y[j]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_NUMBERS", block)
        stats = graph_stats(Data(x=x, edge_index=edge_index, edge_weight=weight, y=y))
    assert stats.edges == len(cosines)
    assert stats.homophily == (pytest.approx(sum(same) / len(same)) if same else None)
    if cosines:
        assert stats.feature_similarity == pytest.approx(sum(cosines) / len(cosines), abs=1e-9)
    else:
        assert stats.feature_similarity is None


@given(seed=st.integers(0, 100))
def test_edges_that_came_and_went_are_differences_of_sets(seed: int) -> None:
    generator = rng(seed)
    lists = [torch.randint(6, (2, 25), generator=generator) for _ in range(3)]
    own, clean, attacked = ({tuple(pair) for pair in edges.t().tolist()} for edges in lists)
    stats = graph_stats(*(Data(x=torch.ones(6, 1), edge_index=edges) for edges in lists))
    assert stats.edges == 25 and stats.edges_added == len(own - clean) and stats.edges_removed == len(clean - own)
    adversarial, left = attacked - clean, attacked & clean
    assert stats.adversarial_removed == (len(adversarial - own) / len(adversarial) if adversarial else None)
    assert stats.clean_removed == (len(left - own) / len(left) if left else None)


def test_the_counts_of_the_paper_fit_together() -> None:
    """463 of 2778 edges are adversarial; mending that leaves 108 of them removes 77 %."""
    nodes = 3000
    clean = torch.stack([torch.arange(2316), torch.arange(2316) + 1])
    added = torch.stack([torch.arange(463), torch.arange(463) + 2])
    graphs = [torch.cat([clean[:, 479:], added[:, :108]], dim=1), clean, torch.cat([clean, added], dim=1)]
    stats = graph_stats(*(Data(x=torch.ones(nodes, 1), edge_index=edges) for edges in graphs))
    assert (stats.edges, stats.edges_added, stats.edges_removed) == (1945, 108, 479)
    assert stats.adversarial_removed == pytest.approx(0.77, abs=0.005)
    assert stats.clean_removed == 479 / 2316


def test_without_labels_or_edges_there_is_nothing_to_say() -> None:
    stats = graph_stats(Data(x=torch.ones(3, 1), edge_index=torch.empty(2, 0, dtype=torch.long), y=torch.zeros(3)))
    assert stats == GraphStats(edges=0, homophily=None, feature_similarity=None)
    assert graph_stats(version((0, 1))).homophily is None


def test_graphs_that_do_not_belong_together_are_named() -> None:
    other = Data(x=torch.eye(4), edge_index=both((0, 1)))
    with pytest.raises(GraphMendError, match="the clean graph has 4 nodes but the graph 5; give versions of one graph"):
        graph_stats(version((0, 1)), other)
    with pytest.raises(GraphMendError, match="give the clean graph, too"):
        graph_stats(version((0, 1)), attacked=version((0, 1)))
