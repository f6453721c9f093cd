"""The gate as an adapter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from graphmend.adapters.base import Adapter, Change, Task
from graphmend.adapters.gate.blind_rule import without_card
from graphmend.adapters.gate.card_rule import with_card
from graphmend.adapters.gate.checks import Log
from graphmend.adapters.gate.finding import Finding, Step
from graphmend.errors import check_fields, text
from graphmend.model.failures import failures_named
from graphmend.results.questions import FEWEST
from graphmend.results.verdict import APPLIED, LEFT_ALONE, PARTLY, Evidence, Verdict

__all__ = ["Gate"]


@dataclass(frozen=True)
class Gate(Adapter):
    """Mend only what is broken: decide which mender acts on a graph, or none, and say why.

    With a source card (``card=``, from :func:`graphmend.card`) the gate looks for broken feature rows
    (:class:`~graphmend.adapters.Impute`), then for edges in excess (:class:`~graphmend.adapters.Purify`), then for a
    shift of the model's first layer (:class:`~graphmend.adapters.Align`), each against what the training graph itself
    shows. Another mix of the nodes that the model knows is no fault. Without a card the gate repairs rows that are set
    apart, and proposes the rest. Missing values (NaN) are filled before it looks. The result's ``verdict`` says what
    was looked for, what was found, and what to do next.

    Args:
        embedding: Name of the module whose output is Z, see :class:`~graphmend.FrozenGNN`.

    Example:
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

    def adapt(self, task: Task) -> Change:
        """Ask the rule."""
        log: Log = []
        if task.filling is not None:
            log.append(Evidence("missing values", float(task.filling.values), 1.0, above=True))
        with failures_named(task.model, task.data):
            steps, logits = self._ask(task, log)
        repaired = any(step.is_made for step in steps)
        if task.filling is not None:
            steps = [Step("impute", task.filling.sentence, Change(logits=logits), True), *steps]
        finding = Finding.of(steps, logits)
        change = finding.change
        change.logits = change.logits if finding.menders else finding.logits
        change.verdict = _verdict(finding, log, "blind" if task.card is None else "card", task.data.x.size(0))
        change.alternative = finding.proposal
        if change.alternative is None and repaired:
            change.alternative = Change(logits=logits, menders=() if task.filling is None else ("impute",))
        return change

    def _ask(self, task: Task, log: Log) -> tuple[Sequence[Step], Tensor]:
        if task.data.x.size(0) == 1:
            logits = task.require_frozen()(task.data.x, task.data.edge_index)
            return [Step("", "a single node says nothing about a shift")], logits
        return without_card(task, log) if task.card is None else with_card(task, task.card, log)


def _verdict(finding: Finding, log: Log, regime: str, nodes: int) -> Verdict:
    decision = LEFT_ALONE if not finding.menders else APPLIED if finding.proposal is None else PARTLY
    return Verdict(
        decision,
        finding.menders,
        regime,
        finding.sentence.replace(APPLIED, decision, 1) if finding.menders else finding.sentence,
        tuple(log),
        finding.flips,
        _next_step(finding, regime, finding.flips * nodes >= FEWEST),
    )


def _next_step(finding: Finding, regime: str, can_be_asked: bool) -> str:
    """What a person can do now."""
    ask = (
        "look up the labels of a few nodes (result.questions() lists them, or --questions 25) "
        "and let them decide (result.decide(labels), or --labels FILE)"
    )
    card = "make a card, which tells far more (graphmend.card(model, train_data), or 'graphmend card')"
    undo = "result.patch.revert(result.data), or 'graphmend revert', takes the change back"
    if finding.proposal is not None and regime == "blind":
        return f"{card}; or {ask}"
    if finding.proposal is not None:
        return f"{'if in doubt about the rest' if finding.menders else 'if in doubt'}, {ask}"
    if finding.menders:
        return f"{undo}; to be sure, {ask}" if can_be_asked else undo
    return card if regime == "blind" else ""
