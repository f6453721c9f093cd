"""The three views of an edge and its fit, against slow references that go from edge to edge."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphmend.cards import edges
from graphmend.cards.edges import POINTS, STEPS, edge_views, fit, fits_well, grid_of
from graphmend.cards.rows import PROJECTED
from support.graphs import DEVICES, directed, rng, undirected
from support.slow_edges import slow_fits, slow_percentile, slow_views

N = 12


def matrix(n: int = N, width: int = 5, seed: int = 0) -> Tensor:
    return torch.randn(n, width, generator=rng(seed), dtype=torch.float64) + 0.4


GRAPHS = {
    "undirected": undirected(N, density=0.3),
    "undirected with loops": undirected(N, density=0.3, loops=True),
    "directed": directed(N, loops=True),
    "single edges": torch.tensor([[0, 2, 5], [1, 3, 5]]),
    "an edge twice": torch.tensor([[0, 0, 1, 1, 2], [1, 1, 0, 0, 1]]),
}


@pytest.mark.parametrize("kind", GRAPHS)
def test_views_are_three_cosines(kind: str) -> None:
    x, hidden, edge_index = matrix(), matrix(width=3, seed=1), GRAPHS[kind]
    x[4] = 0.0
    hidden[2] = 0.0
    got = edge_views(x, hidden, edge_index)
    assert got.shape == (3, edge_index.size(1)) and got.dtype == torch.float64
    expected = torch.tensor(slow_views(x, hidden, edge_index), dtype=torch.float64).t()
    torch.testing.assert_close(got, expected, rtol=0, atol=0.6 / STEPS)
    assert torch.equal(got * STEPS, (got * STEPS).round())


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 4), st.floats(0.05, 0.6))
def test_views_of_random_directed_graphs(seed: int, width: int, units: int, density: float) -> None:
    x, hidden = matrix(8, width, seed), matrix(8, units, seed + 1)
    edge_index = directed(8, seed, density=density, loops=True)
    expected = torch.tensor(slow_views(x, hidden, edge_index), dtype=torch.float64).t()
    torch.testing.assert_close(edge_views(x, hidden, edge_index), expected, rtol=0, atol=0.6 / STEPS)


def test_the_size_of_rows_does_not_matter() -> None:
    x, hidden, edge_index = matrix(), matrix(seed=1), GRAPHS["undirected"]
    scale = torch.logspace(-6, 6, N, dtype=torch.float64).unsqueeze(1)
    torch.testing.assert_close(
        edge_views(x * scale, hidden * scale.flip(0), edge_index),
        edge_views(x, hidden, edge_index),
        rtol=0,
        atol=1 / STEPS,
    )


def test_both_directions_are_alike_bit_for_bit() -> None:
    x, hidden, edge_index = matrix(60, 7), matrix(60, 4, 1), undirected(60, density=0.1)
    for dtype in (torch.float32, torch.float64):
        views = edge_views(x.to(dtype), hidden.to(dtype), edge_index)
        of = {(s, t): views[:, place] for place, (s, t) in enumerate(edge_index.t().tolist())}
        assert all(torch.equal(view, of[t, s]) for (s, t), view in of.items())


@pytest.mark.parametrize("width", [PROJECTED, PROJECTED + 1, 700])
def test_wide_features_are_projected_for_the_neighbourhoods(width: int) -> None:
    x, hidden, edge_index = matrix(40, width), matrix(40, 6, 1), undirected(40, density=0.15)
    x = x + torch.randn(3, width, generator=rng(9), dtype=torch.float64)[torch.arange(40) % 3]
    got = edge_views(x, hidden, edge_index)
    exact = torch.tensor(slow_views(x, hidden, edge_index), dtype=torch.float64).t()
    torch.testing.assert_close(got[:2], exact[:2], rtol=0, atol=0.6 / STEPS)
    if width <= PROJECTED:
        torch.testing.assert_close(got[2], exact[2], rtol=0, atol=0.6 / STEPS)
        return
    generator = torch.Generator().manual_seed(0)
    projection = torch.randn(width, PROJECTED, generator=generator).double() / PROJECTED**0.5
    projected = x / torch.linalg.vector_norm(x, dim=1, keepdim=True) @ projection
    adjacency = torch.eye(40).double().index_put((edge_index[1], edge_index[0]), torch.ones(1).double())
    for place, (s, t) in enumerate(edge_index.t().tolist()):
        first, second = ((adjacency @ projected)[a] - projected[b] for a, b in ((t, s), (s, t)))
        cosine = float(first @ second / (first.norm() * second.norm()))
        assert float(got[2, place]) == pytest.approx(cosine, abs=0.6 / STEPS)
    assert 1e-4 < float((got[2] - exact[2]).abs().max()) < 4 / PROJECTED**0.5, "nearly the same angles"
    assert torch.equal(got, edge_views(x, hidden, edge_index)), "the same projection for every graph"


def test_edges_are_read_a_block_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [(matrix(23, 3), matrix(23, 5, 1), directed(23)), (matrix(23, 140), matrix(23, 2, 1), undirected(23))]
    whole = [edge_views(*case) for case in cases]
    monkeypatch.setattr(edges, "BLOCK", 21)
    for case, expected in zip(cases, whole, strict=True):
        assert torch.equal(edge_views(*case), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_single_precision_and_devices_see_equal_edges_as_equal(device: str) -> None:
    """Binary rows have few different cosines, and rounding must not split them up."""
    x = (torch.rand(50, 4, generator=rng(3)) < 0.5).double()
    hidden, edge_index = x[:, :3] @ torch.eye(3).double(), undirected(50, density=0.2)
    exact = edge_views(x, hidden, edge_index)
    rounded = edge_views(x.float().to(device), hidden.float().to(device), edge_index.to(device)).cpu()
    assert torch.equal(rounded[:2].double(), exact[:2]) and len(exact[1].unique()) < 20
    torch.testing.assert_close(rounded[2].double(), exact[2], rtol=0, atol=1 / STEPS)


def test_nothing_of_the_callers_is_touched() -> None:
    x, hidden, edge_index = matrix().requires_grad_(), matrix(seed=1), GRAPHS["directed"]
    before = [tensor.detach().clone() for tensor in (x, hidden, edge_index)]
    assert not edge_views(x, hidden, edge_index).requires_grad
    assert all(torch.equal(a, b) for a, b in zip(before, (x.detach(), hidden, edge_index), strict=True))
    with torch.inference_mode():
        assert edge_views(x, hidden, edge_index).shape[0] == 3


# ---------------------------------------------------------------- the grid and the fit


@pytest.mark.parametrize("number", [1, 2, 40, 65, 1000])
def test_the_grid_holds_quantiles(number: int) -> None:
    views = torch.randn(3, number, generator=rng(), dtype=torch.float64)
    grid = grid_of(views)
    assert grid.shape == (3, POINTS)
    for row, values in zip(grid.tolist(), views.tolist(), strict=True):
        ordered = sorted(values)
        assert row == [ordered[round(k / (POINTS - 1) * (number - 1))] for k in range(POINTS)]


numbers = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=30)


@given(numbers, numbers)
def test_ties_count_half(trained: list[float], tested: list[float]) -> None:
    grid = grid_of(torch.tensor([trained, trained[::-1], [2 * v for v in trained]]))
    views = torch.tensor([tested, [v / 2 for v in tested], tested])
    got = fit(views, grid)
    assert got.tolist() == pytest.approx(slow_fits(views, grid), abs=1e-6)
    assert float(got.min()) >= 0 and float(got.max()) <= 3


def test_percentiles_by_hand() -> None:
    assert slow_percentile(0.5, [0.0, 0.5, 0.5, 1.0]) == 0.5
    grid = torch.tensor([[0.0, 0.5, 0.5, 1.0]] * 3)
    views = torch.tensor([[-1.0, 0.5, 2.0, 0.0], [-1.0, 0.5, 2.0, 0.7], [-1.0, 0.5, 2.0, 1.0]])
    assert fit(views, grid).tolist() == [0.0, 1.5, 3.0, 0.125 + 0.75 + 0.875]


def test_the_fit_of_typical_edges_is_around_three_halves() -> None:
    views = torch.randn(3, 4000, generator=rng(), dtype=torch.float64)
    fits = fit(views, grid_of(views))
    assert float(fits.mean()) == pytest.approx(1.5, abs=0.01)
    assert torch.equal(fit(2 * views + 7, grid_of(2 * views + 7)), fits), "only their order counts"


def test_no_rounding_decides_what_fits_well() -> None:
    """A card may have been made in another type than the graph."""
    for step in range(6 * POINTS):
        fits = torch.tensor([step - 1.0, step, step + 1.0], dtype=torch.float64) / (2 * POINTS)
        for middle in (float(fits[1]), float(fits[1].float())):
            assert fits_well(fits, middle).tolist() == fits_well(fits.float(), middle).tolist() == [False, True, True]
