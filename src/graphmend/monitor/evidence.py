r"""Evidence that a stream of numbers has changed: betting against ranks.

Each number :math:`s_n` is compared with all before it. If the numbers are exchangeable, the share of them that are at
least as large, ties broken by a random number :math:`\theta_n`,

.. math:: p_n = \frac{\#\{i < n : s_i > s_n\} + \theta_n \#\{i \le n : s_i = s_n\}}{n}

is uniform on (0, 1] and independent of :math:`p_1, \ldots, p_{n-1}` (Vovk, Gammerman and Shafer, *Algorithmic Learning
in a Random World*). A bet is a decreasing function :math:`e_b(p) \ge 0` with mean 1, so it gains only if numbers are
larger than before. The capital is spread over several bets b and over the graphs j at which to begin:

.. math:: M_n = \sum_{j \le n} \pi_j \frac1B \sum_b \prod_{i=j}^n e_b(p_i) + \sum_{j > n} \pi_j

is a martingale that begins at 1, so that :math:`P(\sup_n M_n \ge 1/\alpha) \le \alpha` (Ville). Numbers are rounded to
steps of two percent before they are compared. So everything seen is kept as a table of counts, which does not grow with
the stream, and nothing has to be forgotten: ranks in a sliding window, or among a fixed sample, are *not* independent.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from dataclasses import dataclass, field
from random import Random

__all__ = ["BETS", "Bag", "Detector", "level", "theta"]

STEP_BETS = (0.01, 0.03, 0.1, 0.25)
"""Bets that most p-values are now below one of these: they gain quickly from a plain change."""
STAKE = 0.9  # of the capital, lost at a p-value that is not
POWER_BETS = (0.5, 0.65, 0.8, 0.92)
r"""Bets :math:`\varepsilon p^{\varepsilon - 1}`: they gain a little from many p-values that are somewhat small."""
BETS = len(STEP_BETS) + len(POWER_BETS)
STEPS = 32  # levels for each factor of two: neighbouring ones differ by 2 %
LOW, HIGH = 2.0**-30, 2.0**30  # numbers that are told apart


def level(value: float) -> int:
    """The step of a number on a fixed scale; 0 for numbers that are practically 0."""
    return 0 if value <= LOW else 1 + round(STEPS * math.log2(min(value, HIGH) / LOW))


@dataclass
class Bag:
    """The numbers that were seen, as counts of their levels.

    Args:
        counts: How often each level was seen.
    """

    counts: Counter[int] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """How many numbers there are."""
        return self.counts.total()

    def add(self, value: int) -> None:
        """Add a number."""
        self.counts[value] += 1

    def p_value(self, value: int, theta: float) -> float:
        """The share of the numbers that are larger than a new one, itself counted; ``theta`` in (0, 1] breaks ties."""
        larger = sum(count for other, count in self.counts.items() if other > value)
        return (larger + theta * (self.counts[value] + 1)) / (self.total + 1)


@dataclass
class Detector:
    """The capital of the bets against one kind of numbers, and since when they have won.

    Args:
        begun: For each bet, the logarithm of its capital, whenever it began.
        gains: For each bet, the logarithm of the largest gain of one that ends now, not above 0 where none gains.
        starts: For each bet, the graph with which that one began.
        rounds: How many numbers were bet on.
    """

    begun: list[float] = field(default_factory=lambda: [-math.inf] * BETS)
    gains: list[float] = field(default_factory=lambda: [0.0] * BETS)
    starts: list[int] = field(default_factory=lambda: [0] * BETS)
    rounds: int = 0

    def bet(self, p: float, graph: int) -> None:
        """Bet on the p-value of a graph."""
        self.rounds += 1
        new = math.log((_waiting(self.rounds - 1) - _waiting(self.rounds)) / BETS)
        for place, gain in enumerate(_log_gains(p)):
            self.begun[place] = _log_sum(self.begun[place], new) + gain
            if self.gains[place] <= 0:
                self.starts[place] = graph
            self.gains[place] = max(0.0, self.gains[place]) + gain

    @property
    def log_capital(self) -> float:
        """The logarithm of the capital; 0 at the beginning."""
        return functools.reduce(_log_sum, self.begun, math.log(_waiting(self.rounds)))

    @property
    def since(self) -> int | None:
        """The graph from which on a single bet would have gained most; ``None`` where none gains."""
        best = max(range(BETS), key=lambda place: self.gains[place])
        return self.starts[best] if self.gains[best] > 0 else None


def theta(seed: int, graph: int, kind: str) -> float:
    """The random number in (0, 1] that breaks the ties of a graph, the same whenever it is asked for."""
    return 1.0 - Random(f"{seed}/{graph}/{kind}").random()


def _log_gains(p: float) -> list[float]:
    """The logarithm of the factor by which each bet multiplies its stake."""
    steps = [math.log(1 - STAKE + (STAKE / end if p <= end else 0.0)) for end in STEP_BETS]
    return steps + [math.log(power) + (power - 1) * math.log(p) for power in POWER_BETS]


def _waiting(rounds: int) -> float:
    """The share of the capital reserved for later beginnings; it falls so slowly that a late change is seen, too."""
    return 1 / math.log2(rounds + 2)


def _log_sum(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))
