"""What an adapter returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.engine.report import Report
from graphmend.errors import require
from graphmend.results.history import Candidate, Step
from graphmend.results.patch import Patch
from graphmend.results.questions import Alternative, class_number, nodes_to_ask, poll, predicted
from graphmend.results.verdict import APPLIED, LEFT_ALONE, PARTLY, Verdict

__all__ = ["Adaptation"]


@dataclass(frozen=True, eq=False)
class Adaptation:
    """A model and a graph that go together, and how they came about.

    Args:
        model: The model to predict with: the caller's own, or a changed copy of it.
        data: The graph to predict on, a new object.
        logits: The model's output on that graph.
        patch: The reversible change from the caller's graph to ``data``.
        history: One entry per step.
        candidates: The discrete graphs that were scored, in order; the one with the lowest loss was taken.
        reason: Why model and graph were left as they were, or ``None``.
        seconds: Wall time.
        engine: How it was computed: whether products of the features were shared, views stacked and steps recorded.
        verdict: What the gate decided and why, if a gate was asked.
        alternative: The version of the graph that the gate did not return, if there is one.
    """

    model: nn.Module
    data: Data
    logits: Tensor
    patch: Patch
    history: list[Step] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    reason: str | None = None
    seconds: float = 0.0
    engine: Report = field(default_factory=Report)
    verdict: Verdict | None = None
    alternative: Alternative | None = None

    def questions(self, number: int = 25) -> Tensor:
        """Nodes whose labels would settle whether the change helps, in the order in which to ask for them.

        They are drawn from the nodes whose prediction the proposed change flips; no other node can settle anything.
        There are none if the gate found nothing to propose. Hand the labels to :meth:`decide`.

        Args:
            number: How many at most.
        """
        require(isinstance(number, int) and number > 0, f"number must be a whole number above 0 (got {number!r})")
        if self.alternative is None:
            return torch.empty(0, dtype=torch.long, device=self.logits.device)
        return nodes_to_ask(*self._old_and_new(self.alternative), number)

    def decide(self, labels: Mapping[int, int] | Tensor) -> Adaptation:
        """Settle with a few labels whether the proposed change is applied; see :mod:`graphmend.results.questions`.

        Args:
            labels: True classes by node, or one for each node of ``questions(len(labels))`` in that order.

        Returns:
            The result that the labels speak for; the gate's own where they do not settle it.
        """
        if self.alternative is None:
            return self
        old, new = self._old_and_new(self.alternative)
        known = dict(labels) if isinstance(labels, Mapping) else None
        if known is None:
            values = torch.as_tensor(labels).view(-1).tolist()
            require(len(values) > 0, "labels is empty; give the labels of result.questions()")
            nodes = self.questions(len(values)).tolist()
            fits = len(nodes) == len(values)
            require(fits, f"there are {len(nodes)} questions but {len(values)} labels; give one per question")
            known = dict(zip(nodes, values, strict=True))
        asked = [node for node in nodes_to_ask(old, new, old.numel()).tolist() if node in known]
        require(len(asked) > 0, "none of the labelled nodes changes its prediction; label those of result.questions()")
        classes = 2 if self.logits.dim() == 1 else max(2, self.logits.size(1))
        result = poll(old[asked], new[asked], [class_number(known[node], classes) for node in asked])
        counts = f"of {result.asked} labels {result.for_change} speak for the change and {result.against} against it"
        if result.decision is None:
            return replace(self, verdict=replace(self._verdict(), sentence=f"{self._verdict().sentence}; {counts}"))
        other, menders = self.alternative, self._verdict().menders
        is_other = result.decision == other.is_change
        chosen = other.menders if is_other else menders
        decision = APPLIED if result.decision else PARTLY if chosen else LEFT_ALONE
        sentence = f"{decision}: {counts}"
        verdict = replace(
            self._verdict(),
            decision=decision,
            menders=chosen,
            regime="labels",
            sentence=sentence,
            flips=float((old != new).double().mean()) if chosen else 0.0,
            expected=self._verdict().expected if chosen and not is_other else 0.0,
        )
        if not is_other:
            return replace(self, verdict=verdict)
        own = Alternative(self.data, self.logits, self.patch, not other.is_change, menders)
        return replace(self, data=other.data, logits=other.logits, patch=other.patch, verdict=verdict, alternative=own)

    def _verdict(self) -> Verdict:
        assert self.verdict is not None
        return self.verdict

    def _old_and_new(self, other: Alternative) -> tuple[Tensor, Tensor]:
        own, alternative = predicted(self.logits), predicted(other.logits)
        return (own, alternative) if other.is_change else (alternative, own)

    def summary(self) -> dict[str, Any]:
        """The numbers people ask for, ready for JSON."""
        return {
            "steps": len(self.history),
            "loss_first": self.history[0].loss if self.history else None,
            "loss_last": self.history[-1].loss if self.history else None,
            "feature_rows_changed": self.patch.num_rows,
            "edge_entries_removed": self.patch.num_removed,
            "edge_entries_added": self.patch.num_added,
            "edge_weights_changed": self.patch.num_weights,
            "reason": self.reason,
            "verdict": None if self.verdict is None else self.verdict.summary(),
            "seconds": round(self.seconds, 3),
        }
