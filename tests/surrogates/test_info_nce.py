"""InfoNCE without the positive pair in the denominator, against loops, whole and in batches."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphmend.errors import GraphMendError
from graphmend.surrogates.info_nce import info_nce
from support.graphs import rng


def rows(nodes: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(nodes, 4, generator=rng(seed), dtype=torch.float64).to(dtype)


def slow(u: Tensor, v: Tensor, temperature: float, batches: list[list[int]]) -> float:
    total = 0.0
    for batch in batches:
        for i in batch:
            similar = {j: float(torch.cosine_similarity(u[i], v[j], dim=0)) / temperature for j in batch}
            reverse = {j: float(torch.cosine_similarity(u[j], v[i], dim=0)) / temperature for j in batch}
            forth = sum(math.exp(value) for j, value in similar.items() if j != i)
            back = sum(math.exp(value) for j, value in reverse.items() if j != i)
            total += 0.5 * (math.log(forth) + math.log(back)) - similar[i]
    return total / len(u)


@pytest.mark.parametrize("temperature", [0.2, 1.0])
def test_one_batch_is_the_formula(temperature: float) -> None:
    u, v = rows(9, 1), rows(9, 2)
    expected = slow(u, v, temperature, [list(range(9))])
    for batch_size in (9, 10, 1024):
        assert float(info_nce(u, v, temperature, batch_size, rng())) == pytest.approx(expected, abs=1e-12)


@given(nodes=st.integers(2, 14), batch_size=st.integers(2, 16), seed=st.integers(0, 5))
def test_batches_are_drawn_from_the_generator_and_nearly_equal(nodes: int, batch_size: int, seed: int) -> None:
    u, v = rows(nodes, 1), rows(nodes, 2)
    number = min(math.ceil(nodes / batch_size), nodes // 2)
    order = list(range(nodes)) if number == 1 else torch.randperm(nodes, generator=rng(seed)).tolist()
    least, more = divmod(nodes, number)
    batches, start = [], 0
    for k in range(number):
        stop = start + least + (k < more)
        batches.append(order[start:stop])
        start = stop
    assert [node for batch in batches for node in batch] == order
    assert float(info_nce(u, v, 0.2, batch_size, rng(seed))) == pytest.approx(slow(u, v, 0.2, batches), abs=1e-10)


def test_no_node_is_ever_left_alone() -> None:
    """Three nodes in batches of two would leave one without anybody to be compared with."""
    for nodes in range(2, 30):
        for batch_size in range(2, 30):
            assert bool(info_nce(rows(nodes, 1), rows(nodes, 2), 0.2, batch_size, rng()).isfinite())


@pytest.mark.parametrize("batch_size", [3, 100])
def test_gradients_equal_finite_differences(batch_size: int) -> None:
    u, v = rows(8, 1).requires_grad_(), rows(8, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda u, v: info_nce(u, v, 0.2, batch_size, rng(3)), (u, v))
    assert torch.autograd.gradcheck(lambda u: info_nce(u, u, 0.2, batch_size, rng(3)), (u,))


def test_only_one_batch_of_similarities_exists_at_a_time() -> None:
    kept: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    u, v = (rows(200, seed).requires_grad_() for seed in (1, 2))
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        info_nce(u, v, 0.2, 50, rng())
    assert max(kept) == u.numel()


def test_zero_rows_have_a_finite_loss_and_no_gradient() -> None:
    u, v = rows(6, 1), rows(6, 2)
    u[2] = 0.0
    u.requires_grad_()
    loss = info_nce(u, v, 0.2, 10)
    (slope,) = torch.autograd.grad(loss, u)
    assert bool(loss.isfinite()) and bool(slope.isfinite().all()) and not bool(slope[2].any())


def test_single_and_half_precision() -> None:
    u, v = rows(9, 1), rows(9, 2)
    exact = float(info_nce(u, v, 0.2, 9))
    assert float(info_nce(u.float(), v.float(), 0.2, 9)) == pytest.approx(exact, abs=1e-5)
    assert float(info_nce(u.bfloat16(), v.bfloat16(), 0.2, 9)) == pytest.approx(exact, abs=0.1)


def test_a_single_node_has_nobody_to_be_compared_with() -> None:
    with pytest.raises(GraphMendError, match="the graph has 1; use another surrogate"):
        info_nce(rows(1, 1), rows(1, 2), 0.2, 10)
