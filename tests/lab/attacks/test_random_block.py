"""Random blocks of node pairs."""

from __future__ import annotations

import torch
from torch_geometric.data import Data

from graphmend.lab.attacks.pairs import Block, UndirectedGraph
from support.graphs import rng, undirected


def test_block_resampling_keeps_the_best_and_renews_at_least_half() -> None:
    graph = UndirectedGraph.of(Data(x=torch.ones(60, 1), edge_index=undirected(60)))
    block = Block.random(graph, 200, rng())
    assert block.pairs.numel() == 200
    for positive, kept in ((30, 30), (150, 100)):
        p = torch.zeros(200)
        p[torch.randperm(200, generator=rng(1))[:positive]] = torch.rand(positive, generator=rng(2)) + 0.1
        new, q = block.resample(p, rng(3))
        assert new.pairs.numel() == 200
        assert torch.equal(new.pairs, new.pairs.unique())
        best = p.topk(kept)
        assert dict(zip(new.pairs[q > 0].tolist(), q[q > 0].tolist(), strict=True)) == dict(
            zip(block.pairs[best.indices].tolist(), best.values.tolist(), strict=True)
        )
    assert Block.random(graph, 10_000, rng()).is_whole


def test_weights_are_the_xor() -> None:
    data = Data(x=torch.ones(8, 1), edge_index=undirected(8, loops=True, density=0.3))
    graph = UndirectedGraph.of(data)
    block = Block.random(graph, 15, rng())
    flips = torch.rand(15, generator=rng(1)) < 0.5
    kept = block.edge_index[:, block.weight(flips.float()) > 0]
    changed = graph.flipped(block.pairs[flips]).edge_index()
    assert set(map(tuple, kept.t().tolist())) == set(map(tuple, changed.t().tolist()))
