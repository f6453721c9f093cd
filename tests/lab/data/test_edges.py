from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.utils import remove_self_loops, to_undirected

from graphmend.lab.data import undirected


@given(nodes=st.integers(1, 12), count=st.integers(0, 60), seed=st.integers(0, 10_000))
def test_undirected_edges_equal_those_of_pyg(nodes: int, count: int, seed: int) -> None:
    source, target = np.random.default_rng(seed).integers(nodes, size=(2, count))
    listed = torch.from_numpy(np.stack([source, target]))
    expected = to_undirected(remove_self_loops(listed)[0], num_nodes=nodes)
    assert torch.equal(undirected(source * nodes + target, nodes), expected)


@pytest.mark.parametrize("by_row", [True, False])
def test_the_order_of_edges(by_row: bool) -> None:
    keys = np.array([5, 1, 2, 9, 4])  # 1-1, 0-1, 0-2, 2-1, 1-0 in a graph of four nodes
    edges = undirected(keys, 4, sort_by_row=by_row)
    first, second = edges if by_row else edges.flip(0)
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
    assert edges.dtype == torch.int64 and edges.is_contiguous()
