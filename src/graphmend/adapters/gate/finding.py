"""What a rule came to: the steps it looked into, and the one sentence and one change that they add up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from torch import Tensor

from graphmend.adapters.base import Change
from graphmend.adapters.gate.case import flipped
from graphmend.results.questions import FEWEST

__all__ = ["Finding", "Step"]


@dataclass(frozen=True, eq=False)
class Step:
    """What one mender would change, and whether that is done.

    Args:
        mender: Its name.
        reason: What was done and why, or why not; empty if there was nothing to look into.
        change: The change of the caller's graph, with all that was done before; its logits are the model's output then.
        is_made: Whether it is done.
    """

    mender: str
    reason: str = ""
    change: Change | None = None
    is_made: bool = False


@dataclass
class Finding:
    """What a rule came to.

    Args:
        sentence: The reason, for a person.
        menders: Names of the menders whose change is applied.
        change: The change to apply; nothing if there is none.
        proposal: A change that was considered and not applied; it names its menders.
        flips: Share of the predictions that the change flips; those that the proposal flips if there is no change.
        logits: The output of the model on the graph as it is.
    """

    sentence: str
    menders: tuple[str, ...] = ()
    change: Change = field(default_factory=Change)
    proposal: Change | None = None
    flips: float = 0.0
    logits: Tensor | None = None

    @classmethod
    def of(cls, steps: Sequence[Step], logits: Tensor) -> Self:
        """What steps that were looked into one after the other come to.

        Args:
            steps: The steps in their order; of those that were considered and not made, the last is the proposal.
            logits: The output of the model on the graph as it is.
        """
        made, proposal = [step for step in steps if step.is_made], None
        now, menders = logits if not made else _output(made[-1]), tuple(dict.fromkeys(step.mender for step in made))
        for step in steps:  # fewer flips than labels that the test needs would never be settled
            if not step.is_made and step.change is not None and _flips(now, _output(step)) >= FEWEST:
                proposal = step
        if made:
            doubt = "" if proposal is None else f"; nothing else was done, because {proposal.reason}"
            sentence = f"applied: {'; then '.join(step.reason for step in made)}{doubt}"
        else:
            reasons = [step.reason for step in steps if step.reason]
            sentence = f"left alone: {reasons[-1] if proposal is None else proposal.reason}"
        considered = None
        if proposal is not None and proposal.change is not None:
            considered = replace(proposal.change, menders=tuple(dict.fromkeys((*menders, proposal.mender))))
        flips = flipped(logits, now if made or proposal is None else _output(proposal))
        change = made[-1].change if made else None
        return cls(sentence, menders, change or Change(), considered, flips, logits)


def _flips(before: Tensor, after: Tensor) -> int:
    return round(flipped(before, after) * len(before))


def _output(step: Step) -> Tensor:
    assert step.change is not None and step.change.logits is not None
    return step.change.logits
