"""Labels that settle whether a proposed change is made: read from a CSV file, and put to the result."""

from __future__ import annotations

import csv
import logging
from pathlib import Path

import torch

from graphmend.errors import GraphMendError, require
from graphmend.io.files import digest
from graphmend.results.adaptation import Adaptation

HEADER = ["node", "label"]


def read_labels(path: Path) -> dict[int, int]:
    """Labels by node from rows ``node,label``; a first line with these two words is skipped."""
    require(path.is_file(), f"there is no file {path}; check the path")
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
        said = f"line {number} of {path} is {','.join(row)!r}"
        whole = len(cells) == 2 and all(cell.isascii() and cell.isdigit() for cell in cells)
        require(whole, f"{said}; write a node and its label, two whole numbers such as 17,3")
        node, label = map(int, cells)
        require(labels.get(node, label) == label, f"{said}, but node {node} has the label {labels.get(node)} above")
        labels[node] = label
    require(len(labels) > 0, f"{path} holds no labels; write rows node,label")
    return labels


def labels_digest(labels: dict[int, int]) -> str:
    """A digest of labels, whatever their order."""
    return digest({"labels": torch.tensor(sorted(labels.items()))})


def settle(result: Adaptation, labels: dict[int, int], path: Path) -> Adaptation:
    """The result that the labels speak for."""
    nodes = result.logits.size(0)
    classes = 2 if result.logits.dim() == 1 or result.logits.size(1) == 1 else result.logits.size(1)
    for node, label in labels.items():
        require(node < nodes, f"{path} names node {node}, but the nodes are 0 to {nodes - 1}; check the graph")
        require(label < classes, f"{path} gives node {node} the label {label}, but the classes are 0 to {classes - 1}")
    if result.alternative is None:
        logging.getLogger(__name__).warning("there is nothing that the labels in %s could settle", path)
    try:
        return result.decide(labels)
    except GraphMendError as error:
        raise GraphMendError(f"{path}: {str(error).replace('result.questions()', '--questions')}") from error
