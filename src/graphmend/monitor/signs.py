"""What is watched: for each graph a number for each kind of trouble, the larger, the worse.

The numbers are those that the gate asks about, but without limits: only the rank of a graph among others will count.
Broken rows are repaired before the rest is measured, as in the gate, so that one kind of trouble does not look like all
of them. For rows, columns and unknown nodes the card says what is usual. The number of edges and the shares of classes
differ from the card in healthy graphs, too; for these, the first graphs of the stream say what is usual.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from graphmend.adapters.base import Adapter
from graphmend.adapters.broken_rows import abnormal_rows
from graphmend.adapters.case import Case
from graphmend.adapters.gate import Gate
from graphmend.adapters.gate.examination import Examination
from graphmend.adapters.impute import refilled
from graphmend.adapters.purify import excess_of
from graphmend.cards.moments import moments
from graphmend.cards.source_card import SourceCard
from graphmend.outputs import probabilities
from graphmend.results.proposal import Proposal

__all__ = ["CENTRED", "KINDS", "Look", "Signs", "score", "signs_of"]

KINDS = {
    "rows": "broken or missing feature rows",
    "columns": "feature columns that have moved",
    "edges": "edges that were added, lost or moved",
    "unknown": "nodes like none that the model knows, for which no mender has a remedy",
    "mix": "another mix of the nodes that the model knows",
}
"""The kinds of trouble, in words; if several are found, the first of them explains the others best.

Example:
    >>> from graphmend.monitor import KINDS
    >>> list(KINDS)
    ['rows', 'columns', 'edges', 'unknown', 'mix']
"""
CENTRED = ("edges", "mix")
"""The kinds that are compared with what is usual in the stream itself."""

Signs: TypeAlias = dict[str, list[float]]
"""What was measured of one graph, by kind."""
LEAST = 1e-9


@dataclass
class Look(Adapter):
    """Measures the signs of a graph, and mends it if that is wanted: an adapter, so that a graph is prepared once.

    Args:
        mends: Whether the gate may mend what it finds.
        embedding: Name of the module whose output is Z.
    """

    fills_missing = True
    mends: bool = True
    embedding: str | None = None
    signs: Signs = field(default_factory=dict)  #: of the last graph

    def propose(self, case: Case) -> Proposal:
        """Measure, then let the gate decide."""
        self.signs = signs_of(case, case.require_card(self))
        return Gate(embedding=self.embedding).propose(case) if self.mends else Proposal()


@torch.no_grad()
def signs_of(case: Case, card: SourceCard) -> Signs:
    """What is measured for each of the :data:`KINDS`."""
    x = case.data.x
    broken = case.judged(abnormal_rows(x, card))
    missing = 0.0 if case.filling is None else case.filling.values / x.numel()
    exam = Examination(case, card)
    if bool(broken.any()) and not bool(broken.all()):
        exam = exam.with_features(refilled(x, case.data.edge_index, broken))
    seen = exam.frozen.observe(exam.data, exam.features())
    edges = excess_of(exam.case, card)
    shares = probabilities(seen.logits, card.temperature).mean(0)
    return {
        "rows": [float(broken.double().mean()) + missing],
        "columns": [exam.rows_shift * card.first_mix(seen.first).unexplained],
        "edges": [_log(card.relative_density(exam.data)), _log(edges.kept)],
        "unknown": [_unknown(seen.first, card)],
        "mix": [float(share) for share in shares],
    }


def _unknown(first: Tensor, card: SourceCard) -> float:
    """The share of nodes unlike any known one, both as they are and after mean and spread are brought to the card's.

    If columns have moved, the second brings the nodes back to the known ones; if only the mix differs, they are known
    from the start.
    """
    own, usual = moments(first), card.first
    aligned = (first - own.mean) / own.unit * usual.std + usual.mean
    return min(card.first_mix(rows).outside for rows in (first, aligned))


def score(kind: str, signs: Signs, centre: Signs) -> float:
    """How bad the signs of a kind are: not negative, and infinite if a sign is NaN.

    Args:
        kind: One of the :data:`KINDS`.
        signs: Of a graph.
        centre: What is usual for the kinds that are :data:`CENTRED`.
    """
    values = signs[kind]
    if kind == "edges":
        total = sum(abs(value - usual) for value, usual in zip(values, centre[kind], strict=True))
    elif kind == "mix":
        total = sum((value - usual) ** 2 / max(usual, LEAST) for value, usual in zip(values, centre[kind], strict=True))
    else:
        (total,) = values
    return total if math.isfinite(total) else math.inf


def mean_of(parts: Sequence[list[float]]) -> list[float]:
    """The mean of each number."""
    return [sum(column) / len(parts) for column in zip(*parts, strict=True)]


def _log(value: float) -> float:
    return math.log(max(value, LEAST))
