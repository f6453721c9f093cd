"""Keys of nodes and edges depend on what these are, not on where they stand."""

from __future__ import annotations

import pytest
import torch

from graphmend.graph.canonical import edge_keys, node_keys, row_keys
from support.graphs import directed, rng

TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", TYPES)
def test_equal_rows_have_equal_keys_and_others_have_not(dtype: torch.dtype) -> None:
    x = ((torch.arange(4096)[:, None] >> torch.arange(12)) & 1).to(dtype)  # every row of 0 and 1 there is
    keys = row_keys(x)
    assert keys.unique().numel() == 4096
    order = torch.randperm(4096, generator=rng())
    assert torch.equal(row_keys(x[order]), keys[order]) and torch.equal(row_keys(-0.0 * x), row_keys(0.0 * x))


def test_the_unit_and_a_broken_row_do_not_matter() -> None:
    x = torch.randn(500, 6, generator=rng(), dtype=torch.float64)
    assert torch.equal(row_keys(40.0 * x), row_keys(x)) and torch.equal(row_keys(1e-3 * x), row_keys(x))
    x[0] = 1e30
    assert row_keys(x).unique().numel() == 500 and row_keys(torch.zeros(3, 2)).unique().numel() == 1
    x[:2] = torch.tensor([[torch.inf], [torch.nan]])
    assert torch.equal(row_keys(x), row_keys(x.clone()))


def test_nodes_and_edges_keep_their_keys_in_another_order() -> None:
    edge_index, x = directed(60, density=0.05, loops=True), torch.randn(60, 4, generator=rng(1)).round()
    order, edges = torch.randperm(60, generator=rng(2)), torch.randperm(edge_index.size(1), generator=rng(3))
    other = order.argsort()[edge_index[:, edges]]
    keys, others = node_keys(x, edge_index), node_keys(x[order], other)
    assert torch.equal(others, keys[order])
    assert torch.equal(edge_keys(others, other), edge_keys(keys, edge_index)[edges])
    assert torch.equal(edge_keys(keys, edge_index.flip(0)), edge_keys(keys, edge_index))


def test_neighbours_tell_equal_rows_apart_and_so_does_the_direction() -> None:
    keys = node_keys(torch.ones(5, 1), torch.tensor([[0, 1, 2], [1, 2, 3]]))
    assert keys.unique().numel() == 5
