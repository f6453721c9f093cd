"""Labels that settle whether a proposed change is made: read from a CSV file, and put to the result."""

from __future__ import annotations

import csv
import logging
from pathlib import Path

import torch
from torch import Tensor

from graphmend.errors import GraphMendError, require, shown
from graphmend.files.files import digest
from graphmend.outputs import number_of_classes
from graphmend.results.adaptation import Adaptation

HEADER = ["node", "label"]
DIGITS = 18  # of the largest number, so that it is one for torch, too


def read_labels(path: Path) -> dict[int, int]:
    """Labels by node from rows ``node,label``; a first line with these two words is skipped."""
    require(path.exists(), f"there is no file {path}; check the path")
    require(path.is_file(), f"{path} is not a file; give a CSV file of rows node,label")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [(number, row) for number, row in enumerate(csv.reader(file), 1) if any(map(str.strip, row))]
    except (UnicodeDecodeError, csv.Error) as error:
        raise GraphMendError(f"{path} is not a text file of rows node,label ({error}); write it again") from error
    labels: dict[int, int] = {}
    for number, row in rows:
        cells = [cell.strip() for cell in row]
        if number == rows[0][0] and [cell.lower() for cell in cells] == HEADER:
            continue
        said = f"line {number} of {path} is {shown(','.join(row))}"
        whole = len(cells) == 2 and all(cell.isascii() and cell.isdigit() and len(cell) <= DIGITS for cell in cells)
        require(whole, f"{said}; write a node and its label, two whole numbers such as 17,3")
        node, label = map(int, cells)
        require(labels.get(node, label) == label, f"{said}, but node {node} has the label {labels.get(node)} above")
        labels[node] = label
    require(len(labels) > 0, f"{path} holds no labels; write rows node,label")
    return labels


def labels_digest(labels: dict[int, int]) -> str:
    """A digest of labels, whatever their order."""
    return digest({"labels": torch.tensor(sorted(labels.items()))})


def check_answers(labels: dict[int, int], logits: Tensor, path: Path) -> None:
    """Raise unless the graph has these nodes and the model these classes.

    Args:
        labels: Labels by node.
        logits: The model's output on the graph.
        path: The file of the labels, for the message.
    """
    nodes = logits.size(0)
    classes = number_of_classes(logits)
    for node, label in labels.items():
        require(node < nodes, f"{path} names node {node}, but the nodes are 0 to {nodes - 1}; check the graph")
        require(label < classes, f"{path} gives node {node} the label {label}, but the classes are 0 to {classes - 1}")


def settle(result: Adaptation, labels: dict[int, int], path: Path) -> Adaptation:
    """The result that the labels speak for."""
    if result.alternative is None:
        logging.getLogger(__name__).warning("there is nothing that the labels in %s could settle", path)
    try:
        return result.decide(labels)
    except GraphMendError as error:
        raise GraphMendError(f"{path}: {str(error).replace('result.questions()', '--questions')}") from error
