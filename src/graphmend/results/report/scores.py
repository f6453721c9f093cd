"""How good predictions were before and after, with intervals: known labels are a sample, too."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmend.outputs import number_of_classes, predictions, read_mask

__all__ = ["Score", "scores_of", "wilson"]

Array = np.ndarray[Any, np.dtype[Any]]
Interval = tuple[float, float]

Z = 1.959964  # 95 %
DRAWS = 1000


@dataclass(frozen=True)
class Score:
    """One measure before and after, with intervals of 95 % where they were worked out.

    Args:
        name: The measure.
        before: Its value before.
        after: Its value after.
        change: After minus before.
        before_in: The interval of the value before.
        after_in: That of the value after.
        change_in: That of the change; the same nodes are drawn on both sides.
        is_share: Whether it is read in percent.
    """

    name: str
    before: float
    after: float
    change: float
    before_in: Interval | None = None
    after_in: Interval | None = None
    change_in: Interval | None = None
    is_share: bool = True


def wilson(right: int, total: int) -> Interval:
    """Wilson's interval of a share, which holds for few nodes and for shares near 0 and 1 as well (Wilson, 1927)."""
    share, square = right / total, Z * Z / total
    middle = (share + square / 2) / (1 + square)
    half = Z * math.sqrt(share * (1 - share) / total + square / (4 * total)) / (1 + square)
    return max(0.0, middle - half), min(1.0, middle + half)


def scores_of(before: Tensor, after: Tensor, y: Any, mask: Any = None) -> tuple[Score, ...]:
    """Accuracy with Wilson's interval, macro-F1 with one by bootstrap, and how much both changed.

    The bootstrap draws nodes again with repetition: how often each triple of true class, class before and class after
    is drawn follows a multinomial distribution, so that no array has an entry per node and draw.

    Args:
        before: An output before.
        after: The output after.
        y: True classes, which :func:`graphmend.results.comparison.compare` has checked.
        mask: The nodes that count.
    """
    classes = number_of_classes(after)
    old, new = (predictions(logits).cpu() for logits in (before, after))
    chosen = torch.ones_like(old, dtype=torch.bool) if mask is None else read_mask(mask, old.numel()).cpu()
    truth, old, new = torch.as_tensor(y).cpu().reshape(-1)[chosen].long(), old[chosen], new[chosen]
    total = truth.numel()
    keys, numbers = torch.unique((truth * classes + old) * classes + new, return_counts=True)
    counts = numbers.numpy().astype(float)
    true, was, now = (v.numpy() for v in (keys // classes**2, keys // classes % classes, keys % classes))
    draws = np.random.default_rng(0).multinomial(total, counts / counts.sum(), size=DRAWS).astype(float)
    out = []
    for name, measure in (("accuracy", _accuracy), ("macro-F1", _macro_f1)):
        points = [float(measure(counts[None], true, found, classes)[0]) for found in (was, now)]
        drawn = [measure(draws, true, found, classes) for found in (was, now)]
        spans = [_span(values) for values in drawn]
        if name == "accuracy":
            spans = [wilson(round(point * total), total) for point in points]
        change = _span(drawn[1] - drawn[0])
        out.append(Score(name, points[0], points[1], points[1] - points[0], spans[0], spans[1], change))
    return tuple(out)


def _span(values: Array) -> Interval:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def _accuracy(counts: Array, true: Array, found: Array, classes: int) -> Array:
    share: Array = counts[:, true == found].sum(1) / counts.sum(1)
    return share


def _macro_f1(counts: Array, true: Array, found: Array, classes: int) -> Array:
    """The F1 score of each class, averaged over the classes that are true or predicted somewhere in the draw."""
    is_true, is_found = np.eye(classes)[true], np.eye(classes)[found]
    hits = counts @ (is_true * is_found)
    either = counts @ (is_true + is_found)
    occurs = either > 0
    scores = np.divide(2 * hits, either, out=np.zeros_like(hits), where=occurs)
    mean: Array = scores.sum(1) / occurs.sum(1)
    return mean
