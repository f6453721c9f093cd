"""The facts about a mended heterogeneous graph, for a page like that of every other result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphmend.outputs import Task
from graphmend.results.report.facts import Change, Facts
from graphmend.results.report.gather import (
    all_scores,
    cannot_know,
    change_of,
    gauges_of,
    made_by,
    output_note,
    predictions_of,
)

if TYPE_CHECKING:
    from graphmend.hetero.result import HeteroAdaptation

__all__ = ["hetero_facts"]


def hetero_facts(result: HeteroAdaptation, y: Any = None, mask: Any = None, title: str = "") -> Facts:
    """The facts about a result; there is no map, and nodes are not examined one by one.

    Args:
        result: The result.
        y: True classes, labels or numbers of the predicted nodes.
        mask: Those that are scored.
        title: What the graph is called.
    """
    compared = result.compare(y, mask) if y is not None or result.task.kind is not None else None
    task = result.task if compared is None else Task.of(compared.task)
    return Facts(
        title=title,
        graph=f"predicted at {result.logits.size(0):,} nodes of {result.node_type}",
        decision=result.decision,
        sentence=result.sentence,
        next_step="" if result.verdict is None else result.verdict.next_step,
        gauges=gauges_of(result.verdict),
        changes=_changes(result, task),
        rows="nodes",
        output=output_note(task, compared),
        predictions=predictions_of(result.before, result.logits) if task.kind == "classes" else None,
        scores=()
        if compared is None or y is None
        else all_scores(task, compared, result.before, result.logits, y, mask),
        helped=None if compared is None else compared.helped,
        harmed=None if compared is None else compared.harmed,
        scored=0 if compared is None else compared.nodes,
        map=None,
        nodes=(),
        questions=(),
        cannot_know=cannot_know(result.verdict),
        made=made_by(result.verdict, result.seconds, result.patch.before, str(result.logits.device), seed=None),
    )


def _changes(result: HeteroAdaptation, task: Task) -> tuple[Change, ...]:
    """The types of which something changed; the predicted one where none did."""
    original = result.patch.revert(result.data)
    made = []
    for kind, patch in result.patch.nodes.items():
        filled = None if result.filled is None else result.filled.nodes.get(kind)
        number = 0 if filled is None else int((filled.bits != 0).sum())
        moved = patch.feature_change(result.data[kind].x).cpu()
        change = change_of(patch, original[kind], result.data[kind], None, moved, task, number, kind)
        made.append(Change(kind, change.counts[:3], (), change.largest, change.columns, change.columns_of))
    for edge_type, patch in result.patch.edges.items():
        count: tuple[str, int, int | None] = ("edge entries removed", patch.num_removed, patch.edges)
        made.append(Change(" ".join(edge_type), (count,)))
    changed = [change for change in made if any(count for _, count, _ in change.counts)]
    return tuple(changed or [change for change in made if change.name == result.node_type])
