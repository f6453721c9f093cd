"""InfoNCE without the positive pair in the denominator, against loops, whole and in batches."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphmend.surrogates.adgcl import info_nce
from support.graphs import rng
from support.surrogate_cases import most_kept_numbers


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


@given(st.integers(2, 14), st.integers(2, 16), st.integers(0, 5), st.sampled_from([0.2, 1.0]))
def test_batches_are_drawn_from_the_generator_and_nearly_equal(
    nodes: int, batch_size: int, seed: int, temperature: float
) -> None:
    """No node is ever left alone: of three nodes, batches of two make one batch."""
    u, v = rows(nodes, 1), rows(nodes, 2)
    number = min(math.ceil(nodes / batch_size), nodes // 2)
    order = list(range(nodes)) if number == 1 else torch.randperm(nodes, generator=rng(seed)).tolist()
    least, more = divmod(nodes, number)
    sizes = [least + (k < more) for k in range(number)]
    batches = [order[sum(sizes[:k]) : sum(sizes[: k + 1])] for k in range(number)]
    found = float(info_nce(u, v, temperature, batch_size, rng(seed)))
    assert found == pytest.approx(slow(u, v, temperature, batches), abs=1e-10)


@pytest.mark.parametrize("batch_size", [3, 100])
def test_gradients_equal_finite_differences(batch_size: int) -> None:
    u, v = rows(8, 1).requires_grad_(), rows(8, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda u, v: info_nce(u, v, 0.2, batch_size, rng(3)), (u, v))
    assert torch.autograd.gradcheck(lambda u: info_nce(u, u, 0.2, batch_size, rng(3)), (u,))


def test_only_one_batch_of_similarities_exists_at_a_time() -> None:
    u, v = (rows(200, seed).requires_grad_() for seed in (1, 2))
    assert most_kept_numbers(lambda: info_nce(u, v, 0.2, 50, rng())) == u.numel()


def test_zero_rows_have_a_finite_loss_and_no_gradient() -> None:
    u, v = rows(6, 1), rows(6, 2)
    u[2] = 0.0
    u.requires_grad_()
    loss = info_nce(u, v, 0.2, 10)
    (slope,) = torch.autograd.grad(loss, u)
    assert bool(loss.isfinite()) and bool(slope.isfinite().all()) and not bool(slope[2].any())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.1)])
def test_single_and_half_precision(dtype: torch.dtype, tolerance: float) -> None:
    u, v = rows(9, 1), rows(9, 2)
    exact = float(info_nce(u, v, 0.2, 9))
    assert float(info_nce(u.to(dtype), v.to(dtype), 0.2, 9)) == pytest.approx(exact, abs=tolerance)
