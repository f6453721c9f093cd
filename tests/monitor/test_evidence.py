"""The martingale: its bets are fair, its formula is that of the docstring, and Ville's bound holds."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmend.monitor.evidence import BETS, POWER_BETS, STAKE, STEP_BETS, Bag, Detector, level, theta

numbers = st.floats(0, 1e12, allow_nan=False)
chances = st.floats(1e-6, 1)


def bets(p: float) -> list[float]:
    """What each bet makes of 1, as the page has it."""
    steps = [(1 - STAKE) + (STAKE / end if p <= end else 0) for end in STEP_BETS]
    return steps + [power * p ** (power - 1) for power in POWER_BETS]


def waiting(rounds: int) -> float:
    return 1 / math.log2(rounds + 2)


def slow_capital(p_values: list[float]) -> float:
    """The sum over all beginnings, term by term."""
    total = waiting(len(p_values))
    for begin in range(len(p_values)):
        share = (waiting(begin) - waiting(begin + 1)) / BETS
        total += share * sum(math.prod(column) for column in zip(*map(bets, p_values[begin:]), strict=True))
    return total


@given(st.lists(chances, max_size=30))
def test_the_capital_is_the_sum_over_all_beginnings(p_values: list[float]) -> None:
    detector = Detector()
    for graph, p in enumerate(p_values):
        detector.bet(p, graph)
    assert math.exp(detector.log_capital) == pytest.approx(slow_capital(p_values), rel=1e-9)


def test_every_bet_is_fair() -> None:
    """The mean over the unit interval is 1, so nobody gains from uniform p-values."""
    points = 200_000  # squares put more of them where a power has its pole
    grid = [((k + 0.5) / points) ** 2 for k in range(points)]
    weights = [2 * (k + 0.5) / points / points for k in range(points)]
    for column in zip(*map(bets, grid), strict=True):
        assert sum(w * gain for w, gain in zip(weights, column, strict=True)) == pytest.approx(1, abs=2e-3)


@given(st.lists(chances, min_size=1, max_size=30))
def test_it_began_where_a_single_bet_would_have_gained_most(p_values: list[float]) -> None:
    detector = Detector()
    for graph, p in enumerate(p_values):
        detector.bet(p, graph)
    gains = {
        begin: max(sum(map(math.log, column)) for column in zip(*map(bets, p_values[begin:]), strict=True))
        for begin in range(len(p_values))
    }
    best = max(gains.values())
    if best > 1e-9:
        assert detector.since is not None and gains[detector.since] == pytest.approx(best)
    elif best < -1e-9:
        assert detector.since is None


@given(st.lists(numbers, max_size=20), numbers, chances)
def test_a_p_value_is_the_share_of_numbers_at_least_as_large(before: list[float], new: float, tie: float) -> None:
    bag, step = Bag(Counter(map(level, before))), level(new)
    larger = sum(level(value) > step for value in before)
    equal = sum(level(value) == step for value in before)
    p = bag.p_value(step, tie)
    assert p == pytest.approx((larger + tie * (equal + 1)) / (len(before) + 1)) and 0 < p <= 1
    assert bag.total == len(before)


@given(numbers, numbers)
def test_levels_keep_the_order_and_are_few(a: float, b: float) -> None:
    assert (level(a) <= level(b)) if a <= b else (level(a) >= level(b))
    assert 0 <= level(a) <= 2000 and level(math.inf) == level(1e12)


@pytest.mark.parametrize("ties", [False, True])
def test_ville(ties: bool) -> None:
    """Of streams that never change, at most a tenth ever gain tenfold; not one after 300 graphs, but at any time."""
    draw, alarms, streams = random.Random(0), 0, 300
    for stream in range(streams):
        bag, detector, scale = Bag(), Detector(), draw.lognormvariate(0, 1)  # a mixture: exchangeable, not independent
        for graph in range(300):
            value = scale * draw.lognormvariate(0, 0.3)
            step = level(round(value) if ties else value)
            if graph >= 20:
                detector.bet(bag.p_value(step, theta(stream, graph, "rows")), graph)
            bag.add(step)
            if detector.log_capital >= math.log(10):
                alarms += 1
                break
    assert alarms / streams <= 0.1


def test_a_window_instead_of_all_that_was_seen_would_be_wrong() -> None:
    """Why nothing is forgotten: ranks among the last graph alone say what the next rank will be."""
    draw = random.Random(1)
    values = [draw.random() for _ in range(20_000)]
    rose = [b > a for a, b in itertools.pairwise(values)]
    after_a_rise = [b for a, b in itertools.pairwise(rose) if a]
    assert sum(after_a_rise) / len(after_a_rise) == pytest.approx(1 / 3, abs=0.02)


def test_theta_is_the_same_whenever_it_is_asked_for() -> None:
    values = [theta(0, graph, "rows") for graph in range(2000)]
    assert values == [theta(0, graph, "rows") for graph in range(2000)]
    assert min(values) > 0 and max(values) <= 1 and sum(values) / 2000 == pytest.approx(0.5, abs=0.03)
    assert theta(1, 0, "rows") != values[0] != theta(0, 0, "mix")
