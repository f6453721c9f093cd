"""The standard deviation of every column: right for all means, magnitudes and sizes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphmend.engine.columns import column_deviations
from graphmend.engine.tuning import CACHED_NUMBERS, STEP_NUMBERS
from support.graphs import rng
from support.sparse_patterns import devices, dtypes


def expected(x: Tensor) -> Tensor:
    """With all rows at once, in double precision, about the exact mean."""
    exact = x.double().cpu()
    return (exact - exact.mean(0)).square().mean(0).sqrt()


def assert_right(x: Tensor, tolerance: float = 1e-6) -> None:
    found = column_deviations(x)
    assert found.dtype == x.dtype and found.device == x.device and not found.requires_grad
    torch.testing.assert_close(found.double().cpu(), expected(x), rtol=tolerance, atol=0)


@devices
@dtypes
@pytest.mark.parametrize("rows", [2, 3, 1000])
def test_against_the_formula(rows: int, dtype: torch.dtype, device: str) -> None:
    assert_right(torch.randn(rows, 7, generator=rng(), dtype=torch.float64).to(device, dtype))


@devices
def test_over_several_blocks_of_different_means(device: str) -> None:
    rows = 3 * {"cpu": CACHED_NUMBERS, "cuda": STEP_NUMBERS["cuda"]}[device] // 1000 + 7
    x = torch.randn(rows, 1000, generator=rng()) + torch.linspace(-5, 9, rows)[:, None]
    assert_right(x.to(device))


@devices
def test_a_large_mean_costs_no_digits(device: str) -> None:
    """The mean of squares less the square of the mean would be nothing but rounding here."""
    x = (1e6 + torch.randn(5000, 3, generator=rng())).to(device)
    assert_right(x)
    for far in (-1e9, 1e30):  # also where the first row, to which all others are compared, is far from them
        x[0] = far
        assert_right(x)
    x = (1e12 + torch.randn(5000, 3, generator=rng(), dtype=torch.float64)).to(device)
    assert_right(x)


def test_very_large_and_very_small_numbers() -> None:
    x = torch.randn(500, 4, generator=rng()) * torch.tensor([1e-35, 1e-20, 1e20, 1e37])
    assert_right(x)
    assert column_deviations(x).min() > 0


@devices
@dtypes
def test_a_constant_column_has_exactly_none(dtype: torch.dtype, device: str) -> None:
    x = torch.randn(999, 4, generator=rng()).to(device, dtype)
    x[:, 1], x[:, 2] = 0.1, -3e7
    found = column_deviations(x)
    assert found[1:3].tolist() == [0.0, 0.0] and found[0] > 0 and found[3] > 0
    assert column_deviations(x[:1]).tolist() == [0.0] * 4, "one row is constant"


def test_half_precision_and_other_layouts() -> None:
    x = torch.rand(70_000, 3, generator=rng())
    assert_right(x.half(), 1e-3)  # the sum of a column is above the largest number of this type
    assert_right(x.t().contiguous().t())
    assert_right(x[::2, :2].requires_grad_())
