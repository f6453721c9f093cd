"""Methods beside each other: paired tests over seeds, and average ranks over data sets."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.stats import rankdata, ttest_rel

from graphmend.errors import require

__all__ = ["PairedTest", "average_rank", "compare_paired", "holm"]

K = TypeVar("K", bound=Hashable)
_ROUNDING = 1e-12  # differences that differ by less than this share of the largest one are the same


@dataclass(frozen=True)
class PairedTest:
    """The result of a two-sided paired t-test.

    Example:
        >>> from graphmend.lab.metrics import PairedTest, compare_paired
        >>> test = compare_paired([0.9, 0.8, 0.85], [0.8, 0.75, 0.7])
        >>> isinstance(test, PairedTest), round(test.difference, 3)
        (True, 0.1)
    """

    difference: float  #: mean of a - b
    t: float  #: the statistic; infinite where all pairs differ by the same amount
    p: float  #: probability of a difference at least as large if there is none in truth


def compare_paired(a: Sequence[float], b: Sequence[float]) -> PairedTest:
    """Test whether two methods differ on average, when both have run with the same seeds.

    Correct the p-values of several comparisons with :func:`holm`.

    Args:
        a: Scores of one method, one per seed.
        b: Scores of the other one for the same seeds, in the same order.

    Example:
        >>> from graphmend.lab.metrics import compare_paired
        >>> compare_paired([0.9, 0.8, 0.85], [0.8, 0.75, 0.7]).p < 0.1
        True
    """
    require(len(a) == len(b), f"paired scores belong together in pairs (got {len(a)} and {len(b)})")
    require(len(a) >= 2, f"a paired test needs at least two pairs (got {len(a)}); run more seeds")
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    differences = first - second
    require(bool(np.isfinite(differences).all()), "scores must be finite numbers; leave out the seeds that have none")
    mean = float(differences.mean())
    if float(np.ptp(differences)) <= _ROUNDING * float(np.abs(differences).max()):  # scipy would divide by zero
        return PairedTest(mean, math.copysign(math.inf, mean), 0.0) if mean else PairedTest(0.0, 0.0, 1.0)
    result = ttest_rel(first, second)
    return PairedTest(mean, float(result.statistic), float(result.pvalue))


def holm(p_values: Mapping[K, float]) -> dict[K, float]:
    r"""Adjust the p-values of several tests for their number (Holm, 1979).

    .. math:: \tilde p_{(k)} = \max_{l \le k} \min\left(1, (m - l + 1) \, p_{(l)}\right)

    with the p-values in ascending order. Tests with :math:`\tilde p \le \alpha` reject; the chance that any of them is
    wrong is at most :math:`\alpha`.

    Args:
        p_values: p-values by name.

    Example:
        >>> from graphmend.lab.metrics import holm
        >>> holm({"Cora": 0.01, "Photo": 0.04})
        {'Cora': 0.02, 'Photo': 0.04}
    """
    wrong = [name for name, p in p_values.items() if not 0.0 <= p <= 1.0]
    require(not wrong, f"p-values must be in [0, 1] (got {[p_values[name] for name in wrong]})")
    adjusted: dict[K, float] = {}
    highest = 0.0
    for k, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        highest = max(highest, min(1.0, (len(p_values) - k) * p_values[name]))
        adjusted[name] = highest
    return {name: adjusted[name] for name in p_values}


def average_rank(table: Mapping[str, Mapping[str, float | None]], *, higher_is_better: bool = True) -> dict[str, float]:
    """The mean over data sets of each method's rank; 1 is the best, and equal scores share the mean of their ranks.

    A data set on which a method has no score (``None`` or NaN, because it ran out of memory, for example) is left out
    of that method's mean, and the others are ranked among themselves.

    Args:
        table: ``table[method][dataset]`` is a score.
        higher_is_better: Whether the highest score has rank 1.

    Returns:
        The average rank by method; NaN for a method without scores.

    Example:
        >>> from graphmend.lab.metrics import average_rank
        >>> average_rank({"GCN": {"Cora": 0.8, "Photo": 0.9}, "GTrans": {"Cora": 0.9, "Photo": 0.9}})
        {'GCN': 1.75, 'GTrans': 1.25}
    """
    require(len(table) > 0, "the table is empty; give the scores of at least one method")
    ranks: dict[str, list[float]] = {method: [] for method in table}
    for dataset in _in_order(table.values()):
        scores = {method: _number(row.get(dataset)) for method, row in table.items()}
        ranked = {method: value for method, value in scores.items() if not math.isnan(value)}
        values = np.array(list(ranked.values()))
        for method, rank in zip(ranked, rankdata(-values if higher_is_better else values), strict=True):
            ranks[method].append(float(rank))
    return {method: float(np.mean(own)) if own else math.nan for method, own in ranks.items()}


def _in_order(rows: Iterable[Mapping[str, float | None]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
