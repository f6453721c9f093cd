r"""Why the prediction of a node changed: each part of the change is taken back by itself, and the model runs again.

The *effect* of a part :math:`i` on the node :math:`v` is :math:`m_v(G') - m_v(G'_{-i})`: the margin on the mended graph
:math:`G'`, minus the margin on the same graph without this part of the change. The margin is the log-odds of the new
class against the old one; where the class stayed the same, against all others. Of several labels it is the logit, and
of several numbers the number, that moved most. Effects are exact for every model, but they need not add up to the whole
change, because parts act together; the remainder is listed as such.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explanation as PyGExplanation

from graphmend.errors import require, shown
from graphmend.graph.edits import with_edge_changes
from graphmend.outputs import Task, probabilities
from graphmend.results import style
from graphmend.results.tables import html_table, text_lines

if TYPE_CHECKING:
    from graphmend.results.adaptation import Adaptation

__all__ = ["Explanation", "Part", "explain"]

PARTS = 8  # of each kind that are examined one by one
COLUMNS = 5  # of the node's row that are listed
_TINY = 1e-12


@dataclass(frozen=True)
class Part:
    """One part of the change, and what it did to the node.

    Args:
        kind: ``"own row"``, ``"row of neighbour"``, ``"removed edge from"``, ``"added edge from"`` or what is left.
        nodes: The other node of an edge, or the neighbour; empty for the rest.
        effect: By how much it moved the margin of the node.
    """

    kind: str
    nodes: tuple[int, ...]
    effect: float

    @property
    def label(self) -> str:
        """The part, for a person."""
        return self.kind if not self.nodes else f"{self.kind} {self.nodes[0]}"


@dataclass(frozen=True, eq=False)
class Explanation:
    """What the change did to one node.

    Args:
        node: The node.
        before: Its predicted class before; the label, 0 or 1, or the number.
        after: The same after.
        confidence_before: The probability of that class or label before; none of a number.
        confidence_after: That of the one after.
        row_before: Its features before.
        row_after: Its features after.
        margin: By how much the margin of the node moved in all.
        parts: The parts of the change, the strongest first.
        data: The mended graph.
        task: What is predicted: ``"classes"``, ``"labels"`` or ``"numbers"``.
        column: Which label or number it is.
    """

    node: int
    before: float
    after: float
    confidence_before: float | None
    confidence_after: float | None
    row_before: Tensor
    row_after: Tensor
    margin: float
    parts: tuple[Part, ...]
    data: Data
    task: str = "classes"
    column: int = 0

    @property
    def columns(self) -> list[tuple[int, float, float]]:
        """The columns of the node's row that changed most, with their values before and after."""
        change = (self.row_after.double() - self.row_before.double()).nan_to_num(nan=torch.inf).abs()
        order = change.argsort(descending=True)[:COLUMNS].tolist()
        return [(c, float(self.row_before[c]), float(self.row_after[c])) for c in order if float(change[c]) > 0]

    @property
    def _title(self) -> str:
        if self.confidence_before is None or self.confidence_after is None:
            return f"Number {self.column} of node {self.node} went from {self.before:.4g} to {self.after:.4g}"
        sure = f"({self.confidence_before:.0%} sure before, {self.confidence_after:.0%} after)"
        stays = self.before == self.after
        if self.task == "labels":
            change = f"stays {self.after}" if stays else f"went from {self.before} to {self.after}"
            return f"Label {self.column} of node {self.node} {change} {sure}"
        change = f"stays in class {self.after}" if stays else f"went from class {self.before} to {self.after}"
        return f"Node {self.node} {change} {sure}"

    @property
    def _margin_of(self) -> str:
        if self.task == "classes":
            return f"the log-odds of class {self.after}"
        return f"the logit of label {self.column}" if self.task == "labels" else f"number {self.column}"

    def _rows(self) -> list[tuple[str, str]]:
        rows = [(f"feature {column}", f"{old:.4g} -> {new:.4g}") for column, old, new in self.columns]
        return rows + [(part.label, f"{part.effect:+.3f} of {self.margin:+.3f}") for part in self.parts]

    def __repr__(self) -> str:
        return text_lines(self._title, self._rows() or [("nothing", "changed near this node")])

    def _repr_html_(self) -> str:
        return html_table(self._title, self._rows())

    def summary(self) -> dict[str, Any]:
        """The numbers, ready for JSON."""
        return {
            "node": self.node,
            "task": self.task,
            "column": self.column,
            "before": self.before,
            "after": self.after,
            "confidence_before": self.confidence_before,
            "confidence_after": self.confidence_after,
            "margin": self.margin,
            "parts": [{"kind": part.kind, "nodes": list(part.nodes), "effect": part.effect} for part in self.parts],
            "columns": [{"column": c, "before": old, "after": new} for c, old, new in self.columns],
        }

    def to_pyg(self) -> PyGExplanation:
        """The same as an explanation of PyG, for its ``visualize_graph`` and ``visualize_feature_importance``.

        The importance of an edge that points at the node, and that of a row, is the size of its effect. Edges that were
        removed are not in the mended graph and have none.
        """
        edge_index, x = self.data.edge_index, self.data.x
        edge_mask, node_mask = x.new_zeros(edge_index.size(1)), torch.zeros_like(x)
        change = (self.row_after.double() - self.row_before.double()).nan_to_num(nan=0.0).abs().to(x)
        for part in self.parts:
            for other in part.nodes:
                here = (edge_index[0] == other) & (edge_index[1] == self.node)
                edge_mask[here] = torch.maximum(edge_mask[here], edge_mask.new_tensor(abs(part.effect)))
            if part.kind == "own row":
                node_mask[self.node] = change / change.sum().clamp(min=_TINY) * abs(part.effect)
        target = int(self.after) if self.task == "classes" else self.column
        return PyGExplanation(
            x=x, edge_index=edge_index, node_mask=node_mask, edge_mask=edge_mask, index=self.node, target=target
        )

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the effects as bars; returns a matplotlib ``Figure``.

        Args:
            path: Where to save it, if anywhere; the ending decides on the format.
        """
        figure = style.figure(8, 1.9 + 0.36 * max(1, len(self.parts)))
        if path is not None:
            style.form_of(figure, path)
        axes = figure.subplots()
        places, effects = range(len(self.parts)), [part.effect for part in self.parts]
        bars = axes.barh(places, effects, color=[style.GOOD if effect >= 0 else style.BAD for effect in effects])
        axes.bar_label(bars, [f"{effect:+.2f}" for effect in effects], padding=4, fontsize=9, color=style.INK)
        axes.set_yticks(places, [part.label for part in self.parts])
        axes.invert_yaxis()
        axes.axvline(0, color=style.INK, linewidth=0.8)
        axes.margins(x=0.15)
        axes.set_xticks([])
        style.heading(
            figure,
            self._title,
            f"Each part was taken back alone: effects on {self._margin_of}, {self.margin:+.2f} in all",
        )
        style.dress(figure)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        if path is not None:
            style.save(figure, path)
        return figure


@dataclass(frozen=True)
class _Reading:
    """How the output for a node is read: from what it is before and after, one number that tells the two apart."""

    task: str
    column: int
    before: float
    after: float
    sure: tuple[float, float] | None
    margin: Callable[[Tensor], float]

    @classmethod
    def of(cls, task: Task, old: Tensor, new: Tensor) -> _Reading:
        """That of two outputs for a node, rows of one."""
        return _of_classes(old, new) if task.kind == "classes" else _of_column(task, old, new)


def _of_classes(old: Tensor, new: Tensor) -> _Reading:
    first, last = (probabilities(row).double()[0] for row in (old, new))
    was, now = int(first.argmax()), int(last.argmax())

    def margin(row: Tensor) -> float:
        probability = probabilities(row).double()[0]
        against = 1 - probability[now] if was == now else probability[was]
        return float(probability[now].clamp(min=_TINY).log() - against.clamp(min=_TINY).log())

    return _Reading("classes", 0, was, now, (float(first[was]), float(last[now])), margin)


def _of_column(task: Task, old: Tensor, new: Tensor) -> _Reading:
    first, last = (row.detach().double().reshape(-1) for row in (old, new))
    units = last.new_tensor(task.moves or [1.0]).clamp(min=_TINY)
    column = int(((last - first).abs() / units).nan_to_num(nan=0.0).argmax())

    def margin(row: Tensor) -> float:
        return float(row.detach().double().reshape(-1)[column])

    was, now = float(first[column]), float(last[column])
    if task.kind == "numbers":
        return _Reading("numbers", column, was, now, None, margin)
    sure = [float(value.abs().sigmoid()) for value in (first[column], last[column])]
    return _Reading("labels", column, int(was > 0), int(now > 0), (sure[0], sure[1]), margin)


def explain(result: Adaptation, node: int, task: Task) -> Explanation:
    """Why the prediction of a node changed; see the text of this module.

    Args:
        result: A result whose model is as it was.
        node: The node.
        task: What is predicted.
    """
    nodes, given = result.patch.nodes, shown(node)
    try:
        node = -1 if isinstance(node, bool) else operator.index(node)
    except (TypeError, ValueError):
        node = -1
    require(0 <= node < nodes, f"node must be the number of a node, 0 to {nodes - 1} (got {given})")
    of_nodes = task.known().predicts and not task.per_graph
    require(of_nodes, f"explain() is for predictions of nodes, and the model's task is {task}; use result.compare()")
    rerun, before, after = result.require_rerun(), result.graph_before(), result.data
    old, new = (logits[node : node + 1] for logits in (result.before, result.logits))
    reading = _Reading.of(task, old, new)
    weights_count = result.patch.weight_bits is not None or result.patch.new_weights is not None

    def without(graph: Data) -> float:
        logits = rerun.logits(graph, weights_count=weights_count)[node : node + 1]
        return reading.margin(new) - reading.margin(logits)

    parts = [Part(kind, others, without(graph)) for kind, others, graph in _parts(result, before, after, node)]
    total = reading.margin(new) - reading.margin(old)
    if not result.patch.is_empty:
        parts.append(Part("everything else, and parts together", (), total - sum(part.effect for part in parts)))
    sure = (None, None) if reading.sure is None else reading.sure
    return Explanation(
        node=node,
        before=reading.before,
        after=reading.after,
        confidence_before=sure[0],
        confidence_after=sure[1],
        row_before=before.x[node].detach().cpu(),
        row_after=after.x[node].detach().cpu(),
        margin=total,
        parts=tuple(sorted(parts, key=lambda part: -abs(part.effect))),
        data=after,
        task=reading.task,
        column=reading.column,
    )


def _parts(result: Adaptation, before: Data, after: Data, node: int) -> list[tuple[str, tuple[int, ...], Data]]:
    """Each part of the change near a node, with the mended graph without that part."""
    patch = result.patch
    found: list[tuple[str, tuple[int, ...], Data]] = []
    moved = patch.feature_change(after.x)
    rows = set(patch.rows.tolist())
    if node in rows:
        found.append(("own row", (), _with_rows(after, before, [node])))
    around = {int(v) for graph in (before, after) for v in graph.edge_index[0, graph.edge_index[1] == node]} - {node}
    changed = sorted(around & rows, key=lambda other: -float(moved[other]))[:PARTS]
    found += [("row of neighbour", (other,), _with_rows(after, before, [other])) for other in changed]
    kept = after.edge_index.size(1) - patch.num_added
    none = patch.removed[:0]
    source, target = patch.added_edges()
    for place in (target == node).nonzero().view(-1)[:PARTS].tolist():
        graph = with_edge_changes(after, none.new_tensor([kept + place]), _some(patch.added_attributes, none))
        found.append(("added edge from", (int(source[place]),), graph))
    source, target = patch.removed_edges()
    for place in (target == node).nonzero().view(-1)[:PARTS].tolist():
        graph = with_edge_changes(after, none, _some(patch.removed_attributes, none.new_tensor([place])))
        found.append(("removed edge from", (int(source[place]),), graph))
    return found


def _with_rows(after: Data, before: Data, rows: list[int]) -> Data:
    out = copy.copy(after)
    out.x = after.x.detach().clone()
    out.x[rows] = before.x[rows]
    return out


def _some(attributes: dict[str, Tensor], places: Tensor) -> dict[str, Tensor]:
    return {name: value.index_select(0, places.to(value.device)) for name, value in attributes.items()}
