"""Judge the gate's rule from stored evidence: limits chosen without a family, and what each check is good for.

The evidence of a graph (:mod:`graphmend.lab.beyond.evidence`) says which candidate any limits would choose, and its
score. So thousands of settings of the limits are tried in seconds. *Left out by family*: for each family of data sets,
the limits are chosen on all other families, and only what they do on the left-out one counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphmend.lab.beyond.cells import HARM
from graphmend.lab.beyond.evidence import RULES
from graphmend.lab.beyond.sources import FAMILY, named

__all__ = ["FREE", "Judged", "Outcome", "Table", "ablation", "by_cell", "judged", "left_out", "settings"]

Array = NDArray[Any]
Limits = dict[tuple[str, str], float]  #: limits other than the gate's, by rule and sign; NaN asks nothing
CANDIDATES = ("leave", "rows", "purify", "align", "repaired purify", "repaired align")
STATES = ("", "repaired ")
FREE: dict[tuple[str, str], tuple[float, ...]] = {  # what each limit may be when limits are chosen
    ("columns", "unseen_columns"): (0.1, 0.25, 0.5),
    ("rows", "rise_of_the_shift"): (1.0, 1.2, 1.5),
    ("edges", "rows_shift"): (0.5, 1.0, 1.5),
    ("edges", "excess"): (0.02, 0.03, 0.05),
    ("edges", "other_change"): (0.15, 0.2, 0.25, 0.3),
    ("edges", "confident_flips"): (0.25, 0.3, 0.35, 0.4, 0.5),
    ("edges", "backing"): (0.35, 0.45, 0.55),
    ("features", "shift"): (2.0, 3.0, 4.0, 5.0),
    ("features", "rows_shift"): (1.5, 2.0, 2.5, 3.0),
    ("features", "unexplained_first"): (0.3, 0.4, 0.5),
    ("features", "unexplained_z"): (0.1, 0.2, 0.3),
    ("features", "still_unknown"): (0.2, 0.35, 0.5),
    ("features", "more_unknown"): (0.0, 0.05, 0.1),
    ("features", "rise_of_agreement"): (-0.08, -0.04, 0.0),
    ("features", "backing"): (0.05, 0.1, 0.2, 0.3),
}
TRIED, BEST = 2000, 100  # settings that are tried, and those of them whose medians are chosen: no setting on an edge
PRICE = 100.0  # points of the mean gain that all graphs harmed would cost: a point for a hundredth of them


class Outcome(NamedTuple):
    """What a rule does on some graphs.

    Args:
        graphs: Their number.
        gain: The mean change, in points.
        harmed: The share below -0.3.
        worst: The lowest change.
        acted: The share on which something is changed.
    """

    graphs: int
    gain: float
    harmed: float
    worst: float
    acted: float


class Table:
    """The evidence of many graphs as arrays, so that a rule is asked about all of them at once."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.rows = list(rows)
        self.family = np.array([FAMILY[named(row["source"]).name] for row in self.rows])
        self.scores = np.array([[row["scores"].get(name, np.nan) for name in CANDIDATES] for row in self.rows])
        self._signs = {
            (state, rule, check.sign): np.array(
                [row["numbers"].get(f"{state}{rule}: {check.sign}", np.nan) for row in self.rows]
            )
            for state in STATES
            for rule, parts in RULES.items()
            for part in parts
            for check in part
        }

    def decisions(self, limits: Limits) -> Array:
        """The positions among the candidates that the gate's tables with other limits choose."""
        broken, repaired = self._holds("", "rows", {}, parts=1), self._holds("", "rows", limits)
        out = np.where(repaired, CANDIDATES.index("rows"), 0)
        for state, mask in (("", ~broken), ("repaired ", repaired)):
            mask = mask & self._holds(state, "columns", limits)
            edges = self._holds(state, "edges", limits)
            features = self._holds(state, "features", limits) & ~edges
            out = np.where(mask & edges, CANDIDATES.index(f"{state}purify"), out)
            out = np.where(mask & features, CANDIDATES.index(f"{state}align"), out)
        return out

    def proposals(self) -> Array:
        """The positions of what the gate would ask about: what it does, or else the last remedy that it doubts."""
        decisions, out = self.decisions({}), np.zeros(len(self.rows), dtype=int)
        broken, repaired = self._holds("", "rows", {}, parts=1), self._holds("", "rows", {})
        out = np.where(broken & ~repaired & self._exists("rows"), CANDIDATES.index("rows"), out)
        for state, mask in (("", ~broken), ("repaired ", repaired)):
            for rule, candidate in (("edges", "purify"), ("features", "align")):
                trouble = mask & self._holds(state, "columns", {}) & self._holds(state, rule, {}, parts=1)
                out = np.where(trouble, CANDIDATES.index(f"{state}{candidate}"), out)
        return np.where(decisions > 0, decisions, out)

    def _exists(self, candidate: str) -> Array:
        exists: Array = ~np.isnan(self.scores[:, CANDIDATES.index(candidate)])
        return exists

    def changes(self, limits: Limits) -> Array:
        """What the rule changes about the score of each graph, in points."""
        chosen: Array = self.scores[np.arange(len(self.rows)), self.decisions(limits)]
        changes: Array = chosen - self.scores[:, 0]
        return changes

    def _holds(self, state: str, rule: str, limits: Limits, parts: int = 2) -> Array:
        """Whether a rule holds: both of its parts, or only that there is trouble."""
        out = np.ones(len(self.rows), dtype=bool)
        for check in (check for part in RULES[rule][:parts] for check in part):
            limit = limits.get((rule, check.sign), check.limit)
            if not np.isnan(limit):
                value = self._signs[state, rule, check.sign]
                out &= np.isnan(value) | (value >= limit if check.above else value <= limit)
        return out


def judged(changes: Array, decisions: Array) -> Outcome:
    """What some changes come to."""
    harmed, acted = changes < HARM, decisions > 0
    return Outcome(len(changes), float(changes.mean()), float(harmed.mean()), float(changes.min()), float(acted.mean()))


def settings(seed: int = 0) -> Iterable[Limits]:
    """Settings to choose from: every limit drawn from its choices, independently."""
    generator = np.random.default_rng(seed)
    for _ in range(TRIED):
        yield {key: float(generator.choice(choices)) for key, choices in FREE.items()}


@dataclass(frozen=True)
class Judged:
    """A rule whose limits were chosen without a family, on that family.

    Args:
        family: The family.
        limits: The limits chosen on the others.
        elsewhere: What these do on the others, where they were chosen.
        here: What they do on the family.
        shipped: What the gate's own limits do on it.
        changes: What the chosen limits change on each graph of the family.
        decisions: The candidates that they choose there.
    """

    family: str
    limits: Limits
    elsewhere: Outcome
    here: Outcome
    shipped: Outcome
    changes: Array
    decisions: Array


def left_out(table: Table, price: float = PRICE) -> list[Judged]:
    """Every family with the limits that are best on all others, counting each family alike.

    Args:
        table: The evidence.
        price: The points that all graphs harmed would cost.
    """
    tried = list(settings())
    changes = np.array([table.changes(limits) for limits in tried])
    worth = changes - price * (changes < HARM)
    families = sorted(set(table.family))
    values = np.array([worth[:, table.family == family].mean(axis=1) for family in families])
    out = []
    for number, family in enumerate(families):
        order = np.delete(values, number, axis=0).mean(axis=0).argsort()[::-1]
        best = [tried[position] for position in order[:BEST]]
        limits = {key: float(np.median([setting[key] for setting in best])) for key in FREE}
        here, chosen, own = table.family == family, table.changes(limits), table.changes({})
        decisions, shipped = table.decisions(limits), table.decisions({})
        out.append(
            Judged(
                family,
                limits,
                judged(chosen[~here], decisions[~here]),
                judged(chosen[here], decisions[here]),
                judged(own[here], shipped[here]),
                chosen[here],
                decisions[here],
            )
        )
    return out


def by_cell(table: Table, changes: Array, decisions: Array) -> Outcome:
    """What some changes come to, averaged over the seeds of a set, a model and a target first."""
    groups: dict[tuple[str, str], list[int]] = {}
    for number, row in enumerate(table.rows):
        groups.setdefault((row["source"].rpartition("-")[0], row["target"]), []).append(number)
    means = np.array([changes[group].mean() for group in groups.values()])
    return judged(means, np.array([decisions[group].max() for group in groups.values()]))


def ablation(table: Table) -> dict[tuple[str, str], Outcome]:
    """What the rule does without each of its checks."""
    out = {("", ""): judged(table.changes({}), table.decisions({}))}
    for rule, sign in ((rule, c.sign) for rule, parts in RULES.items() for part in parts for c in part):
        limits = {(rule, sign): float("nan")}
        changes = table.changes(limits)
        known = ~np.isnan(changes)  # without a broken row there is no repair to judge
        out[rule, sign] = judged(changes[known], table.decisions(limits)[known])
    return out
