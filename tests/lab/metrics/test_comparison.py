"""Paired tests and ranks, by hand and against the ranks that the GTrans paper prints."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betainc

from graphmend.errors import GraphMendError
from graphmend.lab.metrics import average_rank, compare_paired, holm

OOM = None
DATASETS = ("Photo", "Cora", "Elliptic", "FB100", "Arxiv", "Twitch")
PUBLISHED: dict[str, dict[str, tuple[tuple[float | None, ...], float]]] = {
    "GCN": {
        "ERM": ((93.79, 91.59, 50.90, 54.04, 38.59, 59.89), 3.8),
        "DropEdge": ((92.11, 81.01, 53.96, 53.00, 41.26, 59.95), 3.6),
        "Tent": ((94.03, 91.87, 51.71, 54.16, 39.33, 59.46), 3.3),
        "EERM": ((94.05, 87.21, 53.96, 54.24, OOM, 59.85), 2.9),
        "GTrans": ((94.13, 94.66, 55.88, 54.32, 41.59, 60.42), 1.0),
    },
    "SAGE": {
        "ERM": ((95.09, 99.67, 56.12, 54.70, 39.56, 62.06), 3.2),
        "DropEdge": ((92.61, 95.85, 52.38, 54.51, 38.89, 62.14), 4.2),
        "Tent": ((95.72, 99.80, 55.89, 54.86, 39.58, 62.09), 2.3),
        "EERM": ((95.57, 98.77, 58.20, 54.28, OOM, 62.11), 3.4),
        "GTrans": ((96.91, 99.45, 60.81, 54.64, 40.39, 62.15), 1.7),
    },
    "GAT": {
        "ERM": ((96.30, 94.81, 65.36, 51.77, 40.63, 58.53), 3.0),
        "DropEdge": ((90.70, 76.91, 63.78, 52.65, 42.48, 58.89), 3.3),
        "Tent": ((95.99, 95.91, 66.07, 51.47, 40.06, 58.33), 3.3),
        "EERM": ((95.57, 85.00, 58.14, 53.30, OOM, 59.84), 3.0),
        "GTrans": ((96.67, 96.37, 66.43, 51.16, 43.76, 58.59), 2.0),
    },
    "GPR": {
        "ERM": ((91.87, 93.00, 64.59, 54.51, 44.38, 59.72), 2.7),
        "DropEdge": ((88.81, 79.27, 61.02, 55.04, 43.65, 59.89), 3.3),
        "EERM": ((90.78, 88.82, 67.27, 55.95, OOM, 61.57), 2.0),
        "GTrans": ((91.93, 93.05, 69.03, 54.38, 46.00, 60.11), 1.7),
    },
}
"""Average scores of the paper's main table, with the rank that it prints."""


@pytest.mark.parametrize("backbone", PUBLISHED)
def test_the_published_ranks_come_out(backbone: str) -> None:
    rows = PUBLISHED[backbone]
    table = {method: dict(zip(DATASETS, scores, strict=True)) for method, (scores, _) in rows.items()}
    for method, rank in average_rank(table).items():
        assert rank == pytest.approx(rows[method][1], abs=0.051), method


def test_equal_scores_share_their_ranks_and_missing_ones_do_not_count() -> None:
    table = {
        "a": {"one": 3.0, "two": 1.0, "three": 5.0},
        "b": {"one": 3.0, "two": None, "three": 6.0},
        "c": {"one": 1.0, "two": 2.0, "three": float("nan")},
        "d": {},
    }
    ranks = average_rank(table)
    assert [ranks[name] for name in "abc"] == pytest.approx([(1.5 + 2 + 2) / 3, (1.5 + 1) / 2, (3 + 1) / 2])
    assert math.isnan(ranks["d"]) and list(ranks) == list("abcd")
    upside_down = average_rank(table, higher_is_better=False)
    assert upside_down["c"] == pytest.approx((1 + 2) / 2)
    with pytest.raises(GraphMendError, match="the table is empty"):
        average_rank({})


@given(st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=5))
def test_ranks_count_who_is_better(rows: list[list[int]]) -> None:
    """One plus the number of better ones, plus half a rank for each equal one."""
    table = {f"method {k}": {f"set {d}": float(v) for d, v in enumerate(row)} for k, row in enumerate(rows)}
    for k, rank in enumerate(average_rank(table).values()):
        expected = 0.0
        for d in range(3):
            others = [row[d] for j, row in enumerate(rows) if j != k]
            expected += 1 + sum(o > rows[k][d] for o in others) + 0.5 * sum(o == rows[k][d] for o in others)
        assert rank == pytest.approx(expected / 3)


scores = st.lists(st.integers(-50, 50).map(lambda value: value / 7), min_size=2, max_size=9)


@given(scores, st.integers(0, 1000))
def test_the_paired_test_is_the_formula(a: list[float], shift: int) -> None:
    b = [value + math.sin(k + shift) for k, value in enumerate(a)]
    differences = [x - y for x, y in zip(a, b, strict=True)]
    n = len(a)
    mean = sum(differences) / n
    variance = sum((d - mean) ** 2 for d in differences) / (n - 1)
    t = mean / math.sqrt(variance / n)
    expected = float(betainc((n - 1) / 2, 0.5, (n - 1) / (n - 1 + t * t)))  # two tails of Student's distribution
    result = compare_paired(a, b)
    assert result.difference == pytest.approx(mean) and result.t == pytest.approx(t, rel=1e-6)
    assert result.p == pytest.approx(expected, rel=1e-6)
    assert compare_paired(b, a).p == pytest.approx(result.p)


def test_pairs_that_all_differ_by_the_same_amount() -> None:
    a = [0.1, 0.7, 0.3]
    same = compare_paired(a, a)
    assert (same.difference, same.t, same.p) == (0.0, 0.0, 1.0)
    better, worse = compare_paired([x + 0.1 for x in a], a), compare_paired(a, [x + 0.1 for x in a])
    assert (better.t, better.p, worse.t, worse.p) == (math.inf, 0.0, -math.inf, 0.0)
    assert better.difference == pytest.approx(0.1)


def test_pairs_that_are_none_are_named() -> None:
    with pytest.raises(GraphMendError, match=r"belong together in pairs \(got 3 and 2\)"):
        compare_paired([1, 2, 3], [1, 2])
    with pytest.raises(GraphMendError, match=r"at least two pairs \(got 1\)"):
        compare_paired([1], [2])
    with pytest.raises(GraphMendError, match="must be finite"):
        compare_paired([1, float("nan")], [2, 3])


def test_holm_by_hand() -> None:
    """The example of many textbooks: 0.01, 0.04, 0.03, 0.005."""
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert adjusted == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert list(adjusted) == list("abcd") and holm({}) == {}
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}
    with pytest.raises(GraphMendError, match=r"must be in \[0, 1\] \(got \[1.5\]\)"):
        holm({"a": 1.5})


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.001, 0.999))
def test_holm_rejects_what_stepping_down_rejects(values: list[float], level: float) -> None:
    adjusted = holm({str(k): value for k, value in enumerate(values)})
    rejected = set()
    for step, k in enumerate(sorted(range(len(values)), key=lambda k: values[k])):
        if values[k] * (len(values) - step) > level:
            break
        rejected.add(str(k))
    assert {name for name, value in adjusted.items() if value <= level} == rejected
    assert all(adjusted[str(k)] >= value for k, value in enumerate(values))
