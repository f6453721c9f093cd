"""Mean cosines and their gradients against the formula written out, and finite differences."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from graphmend.engine.cosine import mean_cosines
from support.graphs import rng
from support.sparse_patterns import devices, dtypes, halves


def matrices(number: int, rows: int = 7, width: int = 5) -> list[Tensor]:
    return [torch.randn(rows, width, generator=rng(seed), dtype=torch.float64) for seed in range(number)]


def by_hand(z: Tensor, *others: Tensor) -> Tensor:
    """Row by row; a zero row has cosine 0 with every other one."""
    means = []
    for other in others:
        rows = [
            (a @ b) / (a.norm() * b.norm()) if a.any() and b.any() else 0.0 * (a @ b)
            for a, b in zip(z, other, strict=True)
        ]
        means.append(torch.stack(rows).mean())
    return torch.stack(means)


@devices
@dtypes
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (7, 5), (70, 33), (9, 130)])
@pytest.mark.parametrize("others", [1, 2, 3])
def test_means_and_gradients_are_the_formula(
    others: int, rows: int, width: int, dtype: torch.dtype, device: str
) -> None:
    seen = torch.randn(others, generator=rng(9), dtype=torch.float64)
    results = []
    for function, kind, where in ((by_hand, torch.float64, "cpu"), (mean_cosines, dtype, device)):
        given = [matrix.to(where, kind).requires_grad_() for matrix in matrices(1 + others, rows, width)]
        out = function(*given)
        assert out.shape == (others,) and out.dtype == kind
        results.append([out, *torch.autograd.grad((out * seen.to(where, kind)).sum(), given)])
    for actual, expected in zip(results[1], results[0], strict=True):
        tolerance = 1e-12 if dtype == torch.float64 else 1e-5
        torch.testing.assert_close(actual.double().cpu(), expected, atol=tolerance, rtol=tolerance)


def test_gradients_equal_finite_differences() -> None:
    assert torch.autograd.gradcheck(mean_cosines, [matrix.requires_grad_() for matrix in matrices(3)])


def test_it_is_torchs_own_cosine() -> None:
    z, u, v = matrices(3)
    expected = [F.cosine_similarity(z, u).mean(), F.cosine_similarity(z, v).mean()]
    torch.testing.assert_close(mean_cosines(z, u, v), torch.stack(expected))
    assert float(mean_cosines(z, 5 * z)) == pytest.approx(1.0)
    assert float(mean_cosines(z, -z)) == pytest.approx(-1.0)
    twice = mean_cosines(torch.cat([z, z]), torch.cat([u, u]))  # a sum would be twice as large
    torch.testing.assert_close(twice, mean_cosines(z, u))


@devices
def test_many_rows_are_taken_block_by_block(device: str) -> None:
    u, v = (matrix.to(device).requires_grad_() for matrix in matrices(2, 70_000))
    ours = mean_cosines(u, v)
    expected = ((u * v).sum(1) / (u.norm(dim=1) * v.norm(dim=1))).mean()
    torch.testing.assert_close(ours[0], expected)
    grads = (torch.autograd.grad(loss.sum(), (u, v)) for loss in (ours, expected))
    for actual, wanted in zip(*grads, strict=True):
        torch.testing.assert_close(actual, wanted)


@devices
@dtypes
def test_zero_rows_have_cosine_zero_and_no_gradient(dtype: torch.dtype, device: str) -> None:
    """Rows die under ReLU; one NaN there would end every adaptation."""
    u, v = (matrix.to(device, dtype) for matrix in matrices(2, 4))
    u[1], v[2], u[3], v[3] = 0.0, 0.0, 0.0, 0.0
    u.requires_grad_(), v.requires_grad_()
    out = mean_cosines(u, v)
    torch.testing.assert_close(out.double().cpu(), by_hand(u.double().cpu(), v.double().cpu()), atol=1e-6, rtol=0)
    out.sum().backward()
    for matrix in (u, v):
        assert torch.isfinite(matrix.grad).all() and matrix.grad[0].any() and not matrix.grad[3].any()
    assert not u.grad[1].any() and not v.grad[2].any()  # no direction, no gradient


@devices
@pytest.mark.parametrize("scale", [1e-20, 1e-15, 1e15])
def test_the_length_of_rows_does_not_matter(scale: float, device: str) -> None:
    """The product of two tiny norms would not be a number any more."""
    u, v = (matrix.to(device, torch.float32) for matrix in matrices(2))
    small = (scale * u).requires_grad_()
    out = mean_cosines(small, v)
    torch.testing.assert_close(out.detach(), mean_cosines(u, v))
    assert torch.isfinite(torch.autograd.grad(out.sum(), small)[0]).all()


@devices
@halves
def test_half_precision_is_computed_in_single_precision(half: torch.dtype, device: str) -> None:
    given = [matrix.to(device, half).requires_grad_() for matrix in matrices(3, 50)]
    single = [matrix.detach().float().requires_grad_() for matrix in given]
    out, expected = mean_cosines(*given), mean_cosines(*single)
    assert out.dtype == torch.float32 and torch.equal(out, expected)  # a loss keeps its digits
    grads = (torch.autograd.grad(y.sum(), m) for y, m in ((out, given), (expected, single)))
    for actual, wanted in zip(*grads, strict=True):
        assert actual.dtype == half and torch.equal(actual, wanted.to(half))


@devices
def test_automatic_casts_do_not_reach_inside(device: str) -> None:
    given = [matrix.to(device, torch.float32) for matrix in matrices(2)]
    with torch.autocast(device, dtype=torch.bfloat16):
        inside = mean_cosines(*given)
    assert torch.equal(inside, mean_cosines(*given))


@devices
def test_rows_may_be_strided(device: str) -> None:
    z, u = (matrix.to(device, torch.float32) for matrix in matrices(2, 8, 6))
    expected = mean_cosines(z[:, :3].contiguous(), u[:, 3:].contiguous())
    torch.testing.assert_close(mean_cosines(z[:, :3], u[:, 3:]), expected)
    torch.testing.assert_close(mean_cosines(z.t().contiguous().t()[:, :3], u[:, 3:]), expected)
