"""The scores of the next graph, their ranks, and the bets on them."""

from __future__ import annotations

import math
from statistics import quantiles

from graphmend.monitor.evidence import Bag, level, theta
from graphmend.monitor.signs import CENTRED, KINDS, Signs, score
from graphmend.monitor.state import CENTRE, State

__all__ = ["WARM_UP", "capital_of", "found_in", "likeliest", "limit_of", "take"]

WARM_UP = 20  # graphs, at least, that a new one is compared with before anything is bet


def take(state: State, signs: Signs, graph: int, *, learns: bool = False) -> tuple[dict[str, float], dict[str, float]]:
    """The scores of a graph, and its ranks where they were bet on; the state remembers both.

    Args:
        state: What is remembered.
        signs: What was measured of the graph.
        graph: Its number.
        learns: Whether it is one of those that others are compared with, before the stream begins.
    """
    scores, p_values = dict[str, float](), dict[str, float]()
    is_usual = state.centre_graphs < CENTRE
    centre = {kind: [value / max(1, state.centre_graphs) for value in sums] for kind, sums in state.centre.items()}
    for name, kind in state.kinds.items():
        if is_usual and name in CENTRED:
            continue
        scores[name] = score(name, signs, centre)
        step = level(scores[name])
        if not learns and kind.bag.total >= WARM_UP:
            p_values[name] = kind.bag.p_value(step, theta(state.seed, graph, name))
            kind.detector.bet(p_values[name], graph)
        elif kind.detector.rounds == 0:
            kind.trusted.add(step)
        kind.bag.add(step)
    if is_usual:
        sums = state.centre or {kind: [0.0] * len(signs[kind]) for kind in CENTRED}
        state.centre = {k: [a + b for a, b in zip(sums[k], signs[k], strict=True)] for k in CENTRED}
        state.centre_graphs += 1
    return scores, p_values


def capital_of(state: State) -> dict[str, float]:
    """The capital of the bets against each kind, which began with 1, as a power of ten."""
    return {name: kind.detector.log_capital / math.log(10) for name, kind in state.kinds.items()}


def limit_of(state: State) -> float:
    """The capital, as a power of ten, at which the evidence for a kind suffices."""
    return math.log10(len(KINDS) / state.rate)


def found_in(state: State) -> list[str]:
    """The kinds for which the evidence suffices now, the strongest first."""
    capital, limit = capital_of(state), limit_of(state)
    return sorted((kind for kind in KINDS if capital[kind] >= limit), key=lambda kind: -capital[kind])


def likeliest(state: State, scores: dict[str, float]) -> str:
    """The kind of trouble that explains an alarm best: of those with half the evidence or more, the most unusual score.

    A large fault makes all ranks as small as possible, so that ranks alone would choose among its traces by chance. How
    far the score lies from those of the first graphs, in steps and in units of their spread, does not saturate. Unknown
    nodes move columns, too, but columns that have moved make no nodes unknown, so these come before them.

    Args:
        state: What is remembered; the evidence for at least one kind suffices.
        scores: Those of the last graph.
    """
    capital, limit = capital_of(state), limit_of(state)
    near = [kind for kind in KINDS if kind in scores and capital[kind] >= limit / 2]
    if "unknown" in near:
        near = [kind for kind in near if kind != "columns"]
    return max(near or found_in(state), key=lambda kind: _distance(scores.get(kind, 0.0), state.kinds[kind].trusted))


def _distance(value: float, usual: Bag) -> float:
    low, middle, high = quantiles(usual.counts.elements(), n=4)
    return (level(value) - middle) / (high - low + 1)
