"""Numbered node pairs and random ones."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from graphmend.graph.edge_flips import pair_number, pair_of, random_numbers
from graphmend.lab.attacks.pairs import UndirectedGraph
from support.graphs import rng, undirected


@given(n=st.integers(2, 60))
def test_pair_numbers_count_the_upper_triangle(n: int) -> None:
    i, j = torch.triu_indices(n, n, 1)
    numbers = torch.arange(n * (n - 1) // 2)
    assert torch.equal(pair_number(i, j, n), numbers)
    assert torch.equal(pair_of(numbers, n), torch.stack([i, j]))


def test_pair_numbers_are_exact_for_millions_of_nodes() -> None:
    n = 100_000_000
    i = torch.cat([torch.arange(50), torch.randint(n - 2, (1000,), generator=rng()), n - 2 - torch.arange(50)])
    for j in (i + 1, torch.full_like(i, n - 1)):
        assert torch.equal(pair_of(pair_number(i, j, n), n), torch.stack([i, j]))


@pytest.mark.parametrize(("count", "total"), [(0, 10), (10, 10), (3, 10), (40, 1000), (900, 1000)])
def test_random_pairs_are_distinct_and_uniform(count: int, total: int) -> None:
    without = torch.tensor([2, 5]) if count + 2 <= total else None
    times = torch.zeros(total)
    for seed in range(400):
        drawn = random_numbers(count, total, rng(seed), without)
        assert drawn.numel() == count
        assert torch.equal(drawn, drawn.unique())
        times[drawn] += 1
    if without is not None:
        assert times[without].sum() == 0
    expected = 400 * count / (total - (0 if without is None else 2))
    rest = times if without is None else times[torch.arange(total) % 1000 != 2]
    assert (rest[rest > 0] - expected).abs().max() <= 5.5 * max(expected, 1) ** 0.5 if count else True


def test_flipping_twice_gives_the_graph_back() -> None:
    edges = UndirectedGraph.of(Data(x=torch.ones(20, 1), edge_index=undirected(20, loops=True)))
    flips = random_numbers(30, edges.num_pairs, rng(1))
    assert torch.equal(edges.flipped(flips).flipped(flips).edge_index(), edges.edge_index())
    assert torch.equal(edges.changes_to(edges.flipped(flips)), flips)
