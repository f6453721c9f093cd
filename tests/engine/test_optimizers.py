"""Steps of features and edge variables against the formulas and torch's own optimizers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphmend.engine.linear_maps import RowGradient
from graphmend.engine.optimizers import EDGE_UPDATES, EdgeStep, FeatureStep
from graphmend.engine.tuning import STEP_NUMBERS
from support.graphs import rng
from support.sparse_patterns import devices, dtypes

LARGE = (3 * STEP_NUMBERS["cpu"] // 1000 + 7, 1000)  # more than three blocks of rows


def adam_by_hand(p: Tensor, gradients: list[Tensor], lr: float) -> Tensor:
    mean, square = torch.zeros_like(p), torch.zeros_like(p)
    for t, g in enumerate(gradients, 1):
        mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
        p = p - lr * (mean / (1 - 0.9**t)) / ((square / (1 - 0.999**t)).sqrt() + 1e-8)
    return p


def parts_of(gradient: Tensor) -> RowGradient:
    return RowGradient(gradient, None, None)


# ---------------------------------------------------------------- features, with and without a scale for each column

SCALE = torch.tensor([1e-3, 0.0, 0.7, 400.0], dtype=torch.float64)
scales = pytest.mark.parametrize("scale", [None, SCALE], ids=["plain", "scaled"])


@devices
@dtypes
@scales
def test_steps_are_those_of_adam_on_v(scale: Tensor | None, dtype: torch.dtype, device: str) -> None:
    """The slow way: V is there, X' = X + V diag(s), and V has a gradient of its own; without a scale s is 1."""
    start, factor = torch.randn(5, 4, generator=rng(), dtype=torch.float64), torch.ones(4) if scale is None else scale
    gradients = list(torch.randn(6, 5, 4, generator=rng(1), dtype=torch.float64))
    x = start.clone().to(device, dtype)
    step = FeatureStep(x, 0.1, scale=None if scale is None else scale.to(device, dtype))
    norms = [step.take(parts_of(g.to(device, dtype))) for g in gradients]
    assert step.kind == "feature" and step.variable is x
    v = adam_by_hand(torch.zeros(5, 4, dtype=torch.float64), [g * factor for g in gradients], 0.1)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(x.double().cpu(), start + v * factor, rtol=tolerance, atol=tolerance)
    assert scale is None or torch.equal(x[:, 1].cpu(), start[:, 1].to(dtype)), "the scale 0: bit for bit"
    for norm, gradient in zip(norms, gradients, strict=True):
        assert float(norm) == pytest.approx(float((gradient * factor).norm()), rel=1e-5)


@scales
def test_a_gradient_may_come_in_parts_and_is_left_as_it_was(scale: Tensor | None) -> None:
    direct, narrow = torch.randn(5, 4, generator=rng(1)), torch.randn(5, 2, generator=rng(2))
    weights, factor = torch.randn(2, 4, generator=rng(3)), torch.ones(4) if scale is None else scale.float()
    start = torch.randn(5, 4, generator=rng())
    for gradient, dense in (
        (RowGradient(direct, None, None), direct),
        (RowGradient(direct, narrow, weights), direct + narrow @ weights),
        (RowGradient(None, narrow, weights), narrow @ weights),
        (RowGradient(None, None, None), torch.zeros(5, 4)),
        (RowGradient(direct[:1].expand(5, 4), None, None), direct[:1].expand(5, 4)),
    ):
        before = [None if part is None else part.clone() for part in gradient]
        ours = start.clone()
        norm = FeatureStep(ours, 0.1, scale=None if scale is None else factor).take(gradient)
        v = adam_by_hand(torch.zeros(5, 4), [dense * factor], 0.1)
        torch.testing.assert_close(ours, start + v * factor)
        torch.testing.assert_close(norm, (dense * factor).norm())
        if scale is not None:
            for part, kept in zip(gradient, before, strict=True):
                assert part is kept is None or torch.equal(part, kept)


@pytest.mark.parametrize("is_scaled", [False, True])
def test_blocks_of_rows_leave_no_trace_and_are_told_once_they_are_done(is_scaled: bool) -> None:
    x, scale = torch.randn(LARGE, generator=rng()), torch.rand(LARGE[1], generator=rng(2))
    scale = scale if is_scaled else torch.ones_like(scale)
    gradients = torch.randn(2, *LARGE, generator=rng(1))
    v = adam_by_hand(torch.zeros(LARGE), list(gradients * scale), 0.1)
    expected, told, blocks = x + v * scale, torch.empty_like(x), list[tuple[int, int]]()
    step = FeatureStep(x, 0.1, scale=scale if is_scaled else None)
    assert not is_scaled or (step.change is not None and 3 * step.change.numel() < x.numel()), "only a block of it"

    def after(start: int, stop: int) -> None:
        blocks.append((start, stop))
        told[start:stop] = x[start:stop]
        assert torch.equal(x[stop:], before[stop:])

    for gradient in gradients:
        before = x.clone()
        blocks.clear()
        norm = step.take(parts_of(gradient), after)
        assert float(norm) == pytest.approx(float((gradient * scale).double().norm()), rel=1e-5)
        assert len(blocks) > 3 and [start for start, _ in blocks[1:]] == [stop for _, stop in blocks[:-1]]
        assert blocks[0][0] == 0 and blocks[-1][1] == LARGE[0]
    torch.testing.assert_close(x, expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(told, x)


@pytest.mark.parametrize("scale", [None, torch.tensor([0.1, 10.0])], ids=["plain", "scaled"])
def test_features_are_brought_back_into_their_limits(scale: Tensor | None) -> None:
    """The limits are in the features' own units, and hold after the step."""
    x = torch.zeros(3, 2)

    def project(x: Tensor) -> None:
        x.clamp_(-0.25, 0.25)

    step = FeatureStep(x, 0.5, project, scale)
    for _ in range(2):
        step.take(parts_of(torch.tensor([[1.0, -1.0]]).expand(3, 2).contiguous()))
    torch.testing.assert_close(x, torch.tensor([[-0.25 if scale is None else -0.1, 0.25]]).expand(3, 2))


@pytest.mark.parametrize("scale", [None, torch.tensor([1.0, 0.0])], ids=["plain", "scaled"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("column", [0, 1])
def test_a_gradient_that_is_not_finite_shows_in_the_norm(value: float, column: int, scale: Tensor | None) -> None:
    gradient = torch.ones(3, 2)
    gradient[1, column] = value
    assert not FeatureStep(torch.zeros(3, 2), 0.5, scale=scale).take(parts_of(gradient)).isfinite()


def test_it_is_torchs_own_adam() -> None:
    x = torch.randn(5, 3, generator=rng())
    theirs = x.clone().requires_grad_()
    step, optimizer = FeatureStep(x, 0.01), torch.optim.Adam([theirs], lr=0.01)
    for seed in range(5):
        theirs.grad = torch.randn(5, 3, generator=rng(seed))
        step.take(RowGradient(theirs.grad.clone(), None, None))
        optimizer.step()
    torch.testing.assert_close(x, theirs.detach())


def test_features_that_want_a_gradient_may_take_a_step() -> None:
    x = torch.zeros(3, 2, requires_grad=True)
    FeatureStep(x, 0.5).take(RowGradient(torch.ones(3, 2), None, None))
    assert x.is_leaf and x.requires_grad
    torch.testing.assert_close(x.detach(), torch.full((3, 2), -0.5))


def test_a_scale_of_one_changes_nothing() -> None:
    start = torch.randn(5, 3, generator=rng(), dtype=torch.float64)
    plain, scaled = start.clone(), start.clone()
    steps = FeatureStep(plain, 0.1), FeatureStep(scaled, 0.1, scale=torch.ones(3, dtype=torch.float64))
    for seed in range(4):
        gradient = torch.randn(5, 3, generator=rng(seed), dtype=torch.float64)
        norms = [step.take(RowGradient(gradient.clone(), None, None)) for step in steps]
        assert norms[0] == norms[1]
    torch.testing.assert_close(plain, scaled, rtol=1e-14, atol=1e-14)


def test_a_small_gradient_in_small_units_is_not_lost_in_adams_epsilon() -> None:
    """Scaling the step alone, and not the gradient, would not do: Adam compares the gradient with 1e-8."""
    gradient = torch.randn(5, 4, generator=rng(), dtype=torch.float64) * 1e-6
    moved = []
    for unit in (1.0, 1e-6, 1e6):
        x = torch.zeros(5, 4, dtype=torch.float64)
        step = FeatureStep(x, 0.1, scale=torch.full((4,), unit, dtype=torch.float64))
        step.take(RowGradient(gradient / unit, None, None))
        moved.append(x / unit)
    torch.testing.assert_close(moved[1], moved[0], rtol=1e-12, atol=0)
    torch.testing.assert_close(moved[2], moved[0], rtol=1e-12, atol=0)


# ---------------------------------------------------------------- edge variables


@pytest.mark.parametrize("name", EDGE_UPDATES)
def test_updates(name: str) -> None:
    gradients = list(torch.randn(4, 6, generator=rng(), dtype=torch.float64) * 1e-7)  # where 1e-8 matters
    start = torch.rand(6, generator=rng(1), dtype=torch.float64)
    p = start.clone()
    update = EDGE_UPDATES[name](p, 0.1)
    for g in gradients:
        update(g)
    expected = {
        "adam": adam_by_hand(start, gradients, 0.1),
        "sign": start - sum(0.1 * g / (g.abs() + 1e-8) for g in gradients),
        "gradient": start - 0.1 * sum(gradients),
    }[name]
    torch.testing.assert_close(p, expected, rtol=1e-9, atol=1e-12)
    assert not torch.equal(p, start)


@devices
@pytest.mark.parametrize("name", EDGE_UPDATES)
def test_edge_variables_are_projected_in_place(name: str, device: str) -> None:
    """A public re-implementation rebinds the tensor after making its optimizer, and the variables never move."""
    p = torch.full((4,), 0.5, device=device)
    place, gradient = p.data_ptr(), torch.tensor([1.0, -1.0, 3.0, 0.0], device=device)
    step = EdgeStep(p, EDGE_UPDATES[name](p, 0.25), lambda p: p.clamp(0.375, 0.625))
    norm = step.take(gradient)
    assert step.kind == "edge" and step.variable is p and p.data_ptr() == place
    torch.testing.assert_close(p, torch.tensor([0.375, 0.625, 0.375, 0.5], device=device))
    assert float(norm) == pytest.approx(float(gradient.norm()))
