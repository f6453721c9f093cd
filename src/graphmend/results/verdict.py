"""What the gate decided, and on what evidence."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from graphmend.results.tables import html_table

__all__ = ["APPLIED", "LEFT_ALONE", "PARTLY", "Evidence", "Verdict"]

APPLIED = "applied"
PARTLY = "partly applied"
LEFT_ALONE = "left alone"


@dataclass(frozen=True)
class Evidence:
    """One sign of trouble, or of a change that helps, that the gate looked for.

    Args:
        name: What was measured.
        value: The number.
        threshold: Its limit.
        above: Whether a number above the limit speaks for mending, or one below.
    """

    name: str
    value: float
    threshold: float
    above: bool

    @property
    def holds(self) -> bool:
        """Whether the number is on the side that speaks for mending."""
        return self.value >= self.threshold if self.above else self.value <= self.threshold

    @property
    def _wanted(self) -> str:
        return f"{'at least' if self.above else 'at most'} {self.threshold:.3g}"

    @property
    def _word(self) -> str:
        if self.above:
            return "found" if self.holds else "not found"
        return "within the limit" if self.holds else "above the limit"

    def __str__(self) -> str:
        return f"{self.name}: {self.value:.3g} ({self._word}: {self._wanted})"

    @property
    def place(self) -> float:
        """Where the number is on a scale from 0 to 1 that has the limit in its middle."""
        size = abs(self.value) + abs(self.threshold)
        if not math.isfinite(size) or size == 0:
            return 0.5 if self.value == self.threshold or math.isnan(size) else float(self.value > self.threshold)
        return 0.5 + 0.5 * max(-1.0, min(1.0, (self.value - self.threshold) / size))

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """A row of a table: what was measured, its value, what was looked for, and whether it was found."""
        return self.name, f"{self.value:.3g}", self._wanted, self._word


@dataclass(frozen=True)
class Verdict:
    """What was done to a graph and why.

    Args:
        decision: ``"applied"``, ``"partly applied"`` or ``"left alone"``.
        menders: Names of the menders that acted, in order.
        regime: What the decision rests on: ``"card"``, ``"blind"`` or ``"labels"``.
        sentence: The reason, in words.
        evidence: Everything that was measured, in order.
        flips: Share of the predictions that the change flips, or the proposed change if nothing was done. ``None`` if
            the model's rows are not predictions, or if it is unknown what they are.
        next_step: What the user can do now.
        task: What the model's rows are, see :class:`graphmend.outputs.Task`.

    Example:
        >>> import graphmend
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import GCN
        >>> data, model = embedded("wine").test[0], GCN(13, 16, num_layers=2, out_channels=3)
        >>> verdict = graphmend.mend(model, data, card=graphmend.card(model, data)).verdict
        >>> isinstance(verdict, graphmend.Verdict), verdict.decision, verdict.regime
        (True, 'left alone', 'card')
        >>> verdict.evidence[0].name, verdict.evidence[0].holds
        ('broken feature rows', False)
    """

    decision: str
    menders: tuple[str, ...]
    regime: str
    sentence: str
    evidence: tuple[Evidence, ...] = ()
    flips: float | None = 0.0
    next_step: str = ""
    task: str = "unknown"

    @property
    def stand_in(self) -> str:
        """What took the place of predicted classes, as a sentence; empty if nothing had to."""
        if self.regime != "card" or self.task in ("classes", "unknown"):
            return ""
        return (
            f"with the task {self.task!r} nodes have no predicted classes: the kinds of nodes on the card stand "
            "in for them, and edges are not cut"
        )

    def __str__(self) -> str:
        return self.sentence

    def __repr__(self) -> str:
        after = [f"  {name}: {text}" for name, text in (("task", self.stand_in), ("next", self.next_step)) if text]
        return "\n".join([f"Verdict({self.sentence})", *(f"  {item}" for item in self.evidence), *after])

    def _repr_html_(self) -> str:
        rows = [item.cells for item in self.evidence]
        note = ". ".join(text for text in (self.sentence, self.stand_in, self.next_step) if text)
        return html_table("Verdict", rows, ("evidence", "measured", "looked for", "") if rows else (), note)

    def summary(self) -> dict[str, Any]:
        """The verdict, ready for JSON."""
        out = asdict(self)
        out["evidence"] = [{**asdict(item), "holds": item.holds} for item in self.evidence]
        return out
