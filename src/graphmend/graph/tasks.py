"""What a model's output is: recognised if that is safe, asked for if it is not.

Only signs that cost nothing are used: shapes, ranges and types of the output and of labels ``y`` that the graph may
have, ``edge_label_index``, and methods of the model. Labels are never compared with predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import one_of
from graphmend.graph.edge_lists import number_of_graphs
from graphmend.outputs import KINDS, Task, moves_that_count, number_of_columns

__all__ = ["as_labels", "check_task", "task_of"]

ROWS = 1000  # of the output, enough to see whether they are probabilities


def check_task(task: str | None) -> str | None:
    """The name of a task, or ``None``; an error for everything else."""
    return None if task is None else one_of("task", task, KINDS)


def as_labels(y: Any) -> Tensor | None:
    """Labels as a tensor, if they can be one."""
    try:
        return torch.as_tensor(y)
    except (TypeError, ValueError, RuntimeError):
        return None


@torch.no_grad()
def task_of(
    outputs: Sequence[Tensor], graphs: Sequence[Data], *, named: str | None = None, y: Any = None, encodes: bool = False
) -> Task:
    """The task of a model, or one whose ``doubt`` says why it is not known.

    Args:
        outputs: Its outputs on some graphs, at least one; all of them count, since one may lack some classes.
        graphs: Those graphs.
        named: The name that the caller gave.
        y: Labels to go by, instead of those that the graphs have.
        encodes: Whether the model has methods to encode nodes and to decode pairs of them.
    """
    output = torch.cat(list(outputs))
    per_graph = all(_is_per_graph(rows, data) for rows, data in zip(outputs, graphs, strict=True))
    has_pairs = any(data.get("edge_label_index") is not None for data in graphs)
    labels = _joined([data.get("y") for data in graphs]) if y is None else y
    kind, doubt = (named, "") if named is not None else _kind(output, labels, per_graph, has_pairs, encodes)
    if kind == "embedding" and per_graph:
        kind, doubt = None, "the model gives one row per graph, which is no embedding of nodes"
    moves = moves_that_count(output) if kind == "numbers" else ()
    return Task(kind, per_graph, moves, doubt)


def _is_per_graph(output: Tensor, data: Data) -> bool:
    return output.size(0) != data.x.size(0) and output.size(0) == number_of_graphs(data)


def _joined(labels: list[Any]) -> Tensor | None:
    """The labels of several graphs, joined, if all have labels of the same kind."""
    if not all(isinstance(y, Tensor) and y.dim() > 0 and y.shape[1:] == labels[0].shape[1:] for y in labels):
        return None
    return torch.cat(labels)


def _kind(output: Tensor, labels: Any, per_graph: bool, has_pairs: bool, encodes: bool) -> tuple[str | None, str]:
    """The kind, or ``None`` and why it is in doubt."""
    columns = number_of_columns(output)
    are_probabilities = columns > 1 and _are_probabilities(output)
    if encodes:
        return "embedding", ""
    if has_pairs and not per_graph:
        by_labels = _kind_of_labels(labels, output.size(0), columns)[0]
        if are_probabilities or by_labels is not None:
            return None, "the graph has an edge_label_index, but the model's rows may also be scores for its labels y"
        return "embedding", ""
    kind, doubt = _kind_of_labels(labels, output.size(0), columns)
    if are_probabilities:
        if kind in ("classes", None) and not _contradicts_classes(labels, output.size(0), columns):
            return "classes", ""
        return None, "the model's rows look like class probabilities, but its labels y are no classes"
    if kind == "labels" and bool(((output >= 0) & (output <= 1)).all()):
        return None, "all outputs lie between 0 and 1, and labels are read from logits; leave the sigmoid out, or"
    return kind, doubt


def _kind_of_labels(y: Any, rows: int, columns: int) -> tuple[str | None, str]:
    """What labels say about an output with these numbers of rows and columns."""
    table = _table(y, rows)
    if table is None:
        return None, Task().doubt
    values = table[table.isfinite()]
    if table.size(1) > 1:
        return _kind_of_rows(table, values, columns)
    known = values[values != -1]  # which often stands for no label
    if known.numel() == 0:
        return None, Task().doubt
    low, high = float(known.min()), float(known.max())
    if _are_whole(known) and low >= 0 and high + 1 == max(2, columns):
        return "classes", ""
    if columns == 1 and y.is_floating_point() and (low < 0 or high > 1):
        return "numbers", ""
    given = "one number" if columns == 1 else f"{columns} numbers"
    return None, f"the model gives {given} per row, and the labels y go from {low:g} to {high:g}"


def _kind_of_rows(y: Tensor, values: Tensor, columns: int) -> tuple[str | None, str]:
    """The same for several labels per row."""
    if y.size(1) != columns:
        return None, f"y has {y.size(1)} columns, but the model gives {columns} numbers per row"
    if not bool(((values == 0) | (values == 1)).all()):
        return "numbers", ""
    if bool((y.sum(1) == 1).all()):
        return None, "each row of y holds a single 1, so it may be a class or one of several labels"
    return "labels", ""


def _table(y: Any, rows: int) -> Tensor | None:
    """Labels as numbers, one row each; ``None`` where there are none."""
    if not isinstance(y, Tensor) or y.layout != torch.strided or y.is_complex():
        return None
    if y.dim() == 0 or y.size(0) != rows or y.numel() == 0:
        return None
    return y.detach().double().reshape(rows, -1)


def _contradicts_classes(y: Any, rows: int, columns: int) -> bool:
    """Whether labels cannot be classes of an output with this number of columns."""
    table = _table(y, rows)
    if table is None:
        return False
    if table.size(1) > 1:
        return table.size(1) != columns or not bool((table.sum(1) == 1).all())
    known = table[table.isfinite()]
    return not _are_whole(known) or bool((known >= columns).any())


def _are_whole(values: Tensor) -> bool:
    return bool((values == values.round()).all())


def _are_probabilities(output: Tensor) -> bool:
    """Whether rows are probabilities of classes, or logarithms of them."""
    rows = output[:ROWS].detach().double()
    if not bool(rows.isfinite().all()):
        return False
    tolerance = 100 * torch.finfo(output.dtype).eps * output.size(1)
    if bool((rows >= 0).all()):
        return bool(((rows.sum(1) - 1).abs() <= tolerance).all())
    return bool((rows <= tolerance).all()) and bool((rows.logsumexp(1).abs() <= tolerance).all())
