"""The central moment discrepancy column by column and row by row."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from graphmend.errors import GraphMendError
from graphmend.lab.metrics import central_moment_discrepancy, cmd
from support.graphs import rng

pytestmark = pytest.mark.usefixtures("one_thread")


def slow(u: list[list[float]], v: list[list[float]], moments: int) -> float:
    def central(rows: list[list[float]], column: int, power: int) -> float:
        mean = sum(row[column] for row in rows) / len(rows)
        return mean if power == 1 else sum((row[column] - mean) ** power for row in rows) / len(rows)

    total = 0.0
    for power in range(1, moments + 1):
        total += math.sqrt(sum((central(u, k, power) - central(v, k, power)) ** 2 for k in range(len(u[0]))))
    return total


def rows(number: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(number, 4, generator=rng(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("moments", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_it_is_the_formula(moments: int, dtype: torch.dtype) -> None:
    u, v = rows(7, 1, dtype), 2 * rows(11, 2, dtype) + 1
    assert cmd(u, v, moments) == pytest.approx(slow(u.tolist(), v.tolist(), moments), rel=1e-12)


def test_five_moments_are_the_default_and_both_sides_count_the_same() -> None:
    u, v = rows(7, 1), 2 * rows(11, 2) + 1
    assert cmd(u, v) == cmd(u, v, 5) == pytest.approx(cmd(v, u))
    assert cmd(u, u) == 0.0 and cmd(u, u[torch.randperm(7)]) == pytest.approx(0.0, abs=1e-12)


def test_a_shift_changes_the_first_moment_alone() -> None:
    u = rows(9, 1)
    shift = torch.tensor([3.0, 0.0, 0.0, 4.0], dtype=torch.float64)
    assert cmd(u, u + shift) == pytest.approx(5.0)


def test_a_gradient_is_neither_needed_nor_made() -> None:
    assert isinstance(cmd(rows(3, 1).requires_grad_(), rows(3, 2)), float)


@pytest.mark.parametrize("moments", [1, 3, 5])
def test_the_loss_is_the_same_and_can_be_differentiated(moments: int) -> None:
    u, v = rows(7, 1).requires_grad_(), 2 * rows(5, 2) + 1
    assert central_moment_discrepancy(u, v, moments).item() == cmd(u, v, moments)
    assert torch.autograd.gradcheck(lambda a, b: central_moment_discrepancy(a, b, moments), (u, v.requires_grad_()))
    assert central_moment_discrepancy(u.float(), v.float(), moments).dtype == torch.float32


def test_equal_samples_have_a_finite_gradient() -> None:
    u = rows(5, 1).requires_grad_()
    central_moment_discrepancy(u, u.flip(0).detach()).backward()  # type: ignore[no-untyped-call]
    assert u.grad is not None and torch.isfinite(u.grad).all()


def test_what_cannot_be_compared_is_named() -> None:
    with pytest.raises(GraphMendError, match=r"same number of columns \(got \(3, 4\) and \(3, 2\)\)"):
        cmd(rows(3, 1), rows(3, 1)[:, :2])
    with pytest.raises(GraphMendError, match=r"at least one row in each matrix \(got \(0, 4\)"):
        cmd(rows(3, 1)[:0], rows(3, 1))
    with pytest.raises(GraphMendError, match=r"moments must be a whole number of at least 1 \(got 0\)"):
        cmd(rows(3, 1), rows(3, 1), 0)
