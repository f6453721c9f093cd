"""The predictions before and after, side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from graphmend.errors import GraphMendError, require
from graphmend.outputs import number_of_classes, predictions, read_mask
from graphmend.results.tables import html_table

__all__ = ["Comparison", "compare"]

SHOWN = 5  # moves from class to class in the text


@dataclass(frozen=True)
class Comparison:
    """How predictions changed, and with labels whether they got better.

    Args:
        nodes: How many nodes were compared.
        moves: Number of nodes by class before and class after, the largest first; only those that changed.
        correct_before: Correct predictions before, if there were labels.
        correct_after: Correct predictions after.
        helped: Nodes whose prediction became correct.
        harmed: Nodes whose prediction became wrong.
    """

    nodes: int
    moves: dict[tuple[int, int], int]
    correct_before: int | None = None
    correct_after: int | None = None
    helped: int | None = None
    harmed: int | None = None

    @property
    def changed(self) -> int:
        """Nodes whose prediction changed."""
        return sum(self.moves.values())

    @property
    def accuracy_before(self) -> float | None:
        """Share of correct predictions before, if there were labels."""
        return None if self.correct_before is None else self.correct_before / self.nodes

    @property
    def accuracy_after(self) -> float | None:
        """Share of correct predictions after, if there were labels."""
        return None if self.correct_after is None else self.correct_after / self.nodes

    def __str__(self) -> str:
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

    def _repr_html_(self) -> str:
        rows = [(f"{old} -> {new}", number) for (old, new), number in list(self.moves.items())[: 2 * SHOWN]]
        return html_table("Comparison", rows, ("prediction", "nodes") if rows else (), note=str(self))

    def summary(self) -> dict[str, Any]:
        """The numbers, ready for JSON."""
        moves = [{"before": old, "after": new, "nodes": number} for (old, new), number in self.moves.items()]
        accuracy = {"accuracy_before": self.accuracy_before, "accuracy_after": self.accuracy_after}
        return {**asdict(self), "moves": moves, "changed": self.changed, **accuracy}


def compare(before: Tensor, after: Tensor, y: Any = None, mask: Any = None) -> Comparison:
    """Compare two outputs of a model.

    Args:
        before: Its output before.
        after: Its output after.
        y: True classes, one whole number per node.
        mask: The nodes to compare, as a boolean tensor; all of them by default.
    """
    classes = number_of_classes(after)
    old, new = predictions(before), predictions(after)
    chosen = torch.ones_like(old, dtype=torch.bool)
    if mask is not None:
        chosen = read_mask(mask, old.numel()).to(old.device)
    labels = None if y is None else _labels(y, chosen, classes)
    old, new = old[chosen], new[chosen]
    pairs = Counter(zip(old[old != new].tolist(), new[old != new].tolist(), strict=True))
    moves = dict(sorted(pairs.items(), key=lambda item: (-item[1], item[0])))
    if labels is None:
        return Comparison(old.numel(), moves)
    was_right, is_right = old == labels, new == labels
    counts = (was_right, is_right, is_right & ~was_right, was_right & ~is_right)
    return Comparison(old.numel(), moves, *(int(count.sum()) for count in counts))


def _labels(y: Any, chosen: Tensor, classes: int) -> Tensor:
    """The true classes of the chosen nodes, of which there is one each."""
    try:
        labels = torch.as_tensor(y).to(chosen.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise GraphMendError(f"y must be a tensor of one class per node (got {type(y).__name__})") from error
    nodes, shape = chosen.numel(), tuple(labels.shape)
    require(shape in ((nodes,), (nodes, 1)), f"y must have one class per node, {nodes} in all (got shape {shape})")
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
