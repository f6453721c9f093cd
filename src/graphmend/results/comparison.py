"""The predictions before and after, side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from graphmend.errors import GraphMendError, require
from graphmend.outputs import (
    CLASSES,
    Task,
    changed_rows,
    moves_that_count,
    number_of_classes,
    number_of_columns,
    predicted,
    predictions,
    read_mask,
    wrongness,
)
from graphmend.results.measures import PERCENT, measures, measures_of_pairs, measures_per_label, read_truth
from graphmend.results.tables import html_table

__all__ = ["Comparison", "compare", "compare_pairs"]

SHOWN = 5  # moves from class to class in the text


@dataclass(frozen=True)
class Comparison:
    """How predictions changed, and with labels whether they got better.

    Args:
        nodes: How many nodes were compared.
        moves: Number of nodes by class before and class after, the largest first; only those that changed.
        correct_before: Correct predictions before, if there were labels.
        correct_after: Correct predictions after.
        helped: Nodes whose prediction became correct; for labels and numbers, less wrong.
        harmed: Nodes whose prediction became wrong, or more wrong.
        task: What the rows of the output are, see :class:`graphmend.outputs.Task`; ``nodes`` counts graphs where there
            is one row per graph.
        flipped: Rows whose labels or numbers changed.
        moved: How far scores of labels, numbers or embeddings moved on average, in standard deviations of their old
            values.
        before: The measures before, by name, if there were labels.
        after: The measures after.
        per_label: If there are several labels, for each of them how many rows changed, and its measures.
    """

    nodes: int
    moves: dict[tuple[int, int], int]
    correct_before: int | None = None
    correct_after: int | None = None
    helped: int | None = None
    harmed: int | None = None
    task: str = "classes"
    flipped: int | None = None
    moved: float | None = None
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)
    per_label: dict[str, list[float]] = field(default_factory=dict)

    @property
    def changed(self) -> int:
        """Nodes whose prediction changed."""
        return sum(self.moves.values()) if self.flipped is None else self.flipped

    @property
    def accuracy_before(self) -> float | None:
        """Share of correct predictions before, if there were labels."""
        return None if self.correct_before is None else self.correct_before / self.nodes

    @property
    def accuracy_after(self) -> float | None:
        """Share of correct predictions after, if there were labels."""
        return None if self.correct_after is None else self.correct_after / self.nodes

    def __str__(self) -> str:
        if not self.task.startswith("classes"):
            return "\n".join([self._change, *self._scores])
        shown = [f"{old} -> {new} ({number})" for (old, new), number in list(self.moves.items())[:SHOWN]]
        more = [f"{len(self.moves) - SHOWN} other moves"] if len(self.moves) > SHOWN else []
        moves = f": {', '.join(shown + more)}" if shown else ""
        lines = [f"{self.changed} of {self.nodes} predictions changed{moves}"]
        if self.accuracy_before is not None and self.accuracy_after is not None:
            lines.append(
                f"accuracy {self.accuracy_before:.1%} before, {self.accuracy_after:.1%} after: "
                f"{self.helped} helped, {self.harmed} harmed"
            )
        return "\n".join(lines)

    __repr__ = __str__

    @property
    def _change(self) -> str:
        """What changed if there are no classes, as a sentence."""
        rows = "graphs" if self.task.endswith("per graph") else "nodes"
        if self.task == "embedding":
            moved = "" if self.moved is None else f"; its rows moved by {self.moved:.2g} standard deviations on average"
            return f"an embedding of {self.nodes} nodes, which predicts nothing by itself{moved}"
        what = "changed a label" if self.task.startswith("labels") else "have a prediction that moved"
        return f"{self.changed} of {self.nodes} {rows} {what}"

    @property
    def _scores(self) -> list[str]:
        """The measures before and after, as a sentence."""
        both = [
            f"{name} {_shown(name, self.before[name])} before, {_shown(name, self.after[name])} after"
            for name in self.before
            if name in self.after
        ]
        sides = "" if self.helped is None else f": {self.helped} helped, {self.harmed} harmed"
        return [f"{'; '.join(both)}{sides}"] if both else []

    def _repr_html_(self) -> str:
        if not self.task.startswith("classes"):
            table = [
                (name, _shown(name, self.before[name]), _shown(name, self.after[name]))
                for name in self.before
                if name in self.after
            ]
            return html_table("Comparison", table, ("", "before", "after") if table else (), note=self._change)
        rows = [(f"{old} -> {new}", number) for (old, new), number in list(self.moves.items())[: 2 * SHOWN]]
        return html_table("Comparison", rows, ("prediction", "nodes") if rows else (), note=str(self))

    def summary(self) -> dict[str, Any]:
        """The numbers, ready for JSON."""
        moves = [{"before": old, "after": new, "nodes": number} for (old, new), number in self.moves.items()]
        accuracy = {"accuracy_before": self.accuracy_before, "accuracy_after": self.accuracy_after}
        out = {**asdict(self), "moves": moves, "changed": self.changed, **accuracy}
        out["per_label"] = {name: [None if v != v else v for v in values] for name, values in self.per_label.items()}
        return out


def _shown(name: str, value: float) -> str:
    return f"{value:.1%}" if name in PERCENT else f"{value:.3g}"


def compare(before: Tensor, after: Tensor, y: Any = None, mask: Any = None, task: Task = CLASSES) -> Comparison:
    """Compare two outputs of a model.

    Args:
        before: Its output before.
        after: Its output after.
        y: True classes, one whole number per node, or what the task has instead, one row for each row of the output.
        mask: The nodes to compare, as a boolean tensor; all of them by default.
        task: What the rows are.
    """
    if task.known().kind != "classes":
        return _compare_numbers(before, after, y, mask, task)
    classes = number_of_classes(after)
    old, new = predictions(before), predictions(after)
    chosen = torch.ones_like(old, dtype=torch.bool)
    if mask is not None:
        chosen = read_mask(mask, old.numel()).to(old.device)
    labels = None if y is None else _labels(y, chosen, classes, task.rows)
    old, new = old[chosen], new[chosen]
    pairs = Counter(zip(old[old != new].tolist(), new[old != new].tolist(), strict=True))
    moves = dict(sorted(pairs.items(), key=lambda item: (-item[1], item[0])))
    if labels is None:
        return Comparison(old.numel(), moves, task=str(task))
    was_right, is_right = old == labels, new == labels
    counts = (was_right, is_right, is_right & ~was_right, was_right & ~is_right)
    numbers = [int(count.sum()) for count in counts]
    scores = [{"accuracy": number / old.numel()} for number in numbers[:2]]
    correct_before, correct_after, helped, harmed = numbers
    return Comparison(
        old.numel(),
        moves,
        correct_before,
        correct_after,
        helped,
        harmed,
        task=str(task),
        before=scores[0],
        after=scores[1],
    )


def _compare_numbers(before: Tensor, after: Tensor, y: Any, mask: Any, task: Task) -> Comparison:
    """The same for labels, numbers or an embedding."""
    rows, columns = after.size(0), number_of_columns(after)
    chosen = torch.ones(rows, dtype=torch.bool, device=after.device)
    if mask is not None:
        chosen = read_mask(mask, rows, of=task.rows[:-1]).to(after.device)
    moved = _mean_move(before, after, chosen)
    if task.kind == "embedding":
        require(y is None, "an embedding predicts no y; give the labels of pairs of nodes, and edge_label_index")
        return Comparison(int(chosen.sum()), {}, task=str(task), flipped=0, moved=moved)
    task = task if task.moves or task.kind == "labels" else replace(task, moves=moves_that_count(before))
    changed = changed_rows(task, before, after)
    per_label: dict[str, list[float]] = {}
    if task.kind == "labels":
        flips = predicted(task, before) != predicted(task, after)
        per_label["changed"] = flips[chosen].sum(0).tolist()
    out = Comparison(int(chosen.sum()), {}, task=str(task), flipped=int(changed[chosen].sum()), moved=moved)
    if y is None:
        return replace(out, per_label=per_label)
    truth = read_truth(task, y, rows, columns)[chosen.cpu()]
    old, new = before[chosen].cpu(), after[chosen].cpu()
    was, now = wrongness(task, old, truth), wrongness(task, new, truth)
    counted = changed[chosen].cpu()
    if task.kind == "labels":
        for when, logits in (("before", old), ("after", new)):
            per_label |= {f"{name}_{when}": values for name, values in measures_per_label(logits, truth).items()}
    return replace(
        out,
        helped=int(((now < was) & counted).sum()),
        harmed=int(((now > was) & counted).sum()),
        before=measures(task, old, truth),
        after=measures(task, new, truth),
        per_label=per_label,
    )


def compare_pairs(comparison: Comparison, before: Tensor, after: Tensor, y: Any, mask: Any = None) -> Comparison:
    """A comparison of embeddings with the measures of the scores of some pairs of nodes.

    Args:
        comparison: That of the embeddings.
        before: One score for each pair before.
        after: The same after.
        y: Whether each pair is an edge, 0 or 1.
        mask: The pairs that count; all of them by default.
    """
    pairs = before.numel()
    labels = read_truth(Task("labels"), y, pairs, 1, of="pairs").reshape(-1)
    require(not bool(labels.isnan().any()), "y holds NaN; give 0 or 1 for every pair of edge_label_index")
    chosen = torch.ones(pairs, dtype=torch.bool)
    if mask is not None:
        chosen = read_mask(mask, pairs, of="pair").cpu()
    old, new = before.reshape(-1).cpu()[chosen], after.reshape(-1).cpu()[chosen]
    return replace(
        comparison, before=measures_of_pairs(old, labels[chosen]), after=measures_of_pairs(new, labels[chosen])
    )


def _mean_move(before: Tensor, after: Tensor, chosen: Tensor) -> float | None:
    """How far the numbers moved on average, in standard deviations of the old ones; ``None`` if none is finite."""
    old, new = (rows.detach().double().reshape(rows.size(0), -1)[chosen] for rows in (before, after))
    spread = old[old.isfinite().all(1)].std(0, correction=0).clamp(min=1e-12)
    moves = ((new - old).abs() / spread).mean(1)
    moves = moves[moves.isfinite()]
    return float(moves.mean()) if moves.numel() else None


def _labels(y: Any, chosen: Tensor, classes: int, rows: str = "nodes") -> Tensor:
    """The true classes of the chosen nodes, of which there is one each."""
    try:
        labels = torch.as_tensor(y).to(chosen.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise GraphMendError(f"y must be a tensor of one class per {rows[:-1]} (got {type(y).__name__})") from error
    nodes, shape = chosen.numel(), tuple(labels.shape)
    require(
        shape in ((nodes,), (nodes, 1)), f"y must have one class per {rows[:-1]}, {nodes} in all (got shape {shape})"
    )
    require(not labels.is_complex(), f"y must be whole numbers (got {labels.dtype})")
    labels = labels.reshape(-1).long() if labels.dtype == torch.bool else labels.reshape(-1)
    valid = (labels >= 0) & (labels < classes) & (labels == labels.floor())
    wrong = (chosen & ~valid).nonzero()
    if wrong.numel():
        node = int(wrong[0])
        require(
            False,
            f"y[{node}] = {labels[node].item()} is none of the model's classes, 0 to {classes - 1}; "
            "give a mask of the nodes with a label",
        )
    return labels[chosen].long()
