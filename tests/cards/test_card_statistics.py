"""The numbers of a source card, each against a slow reference that goes through rows and edges one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphmend.cards import edges, rows
from graphmend.cards.edges import pair_counts
from graphmend.cards.moments import Moments, moments
from graphmend.cards.rows import ROW_STATISTICS, in_blocks, quantiles, row_statistics, set_apart, usual
from graphmend.outputs import probabilities
from support.graphs import directed, rng


def matrix(n: int = 11, width: int = 4, seed: int = 0) -> Tensor:
    return 2 * torch.randn(n, width, generator=rng(seed), dtype=torch.float64) + 0.7


def shares(n: int = 11, classes: int = 3) -> Tensor:
    return torch.randn(n, classes, generator=rng(5), dtype=torch.float64).softmax(1)


def slow_moments(h: Tensor) -> tuple[list[float], list[float]]:
    columns = h.t().tolist()
    means = [math.fsum(column) / len(column) for column in columns]
    deviations = [
        math.sqrt(math.fsum((v - m) ** 2 for v in column) / len(column))
        for column, m in zip(columns, means, strict=True)
    ]
    return means, deviations


def test_moments() -> None:
    h = matrix()
    means, deviations = slow_moments(h)
    assert moments(h).mean.tolist() == pytest.approx(means, rel=1e-12)
    assert moments(h).std.tolist() == pytest.approx(deviations, rel=1e-12)
    assert moments(h[:1]).std.tolist() == [0.0] * 4, "of a single row, without a warning"


def test_the_distance_of_moments() -> None:
    card, now = moments(matrix()), moments(1.4 * matrix(seed=1) - 0.2)
    total = 0.0
    for k in range(4):
        unit = float(card.std[k])
        total += ((float(now.mean[k]) - float(card.mean[k])) / unit) ** 2 + ((float(now.std[k]) - unit) / unit) ** 2
    assert card.distance(now) == pytest.approx(math.sqrt(total / 4), rel=1e-12)
    assert float(card.squared_distance(now)) == pytest.approx(total / 4, rel=1e-12)
    assert card.distance(card) == 0.0


def test_columns_that_hardly_vary_count_little() -> None:
    card = Moments(torch.zeros(4), torch.tensor([1.0, 1.0, 2.0, 1e-9]))
    floor = 0.05 * float(card.std.mean())
    assert card.unit.tolist() == pytest.approx([1.0, 1.0, 2.0, floor])
    now = Moments(torch.tensor([0.0, 0.0, 0.0, 0.1]), card.std)
    assert card.distance(now) == pytest.approx(0.1 / floor / 2, rel=1e-6)
    still = Moments(torch.zeros(2), torch.zeros(2))
    assert bool((still.unit > 0).all()) and still.distance(still) == 0.0, "a constant representation"


ROWS = torch.tensor(
    [[0.0, 0.0, 0.0], [1.0, 0.0, -2.0], [0.5, 0.5, 0.5], [-30.0, 0.0, 0.0], [0.0, 1e-20, 0.0]], dtype=torch.float64
)


@pytest.mark.parametrize("bounded", [True, False])
def test_row_statistics(bounded: bool) -> None:
    low, high = torch.tensor([-1.0, -1.0, -1.0]).double(), torch.tensor([1.0, 0.4, 1.0]).double()
    got = row_statistics(ROWS, low, high) if bounded else row_statistics(ROWS)
    assert got.shape == (5, len(ROW_STATISTICS))
    for row, values in zip(got.tolist(), ROWS.tolist(), strict=True):
        norm = math.sqrt(sum(v * v for v in values))
        density = sum(v != 0 for v in values) / 3
        outside = sum(not lo <= v <= hi for v, lo, hi in zip(values, low.tolist(), high.tolist(), strict=True)) / 3
        logs = [math.log(max(v, 1e-12)) for v in (norm, density, max(map(abs, values)))]
        assert row == pytest.approx([*logs, outside if bounded else 0.0], rel=1e-12)


def test_large_matrices_are_read_a_block_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    x, edge_index = matrix(23, 3), directed(23)
    whole = row_statistics(x)
    counts = pair_counts(shares(23), edge_index)
    monkeypatch.setattr(rows, "CACHED_NUMBERS", 7)
    monkeypatch.setattr(edges, "CACHED_NUMBERS", 7)
    assert len(in_blocks(x)) == 12 and torch.equal(torch.cat(in_blocks(x)), x)
    assert torch.equal(row_statistics(x), whole)
    torch.testing.assert_close(pair_counts(shares(23), edge_index), counts)


@settings(max_examples=50)
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=40), st.lists(st.floats(0, 1), min_size=1, max_size=4))
def test_quantiles_are_the_nearest_of_the_values(values: list[float], levels: list[float]) -> None:
    got = quantiles(torch.tensor(values, dtype=torch.float64).unsqueeze(1), levels).view(-1).tolist()
    for level, value in zip(levels, got, strict=True):
        assert value == sorted(values)[round(level * (len(values) - 1))]


@pytest.mark.parametrize("broken", [0, 800, 1900])
def test_the_usual_number_and_deviation_hold_while_fewer_than_half_of_the_numbers_are_broken(broken: int) -> None:
    x = 5 + 3 * torch.randn(4000, 1, generator=rng(), dtype=torch.float64)
    x[:broken] = 1e6
    centre, deviation = usual(x, 0.0)
    assert float(centre) == pytest.approx(5, abs=1.5) and 2.5 < float(deviation) < 10
    assert float(usual(torch.zeros(3, 1), 0.7)[1]) == pytest.approx(0.7), "the least deviation"


@given(st.lists(st.floats(0, 1.9), min_size=3, max_size=30), st.lists(st.floats(8, 100), max_size=10))
def test_rows_beyond_a_gap_are_set_apart(near: list[float], far: list[float]) -> None:
    assert set_apart(torch.tensor([*near, *far])).tolist() == [False] * len(near) + [True] * len(far)


def test_a_tail_is_not_set_apart_however_long() -> None:
    assert not bool(set_apart(torch.logspace(-1, 3, 200)).any())
    few = torch.cat([torch.zeros(100), torch.full((1,), 3.0), torch.full((20,), 5.0)])
    assert set_apart(few).sum() == 20, "a straggler in the gap does not fill it"


def test_pair_counts() -> None:
    p, edge_index = shares(), directed(11, loops=True)
    slow = np.zeros((3, 3))
    for j, i in edge_index.t().tolist():
        for a in range(3):
            for b in range(3):
                slow[a, b] += float(p[j, a]) * float(p[i, b])
    np.testing.assert_allclose(pair_counts(p, edge_index).numpy(), slow, rtol=1e-12)
    hard = torch.eye(3)[torch.arange(11) % 3]
    counted = pair_counts(hard, edge_index)
    pairs = (edge_index % 3).t().tolist()
    assert counted.tolist() == [[float(pairs.count([a, b])) for b in range(3)] for a in range(3)]


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_probabilities_of_every_kind_of_output(temperature: float) -> None:
    logits = matrix(6, 3)

    def slow(scores: list[float]) -> list[float]:
        powers = [math.exp(s / temperature) for s in scores]
        return [p / sum(powers) for p in powers]

    expected = [slow(row) for row in logits.tolist()]
    np.testing.assert_allclose(probabilities(logits, temperature), expected, rtol=1e-12)
    if temperature == 1.0:
        np.testing.assert_allclose(probabilities(logits.log_softmax(1)), expected, rtol=1e-12)
    binary = [slow([0.0, score]) for score in logits[:, 0].tolist()]
    outputs: list[Any] = [logits[:, 0], logits[:, :1]]
    for output in outputs:
        np.testing.assert_allclose(probabilities(output, temperature), binary, rtol=1e-12)
