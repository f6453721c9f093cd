"""What comes with a graph: masks in its file, limits, and labels in the file or in a CSV; all checked."""

from __future__ import annotations

import csv
import logging
import math
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.cli.settings import flag
from graphmend.errors import GraphMendError, listed, require, shown
from graphmend.files.archives import check_size
from graphmend.files.files import check_file, digest
from graphmend.graph.limits import Limits
from graphmend.outputs import Task, number_of_classes, number_of_columns, read_labels, read_mask
from graphmend.results.adaptation import Adaptation

MASKS = ("frozen_nodes", "frozen_columns", "frozen_edges")
HEADER = ["node", "label"]
DIGITS = 18  # digits at most, so that the number also fits into a tensor


def limits_of(data: Data, options: dict[str, Any], path: Path) -> Limits:
    """What must not change in a graph, checked.

    Args:
        data: The graph.
        options: The names of arrays by the names in :data:`MASKS`, ``None`` for the array of that very name if there
            is one; ``minimum`` and ``maximum``; ``binary`` and ``non_negative``, which are about all columns.
        path: The file of the graph, for the message.
    """
    every = torch.ones(data.x.size(1), dtype=torch.bool)
    limits = Limits(
        **{name: mask_in(data, name, options[name], path) for name in MASKS},
        minimum=options["minimum"],
        maximum=options["maximum"],
        binary=every if options["binary"] else None,
        non_negative=every if options["non_negative"] else None,
    )
    try:
        limits.check(data)
    except GraphMendError as error:
        raise GraphMendError(f"{path}: {error}") from error
    return limits


def mask_in(data: Data, option: str, given: str | None, path: Path) -> Any:
    """An array of the graph file that an option names, 0 and 1 as booleans; without a name, the option's own name.

    Args:
        data: The graph.
        option: The option.
        given: The name that was given, if one was.
        path: The file of the graph, for the message.
    """
    mask = data.get(option if given is None else given)
    require(
        given is None or mask is not None,
        f"{flag(option)}: {path} has no array {given!r}; it has {listed(data.keys())}",
    )
    is_mask = isinstance(mask, Tensor) and not mask.is_floating_point() and bool(((mask == 0) | (mask == 1)).all())
    return mask.bool() if is_mask else mask


def labelled_nodes(data: Data, name: str, path: Path) -> Tensor:
    """The nodes of a mask in the graph, all of which have a class as a label.

    Args:
        data: The graph.
        name: The name of the mask.
        path: The file of the graph, for the message.
    """
    mask, y = data.get(name), data.get("y")
    require(mask is not None, f"{path}: the graph has no mask {name!r}; it has {listed(data.keys())}")
    require(y is not None, f"{path}: {name} marks nodes with labels, but the graph has no y")
    nodes = data.x.size(0)
    marked = read_mask(mask, nodes, f"{path}: {name}")
    lowest = int(read_labels(y, nodes, marked, f"{path}: y").min())
    require(lowest >= 0, f"{path}: y holds the label {lowest} in {name}; take unlabelled nodes out of the mask")
    return marked


Answers: TypeAlias = dict[int, int | tuple[float, ...]]
"""Labels by node: a class each, or the labels or numbers of a row."""


def answers_in(path: Path) -> Answers:
    """Labels by node from rows ``node,label``, or with several labels or numbers; a first line of words is skipped."""
    check_file(path, "give a CSV file of rows node,label")
    check_size(path, path.stat().st_size)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [(number, row) for number, row in enumerate(csv.reader(file), 1) if any(map(str.strip, row))]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise GraphMendError(f"{path} is not a text file of rows node,label ({error}); write it again") from error
    labels: Answers = {}
    for number, row in rows:
        cells = [cell.strip() for cell in row]
        if number == rows[0][0] and [cell.lower() for cell in cells] == HEADER:
            continue
        row_text = f"line {number} of {path} is {shown(','.join(row))}"
        values = [_value(cell) for cell in cells[1:]]
        good = len(values) > 0 and _is_whole(cells[0]) and None not in values
        require(good, f"{row_text}; write a node and its label, two whole numbers such as 17,3, or its numbers")
        node = int(cells[0])
        label = int(cells[1]) if len(values) == 1 and _is_whole(cells[1]) else tuple(map(float, cells[1:]))
        require(labels.get(node, label) == label, f"{row_text}, but node {node} has the label {labels.get(node)} above")
        labels[node] = label
    require(len(labels) > 0, f"{path} holds no labels; write rows node,label")
    return labels


def _is_whole(cell: str) -> bool:
    return cell.isascii() and cell.isdigit() and len(cell) <= DIGITS


def _value(cell: str) -> float | None:
    """A finite number, if the text is one."""
    try:
        value = float(cell) if cell.isascii() and "_" not in cell else math.inf
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def answers_digest(labels: Answers) -> str:
    """A digest of labels, whatever their order."""
    if all(isinstance(label, int) for label in labels.values()):
        return digest({"labels": torch.tensor(sorted(labels.items()))})
    return digest({}, repr(sorted(labels.items())))


def check_answers(labels: Answers, task: Task, logits: Tensor, path: Path) -> None:
    """Raise unless the graph has these nodes and the model these classes, or so many numbers.

    Args:
        labels: Labels by node.
        task: What the model's rows are.
        logits: The model's output on the graph.
        path: The file of the labels, for the message.
    """
    rows, columns, classes = logits.size(0), number_of_columns(logits), number_of_classes(logits)
    one = task.rows[:-1]
    for row, label in labels.items():
        require(row < rows, f"{path} names {one} {row}, but the {task.rows} are 0 to {rows - 1}; check the graph")
        given = (label,) if isinstance(label, int) else label
        text = ",".join(f"{value:g}" for value in given)
        if task.kind in ("labels", "numbers"):
            good, wanted = len(given) == columns, f"each {one} has {columns}"
        else:
            good, wanted = isinstance(label, int) and label < classes, f"the classes are 0 to {classes - 1}"
        require(good, f"{path} gives {one} {row} the label {text}, but {wanted}")


def settle(result: Adaptation, labels: Answers, path: Path) -> Adaptation:
    """The result that the labels speak for."""
    if result.alternative is None:
        logging.getLogger(__name__).warning("there is nothing that the labels in %s could settle", path)
    try:
        return result.decide(labels)
    except GraphMendError as error:
        raise GraphMendError(f"{path}: {str(error).replace('result.questions()', '--questions')}") from error
