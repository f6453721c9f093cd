"""Sorted edge lists: their order, their copies, and how long they are kept."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import Tensor

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.neighbours import spmm
from graphmend.engine.ops import Pattern
from support.graphs import dense, directed, rng
from support.sparse_patterns import PATTERNS, N, close, devices, features, patterns, patterns_with_edges, values_of


def entries(pattern: Pattern) -> list[tuple[int, int]]:
    return list(zip(pattern.row.tolist(), pattern.col.tolist(), strict=True))


@devices
@patterns
def test_entries_are_sorted_by_target_and_order_says_where_they_went(edge_index: Tensor, device: str) -> None:
    adjacency = Adjacency(edge_index.to(device), N)
    order = adjacency.order(torch.arange(edge_index.size(1), device=device)).cpu()
    source, target = edge_index[:, order].tolist()
    assert entries(adjacency.pattern) == list(zip(target, source, strict=True)) == sorted(entries(adjacency.pattern))
    assert adjacency.crow.diff().tolist() == edge_index[1].bincount(minlength=N).tolist()
    assert adjacency.is_loop.tolist() == [i == j for i, j in entries(adjacency.pattern)]
    assert adjacency.has_loops == bool((edge_index[0] == edge_index[1]).any())


def test_a_sorted_list_is_left_in_its_order() -> None:
    adjacency, values = Adjacency(PATTERNS["sorted"], N), torch.arange(4.0)
    assert adjacency.perm is None and adjacency.inverse_perm is None and adjacency.order(values) is values


@patterns_with_edges
def test_the_gradient_of_ordered_values_goes_back_to_their_edges(edge_index: Tensor) -> None:
    adjacency, values = Adjacency(edge_index, N), values_of(edge_index).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: adjacency.order(v).pow(2), values)


@patterns
def test_the_transpose_has_the_same_entries_the_other_way_round(edge_index: Tensor) -> None:
    adjacency = Adjacency(edge_index, N)
    assert entries(adjacency.transpose) == sorted((j, i) for i, j in entries(adjacency.pattern))
    numbers = torch.arange(edge_index.size(1))
    turned = [entries(adjacency.pattern)[k] for k in adjacency.transposed(numbers).tolist()]
    assert entries(adjacency.transpose) == [(j, i) for i, j in turned]


def test_symmetry_is_seen() -> None:
    assert Adjacency(PATTERNS["undirected with self-loops"], N).is_symmetric
    assert not Adjacency(PATTERNS["directed"], N).is_symmetric
    circle = torch.tensor([[0, 1, 2], [1, 2, 0]])  # in- and out-degrees agree, the pattern does not
    assert not Adjacency(circle, 3).is_symmetric


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
def test_the_index_type_of_the_edge_list_does_not_matter(index: torch.dtype) -> None:
    """With 100,000 nodes, target * nodes + source does not fit into 32 bits."""
    n = 100_000
    edge_index = torch.randint(n, (2, 200), generator=rng())
    adjacency = Adjacency(edge_index.to(index), n)
    assert adjacency.crow.dtype == adjacency.col.dtype == torch.int32
    x = torch.randn(n, 2, generator=rng(1))
    expected = torch.zeros(n, 2).index_add(0, edge_index[1], x[edge_index[0]])
    torch.testing.assert_close(spmm(adjacency, torch.ones(200), x), expected)


# ---------------------------------------------------------------- copies


@devices
@pytest.mark.parametrize("number", [1, 3])
@patterns
def test_copies_are_what_sorting_them_gives(edge_index: Tensor, number: int, device: str) -> None:
    edge_index = edge_index.to(device)
    copies = Adjacency.of(edge_index, N).copies(edge_index, number)
    assert copies.tolist() == torch.cat([edge_index + k * N for k in range(number)], dim=1).tolist()
    known, expected = Adjacency.of(copies, number * N), Adjacency(copies.clone(), number * N)
    assert vars(known).keys() == vars(expected).keys()
    for name, value in vars(expected).items():
        mine = getattr(known, name)
        if isinstance(value, Pattern):
            assert all(map(torch.equal, mine, value)), name
        else:
            assert torch.equal(mine, value) if isinstance(value, Tensor) else mine == value, name
    values = values_of(copies).to(device)
    assert torch.equal(known.order(values), expected.order(values))
    assert torch.equal(known.transposed(values), expected.transposed(values))


def test_copies_are_made_once() -> None:
    edge_index = PATTERNS["directed"]
    adjacency = Adjacency(edge_index, N)
    assert adjacency.copies(edge_index, 2) is adjacency.copies(edge_index, 2)
    assert adjacency.copies(edge_index, 3) is not adjacency.copies(edge_index, 2)


# ---------------------------------------------------------------- how long they are kept


def test_the_same_tensor_is_sorted_once() -> None:
    edge_index = directed(N, 11)
    adjacency = Adjacency.of(edge_index, N)
    assert Adjacency.of(edge_index, N) is adjacency
    assert Adjacency.of(edge_index.clone(), N) is not adjacency
    assert Adjacency.of(edge_index, N + 1).num_nodes == N + 1


def test_a_change_in_place_is_noticed() -> None:
    edge_index = directed(N, 12)
    before = Adjacency.of(edge_index, N)
    edge_index[:, 0] = torch.tensor([0, 8])
    after = Adjacency.of(edge_index, N)
    assert after is not before and Adjacency.of(edge_index, N) is after
    ones = torch.ones(edge_index.size(1), dtype=torch.float64)
    close(spmm(after, ones, features()), dense(edge_index, N) @ features())


def test_what_belongs_to_a_tensor_goes_with_it() -> None:
    edge_index = directed(N, 13)
    before = weakref.ref(Adjacency.of(edge_index, N))
    edge_index[:, 0] = torch.tensor([0, 8])
    after = Adjacency.of(edge_index, N)
    copies = weakref.ref(after.copies(edge_index, 2))
    assert before() is None and copies() is not None
    after_too = weakref.ref(after)
    del edge_index, after
    gc.collect()
    assert after_too() is None and copies() is None


def test_nothing_is_kept_of_inference_mode() -> None:
    """A backward pass could not use it."""
    edge_index, x = directed(N, 14), features().requires_grad_()
    with torch.inference_mode():
        inside, of_outside = directed(N, 14), Adjacency.of(edge_index, N)
    for edges in (edge_index, inside):  # the second is an inference tensor, outside of that mode
        adjacency = Adjacency.of(edges, N)
        assert adjacency is not of_outside
        spmm(adjacency, torch.ones(edges.size(1), dtype=torch.float64), x).sum().backward()
    close(x.grad, 2 * dense(edge_index, N).t() @ torch.ones(N, x.size(1), dtype=torch.float64))
