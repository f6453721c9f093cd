"""The projection onto the budget against exact rational arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphmend.graph.budget import by_sorting, project
from graphs import DEVICES, rng

pytestmark = pytest.mark.usefixtures("one_thread")

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
@example([1e30] * 7, 2.5, torch.float32)
@example([1e30, -1e30, 1e30, 0.5], 1.0, torch.float64)
@example([0.9, 0.8, 0.7], 0.0, torch.float64)
@example([5.0, 4.0, 0.1], 3.0, torch.float64)
@example([5.0, 4.0, 0.1], 2.0, torch.float64)
@given(vectors, budgets, st.sampled_from([torch.float32, torch.float64]))
def test_equals_the_exact_projection(values: Vector, budget: float, dtype: torch.dtype) -> None:
    assert_projected(torch.tensor(values, dtype=dtype), budget)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("value", [0.3, 1.0, 7.0, 1e30])
@pytest.mark.parametrize("budget", [0, 1, 2.5, 8, 9, 10, 11])
def test_equal_values_share_the_budget(value: float, budget: float, dtype: torch.dtype) -> None:
    out = project(torch.full((10,), value, dtype=dtype), budget)
    share = min(value, 1.0, budget / 10)
    torch.testing.assert_close(out, torch.full((10,), share, dtype=dtype), rtol=0, atol=1e-6)


def test_what_is_within_the_budget_is_only_clipped() -> None:
    p = torch.tensor([-0.5, 0.25, 3.0, 0.5])
    assert torch.equal(project(p, 2), torch.tensor([0.0, 0.25, 1.0, 0.5]))
    assert torch.equal(project(p, 4), torch.tensor([0.0, 0.25, 1.0, 0.5]))


def test_it_is_the_nearest_point() -> None:
    """Not only feasible: no random feasible point is nearer."""
    generator = rng(3)
    p = torch.randn(12, generator=generator, dtype=torch.float64) + 0.5
    best = (project(p, 2.0) - p).square().sum()
    for _ in range(300):
        other = torch.rand(12, generator=generator, dtype=torch.float64)
        other = other * min(1.0, 2.0 / float(other.sum()))
        assert (other - p).square().sum() >= best - 1e-12


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
    ranked = (
        p.double().sort(descending=True).values
    )  # all within [0, 1]: gamma solves sum of the k largest - k gamma = B
    k = torch.arange(1, ranked.numel() + 1, device=p.device)
    gammas = (ranked.cumsum(0) - 777) / k
    gamma = gammas[(ranked > gammas).nonzero().max()]
    torch.testing.assert_close(out.double(), (p.double() - gamma).clamp(0, 1), rtol=0, atol=1e-6)
    assert abs(float(out.double().sum()) - 777) < 1e-3
