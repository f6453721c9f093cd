"""The scores that 'graphmend mend' reports where a graph has labels and a mask of what is tested."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.cli.mend_inputs import labelled_nodes
from graphmend.errors import GraphMendError
from graphmend.files.files import first_line
from graphmend.outputs import Task, number_of_columns, read_labels, read_mask
from graphmend.results.measures import measures, read_truth
from graphmend.results.scores import scores

__all__ = ["Scored", "scored", "scores_of"]


def scores_of(logits: Tensor, data: Data, mask: Tensor, name: str, path: Path) -> dict[str, float]:
    """The scores on the nodes of a mask that :func:`labelled_nodes` returned; arguments as there."""
    try:
        return scores(logits, data.y, mask)
    except GraphMendError as error:
        raise GraphMendError(f"{path}: {name}: {error}") from error


def scored(
    task: Task, logits: Tensor, data: Data, name: str, path: Path
) -> tuple[Scored | None, dict[str, float] | None]:
    """What of a graph is scored, and its scores as it is; arguments as in :meth:`Scored.of`."""
    found = Scored.of(task, logits, data, name, path)
    if found is None:
        return None, None
    try:
        return found, found.scores(logits, data)
    except GraphMendError as error:
        raise GraphMendError(f"{path}: {name}: {error}") from error


@dataclass(frozen=True)
class Scored:
    """What is scored where a graph has labels and a mask: classes of nodes, or the measures of another task.

    Args:
        task: What the model's rows are.
        mask: The rows that are scored.
        truth: The labels of all rows, where they are no classes of nodes.
    """

    task: Task
    mask: Tensor
    truth: Tensor | None = None

    @classmethod
    def of(cls, task: Task, logits: Tensor, data: Data, name: str, path: Path) -> Scored | None:
        """That of a graph with labels ``y`` and a mask of this name; none for an embedding."""
        if task.kind == "embedding":
            return None
        if task.kind in (None, "classes") and not task.per_graph:
            return cls(task, labelled_nodes(data, name, path))
        try:
            mask = read_mask(data[name], logits.size(0), name, of=task.rows[:-1])
            if task.kind != "classes":
                return cls(task, mask, read_truth(task, data.y, logits.size(0), number_of_columns(logits)))
            truth = read_labels(data.y, logits.size(0), mask)
            return cls(task, mask, torch.full_like(mask, -1, dtype=torch.long).masked_scatter(mask, truth))
        except GraphMendError as error:
            raise GraphMendError(f"{path}: {error}") from error

    def scores(self, logits: Tensor, data: Data) -> dict[str, float]:
        """The measures of an output."""
        if self.truth is None:
            return scores(logits, data.y, self.mask)
        return measures(self.task, logits[self.mask.to(logits.device)], self.truth[self.mask.to(self.truth.device)])

    def scores_if_possible(self, logits: Tensor, data: Data) -> dict[str, Any]:
        """The measures, or why there are none: finished work is not lost for them."""
        try:
            return {"after": self.scores(logits, data)}
        except Exception as error:
            return {"after": None, "reason": f"{type(error).__name__}: {first_line(error)}"}
