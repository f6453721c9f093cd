"""The facts about a mended heterogeneous graph, for a page like that of every other result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphmend.outputs import CLASSES
from graphmend.results.report.facts import Change, Facts
from graphmend.results.report.gather import cannot_know, change_of, gauges_of, made_by, predictions_of
from graphmend.results.report.scores import scores_of

if TYPE_CHECKING:
    from graphmend.hetero.result import HeteroAdaptation

__all__ = ["hetero_facts"]


def hetero_facts(result: HeteroAdaptation, y: Any = None, mask: Any = None, title: str = "") -> Facts:
    """The facts about a result; there is no map, and nodes are not looked at one by one.

    Args:
        result: The result.
        y: True classes of the predicted nodes.
        mask: Those that are scored.
        title: What the graph is called.
    """
    compared = None if y is None else result.compare(y, mask)
    return Facts(
        title=title,
        graph=f"predicted at {result.logits.size(0):,} nodes of {result.node_type}",
        decision=result.decision,
        sentence=result.sentence,
        next_step="" if result.verdict is None else result.verdict.next_step,
        gauges=gauges_of(result.verdict),
        changes=_changes(result),
        rows="nodes",
        output="",
        predictions=predictions_of(result.before, result.logits),
        scores=() if y is None else scores_of(result.before, result.logits, y, mask),
        helped=None if compared is None else compared.helped,
        harmed=None if compared is None else compared.harmed,
        scored=0 if compared is None else compared.nodes,
        map=None,
        nodes=(),
        questions=(),
        cannot_know=cannot_know(result.verdict),
        made=made_by(result.verdict, result.seconds, result.patch.before, str(result.logits.device), seed=None),
    )


def _changes(result: HeteroAdaptation) -> tuple[Change, ...]:
    """The types of which something changed; the predicted one where none did."""
    original = result.patch.revert(result.data)
    made = []
    for kind, patch in result.patch.nodes.items():
        filled = None if result.filled is None else result.filled.nodes.get(kind)
        number = 0 if filled is None else int((filled.bits != 0).sum())
        moved = patch.feature_change(result.data[kind].x).cpu()
        change = change_of(patch, original[kind], result.data[kind], None, moved, CLASSES, number, kind)
        made.append(Change(kind, change.counts[:3], (), change.largest, change.columns, change.columns_of))
    for edge_type, patch in result.patch.edges.items():
        count: tuple[str, int, int | None] = ("edge entries removed", patch.num_removed, patch.edges)
        made.append(Change(" ".join(edge_type), (count,)))
    changed = [change for change in made if any(count for _, count, _ in change.counts)]
    return tuple(changed or [change for change in made if change.name == result.node_type])
