"""The gate as an adapter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from graphmend.adapters.base import Adapter
from graphmend.adapters.case import Case
from graphmend.adapters.gate.blind_rule import without_card
from graphmend.adapters.gate.card_rule import with_card
from graphmend.adapters.gate.checks import Log
from graphmend.adapters.gate.examination import number_of_flips
from graphmend.errors import check_fields, text
from graphmend.model.failures import failures_named
from graphmend.outputs import Task
from graphmend.results.proposal import Proposal
from graphmend.results.questions import FEWEST
from graphmend.results.verdict import APPLIED, LEFT_ALONE, PARTLY, Evidence, Verdict

__all__ = ["Gate"]


@dataclass(frozen=True)
class Gate(Adapter):
    """Mend only what is broken: decide which mender acts on a graph, or none, and say why.

    With a source card (``card=``, from :func:`graphmend.card`) the gate looks for broken feature rows
    (:class:`~graphmend.adapters.Impute`), then for edges in excess (:class:`~graphmend.adapters.Purify`), then for a
    shift of the model's first layer (:class:`~graphmend.adapters.Align`), each compared with the training graph.
    Another mix of the nodes that the model knows is not a fault. Without a card the gate repairs rows that are set
    apart, and only proposes other changes. Missing values (NaN) are filled first. The result's ``verdict`` says what
    was looked for, what was found, and what to do next.

    Args:
        embedding: Name of the module whose output is Z, see :class:`~graphmend.FrozenGNN`.

    Example:
        >>> from graphmend import Gate
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.lab.backbones import GCN
        >>> data = Data(x=torch.rand(4, 3), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> Gate()(GCN(3, 8, 2), data).verdict.decision
        'left alone'
    """

    fills_missing = True
    embedding: str | None = None

    def __post_init__(self) -> None:
        check_fields(self, text, "embedding", optional=True)

    def propose(self, case: Case) -> Proposal:
        """Apply the rule, and combine what its steps propose."""
        log, filling = Log(case.progress), case.filling
        if filling is not None:
            log.add(Evidence("missing values", float(filling.values), 1.0, above=True))
        with failures_named(case.model, case.data), log:
            steps, logits = _steps(case, log)
        task = case.task(logits)
        made, considered = [step for step in steps if step.is_made], _considered(steps, logits, task)
        is_repaired = len(made) > 0
        if filling is not None:
            made.insert(0, Proposal(logits=logits, menders=("impute",), sentence=filling.sentence, is_made=True))
        menders = tuple(dict.fromkeys(mender for step in made for mender in step.menders))
        chosen = replace(made[-1] if made else Proposal(logits=logits), menders=menders)
        other: Proposal | None = None
        if considered is not None:
            other = replace(considered, menders=tuple(dict.fromkeys((*menders, *considered.menders))))
        elif is_repaired:
            other = Proposal(logits=logits, menders=() if filling is None else ("impute",))
        flips = number_of_flips(task, logits, _output(considered if considered is not None and not made else chosen))
        regime = "blind" if case.card is None else "card"
        verdict = Verdict(
            LEFT_ALONE if not made else APPLIED if considered is None else PARTLY,
            menders,
            regime,
            _sentence(steps, made, considered),
            tuple(log.evidence),
            flips / len(logits) if task.predicts else None,
            _next_step(bool(made), considered is not None, regime, can_be_asked=flips >= FEWEST),
            task=str(task),
        )
        return replace(chosen, verdict=verdict, alternative=other)


def _steps(case: Case, log: Log) -> tuple[Sequence[Proposal], Tensor]:
    """What each mender would do, in order, and the model's output on the graph as it is."""
    if case.data.x.size(0) == 1:
        logits = case.require_frozen()(case.data.x, case.data.edge_index)
        return [Proposal(sentence="a single node says nothing about a shift")], logits
    return without_card(case, log) if case.card is None else with_card(case, case.card, log)


def _considered(steps: Sequence[Proposal], logits: Tensor, task: Task) -> Proposal | None:
    """The last change that was worked out but not made, if it flips enough predictions for labels to settle it."""
    now = next((_output(step) for step in reversed(steps) if step.is_made), logits)
    worked_out = [step for step in steps if not step.is_made and step.logits is not None]
    return next((step for step in reversed(worked_out) if number_of_flips(task, now, _output(step)) >= FEWEST), None)


def _sentence(steps: Sequence[Proposal], made: Sequence[Proposal], considered: Proposal | None) -> str:
    if made:
        doubt = "" if considered is None else f"; nothing else was done, because {considered.sentence}"
        decision = APPLIED if considered is None else PARTLY
        return f"{decision}: {'; then '.join(step.sentence for step in made)}{doubt}"
    reasons = [step.sentence for step in steps if step.sentence]
    return f"{LEFT_ALONE}: {reasons[-1] if considered is None else considered.sentence}"


def _next_step(is_mended: bool, is_in_doubt: bool, regime: str, *, can_be_asked: bool) -> str:
    """What the user can do now."""
    ask = (
        "look up the labels of a few nodes (result.questions() lists them, or --questions 25) "
        "and let them decide (result.decide(labels), or --labels FILE)"
    )
    card = "make a card, which tells far more (graphmend.card(model, train_data), or 'graphmend card')"
    undo = "result.patch.revert(result.data), or 'graphmend revert', takes the change back"
    if is_in_doubt and regime == "blind":
        return f"{card}; or {ask}"
    if is_in_doubt:
        return f"{'if in doubt about the rest' if is_mended else 'if in doubt'}, {ask}"
    if is_mended:
        return f"{undo}; to be sure, {ask}" if can_be_asked else undo
    return card if regime == "blind" else ""


def _output(proposal: Proposal) -> Tensor:
    assert proposal.logits is not None
    return proposal.logits
