"""The budget: the projection onto it against exact rational arithmetic, and discrete choices within it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphmend.engine.tuning import RECORDED_ENTRIES
from graphmend.errors import GraphMendError
from graphmend.graph.budget import bernoulli, by_sorting, check_budget, project, samples, top
from support.graphs import DEVICES, rng
from support.processes import run_python

Vector = list[float]


def clip(value: Fraction) -> Fraction:
    return min(max(value, Fraction(0)), Fraction(1))


def exact(values: Vector, budget: float) -> Vector:
    """Sort the kinks of ``f(g) = sum clip(p - g, 0, 1)``, find the piece that crosses the budget, solve it exactly."""
    p, limit = [Fraction(v) for v in values], Fraction(budget)
    if sum(map(clip, p)) <= limit:
        return [float(clip(v)) for v in p]

    def f(gamma: Fraction) -> Fraction:
        return sum((clip(v - gamma) for v in p), Fraction(0))

    kinks = sorted({*p, *(v - 1 for v in p)})  # f falls from n to 0 over them
    low, high = 0, len(kinks) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if f(kinks[middle]) >= limit else (low, middle)
    left, right = kinks[low], kinks[high]
    fall = f(left) - f(right)
    gamma = left if fall == 0 else left + (f(left) - limit) / fall * (right - left)
    return [float(clip(v - gamma)) for v in p]


def assert_projected(p: Tensor, budget: float) -> None:
    assert_is_projection(project, p, budget)
    if 0 < budget < p.numel():
        assert_is_projection(by_sorting, p, budget)


def assert_is_projection(project: Callable[[Tensor, float], Tensor], p: Tensor, budget: float) -> None:
    before = p.clone()
    out = project(p, budget)
    assert out.dtype == p.dtype and out.shape == p.shape and torch.equal(p, before)
    expected = torch.tensor(exact(p.tolist(), budget), dtype=torch.float64)
    assert float((out.double() - expected).abs().max()) <= 1e-6
    assert float(out.min()) >= 0.0 and float(out.max()) <= 1.0
    rounding = torch.finfo(p.dtype).eps * p.numel()
    assert float(out.double().sum()) <= budget + rounding
    again = project(out, budget)
    assert float((again - out).abs().max()) <= 2 * rounding


ordinary = st.floats(-2, 3)
huge = st.floats(-1e30, 1e30)
special = st.sampled_from([0.0, -0.0, 1.0, 0.5, -1.0, 2.0, 1e30, -1e30, 1e-30, 1e-300, 1 + 1e-7, 1 - 1e-7, 1e16])
sizes = {"min_size": 1, "max_size": 30}
vectors = st.one_of(
    st.lists(ordinary, **sizes),
    st.lists(st.floats(0, 1), **sizes),
    st.lists(st.one_of(ordinary, huge, special), **sizes),
    st.builds(lambda value, count: [value] * count, st.one_of(ordinary, huge, special), st.integers(1, 30)),
    st.builds(lambda a, b: a * b, st.lists(ordinary, min_size=1, max_size=4), st.integers(1, 7)),  # ties
)
budgets = st.one_of(
    st.just(0.0), st.integers(0, 35).map(float), st.floats(0, 30), st.floats(0, 1), st.sampled_from([1e-9, 0.5, 1e9])
)


@settings(max_examples=1000)
@example([0.3] * 10, 1.0, torch.float32)
@example([1.0] * 10, 9.0, torch.float32)
@example([7.0] * 10, 2.5, torch.float64)
@example([1e30] * 7, 2.5, torch.float32)
@example([1e30, -1e30, 1e30, 0.5], 1.0, torch.float64)
@example([0.9, 0.8, 0.7], 0.0, torch.float64)
@example([5.0, 4.0, 0.1], 3.0, torch.float64)
@example([5.0, 4.0, 0.1], 2.0, torch.float64)
@given(vectors, budgets, st.sampled_from([torch.float32, torch.float64]))
def test_equals_the_exact_projection(values: Vector, budget: float, dtype: torch.dtype) -> None:
    assert_projected(torch.tensor(values, dtype=dtype), budget)


def test_what_is_within_the_budget_is_only_clipped() -> None:
    p = torch.tensor([-0.5, 0.25, 3.0, 0.5])
    assert torch.equal(project(p, 2), torch.tensor([0.0, 0.25, 1.0, 0.5]))
    assert torch.equal(project(p, 4), torch.tensor([0.0, 0.25, 1.0, 0.5]))


def test_no_candidates() -> None:
    assert project(torch.empty(0), 0).shape == (0,)
    assert project(torch.empty(0), 3).shape == (0,)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_hundred_thousand_candidates(dtype: torch.dtype, device: str) -> None:
    p = torch.rand(100_000, generator=rng(), dtype=torch.float64).to(device, dtype)
    assert_like_sorted(project, p)
    assert_like_sorted(by_sorting, p)


def assert_like_sorted(project: Callable[[Tensor, float], Tensor], p: Tensor) -> None:
    out = project(p, 777)
    # all within [0, 1]: gamma solves sum of the k largest - k gamma = B
    ranked = p.double().sort(descending=True).values
    k = torch.arange(1, ranked.numel() + 1, device=p.device)
    gammas = (ranked.cumsum(0) - 777) / k
    gamma = gammas[(ranked > gammas).nonzero().max()]
    torch.testing.assert_close(out.double(), (p.double() - gamma).clamp(0, 1), rtol=0, atol=1e-6)
    assert abs(float(out.double().sum()) - 777) < 1e-3


# ---------------------------------------------------------------- which budgets there are


@pytest.mark.parametrize("budget", [0.0, 0.5, 1.0, 0, 1, 10**9])
def test_good_budgets(budget: float | int) -> None:
    check_budget(budget)


@pytest.mark.parametrize("budget", [1.3, -0.1, -1, float("nan"), "5", True, None])
def test_bad_budgets(budget: Any) -> None:
    with pytest.raises(GraphMendError, match="budget"):
        check_budget(budget)


# ---------------------------------------------------------------- discrete choices

DRAWS = 4000


@pytest.mark.parametrize("device", DEVICES)
def test_the_largest_that_are_wanted_at_all(device: str) -> None:
    p = torch.tensor([0.2, 0.0, 0.9, 0.5, 0.0], device=device)
    assert top(p, 2).tolist() == [False, False, True, True, False]
    assert top(p, 5).tolist() == [True, False, True, True, False]
    assert not top(p, 0).any() and top(p[:0], 3).shape == (0,)


def draws(p: Tensor, budget: int, device: str) -> Tensor:
    generator = torch.Generator(device).manual_seed(0)
    return torch.stack(list(samples(p.to(device), budget, DRAWS, generator))).cpu()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("budget", [12, 30])
def test_within_the_budget_the_probabilities_are_those_asked_for(budget: int, device: str) -> None:
    p = torch.linspace(0, 1, 12)
    drawn = draws(p, budget, device)
    assert (drawn.float().mean(0) - p).abs().max() < 0.04
    assert not drawn[:, 0].any() and drawn[:, -1].all()


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_too_much_is_lost_at_random(device: str) -> None:
    p = torch.rand(16, generator=rng())
    p[3], p[8:] = 0.0, 1.0
    drawn = draws(p, 5, device)
    assert (drawn.sum(1) == 5).all() and not drawn[:, 3].any()  # at least eight are drawn
    certain = drawn[:, 8:].float().mean(0)
    assert (certain - certain.mean()).abs().max() < 0.04
    whole = torch.stack([(torch.rand(16, generator=rng(1 + k)) < p) for k in range(DRAWS)]).float()
    expected = (whole * 5 / whole.sum(1, keepdim=True)).mean(0)  # each of those drawn stays equally likely
    assert (drawn.float().mean(0) - expected).abs().max() < 0.04


@pytest.mark.parametrize("device", DEVICES)
def test_none_and_nothing(device: str) -> None:
    p, generator = torch.ones(3, device=device), torch.Generator(device)
    assert list(samples(p, 2, 0, generator)) == []
    assert [int(flips.sum()) for flips in samples(p, 0, 4, generator)] == [0, 0, 0, 0]
    assert [flips.shape for flips in samples(p[:0], 0, 2, generator)] == [(0,), (0,)]


@pytest.mark.parametrize("device", DEVICES)
def test_draws_come_from_the_generator_alone(device: str) -> None:
    p, state = torch.rand(20, generator=rng()).to(device), torch.get_rng_state()
    first, second, other = (bernoulli(p, 5, torch.Generator(device).manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, second) and not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


ASKED = """
import torch
from graphmend.graph.budget import project, samples
p, generator = torch.rand(50, device="cuda"), torch.Generator("cuda")
project(p, 5), list(samples(p, 5, 3, generator))  # sets the device up
torch.cuda.set_sync_debug_mode("error")
project(p, 5), list(samples(p, 5, 3, generator))
"""


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_gpu_is_not_asked() -> None:
    assert RECORDED_ENTRIES > 3 * 50
    run_python(ASKED)  # in a process of its own: its mode would stay on for others
