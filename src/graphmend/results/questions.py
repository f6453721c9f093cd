r"""A few labels settle whether a change helps: a sequential test on the nodes whose prediction it flips.

Only flipped nodes matter. At each, either the new prediction is right, or the old one, or neither. Of the nodes that
speak for one side, let a share :math:`p` speak for the change. Wald's test compares :math:`p = 0.65` with
:math:`p = 0.35`: every node for the change adds :math:`\ln(0.65 / 0.35)`, every node against it subtracts as much, and
the sum decides as soon as it leaves :math:`\pm \ln((1 - \alpha) / \alpha)` (Wald, 1945). That takes at least
:data:`FEWEST` flipped nodes; a change that flips fewer cannot be settled by labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphmend.errors import GraphMendError, require, shown

__all__ = ["FEWEST", "Poll", "class_number", "nodes_to_ask", "numbers_of", "poll", "poll_of", "rows_to_ask"]

SHARE = 0.65
ERROR = 0.05
STEP = math.log(SHARE / (1 - SHARE))  # what one label adds or subtracts
LIMIT = math.log((1 - ERROR) / ERROR)  # where the test ends
FEWEST = math.ceil(LIMIT / STEP)  # labels that can settle the matter, if all of them speak for the same side


@dataclass(frozen=True)
class Poll:
    """How the labels of some nodes count.

    Args:
        for_change: Nodes at which only the new prediction is right.
        against: Nodes at which only the old prediction is right.
        asked: Labels that were used.
        decision: Whether the change is right; ``None`` if the labels do not settle it.
    """

    for_change: int
    against: int
    asked: int
    decision: bool | None


def poll(old: Tensor, new: Tensor, labels: Sequence[int]) -> Poll:
    """Test labels of flipped nodes in their order, as far as needed.

    Args:
        old: The old predictions of those nodes.
        new: Their new predictions.
        labels: Their true classes.
    """
    rows = zip(old.tolist(), new.tolist(), labels, strict=True)
    return poll_of([(after == label) - (before == label) for before, after, label in rows])


def poll_of(sides: Sequence[int]) -> Poll:
    """Test in their order, as far as needed, for which side some rows speak.

    Args:
        sides: 1 for a row whose new prediction is the better one, -1 for the old one, 0 for neither.
    """
    for_change, against = 0, 0
    for number, side in enumerate(sides, 1):
        for_change += side > 0
        against += side < 0
        score = STEP * (for_change - against)
        if abs(score) >= LIMIT:
            return Poll(for_change, against, number, score > 0)
    return Poll(for_change, against, len(sides), None)


def labels_in_order(labels: Any, columns: int = 1) -> list[Any]:
    """Labels without their nodes, from a tensor, an array or a list; rows of them where there are several columns."""
    try:
        shape = (-1,) if columns == 1 else (-1, columns)
        values: list[Any] = torch.as_tensor(labels).reshape(shape).tolist()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        wanted = "classes by node, or a tensor of classes in the order of result.questions()"
        raise GraphMendError(f"labels must be {wanted} (got {shown(labels)})") from error
    return values


def class_number(label: Any, classes: int) -> int:
    """A label as a whole number, after a check that it is one and that there is such a class."""
    try:
        number: int | None = int(label)
    except (TypeError, ValueError, OverflowError):
        number = None
    require(number is not None and bool(number == label), f"labels must be whole numbers (got {shown(label)})")
    assert number is not None
    require(0 <= number < classes, f"there is no class {number}; the classes are 0 to {classes - 1}")
    return number


def numbers_of(label: Any, columns: int) -> list[float]:
    """The label of a row with several labels or numbers, one for each column; NaN is not known."""
    try:
        values: list[float] = torch.as_tensor(label, dtype=torch.float64).reshape(-1).tolist()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise GraphMendError(f"a label must hold {columns} numbers (got {shown(label)})") from error
    require(len(values) == columns, f"a label must hold {columns} numbers, as the output does (got {shown(label)})")
    return values


def nodes_to_ask(old: Tensor, new: Tensor, number: int, keys: Tensor) -> Tensor:
    """Up to ``number`` of the nodes whose predictions differ, in the order of their keys.

    Args:
        old: The old predictions.
        new: The new predictions.
        number: How many nodes at most.
        keys: A number for each node that looks random, see :func:`graphmend.graph.canonical.node_keys`.
    """
    return rows_to_ask(old != new, number, keys)


def rows_to_ask(changed: Tensor, number: int, keys: Tensor) -> Tensor:
    """Up to ``number`` of the rows in a mask, in the order of their keys."""
    flipped = changed.nonzero().view(-1)
    return flipped[keys[flipped].argsort()[:number]]
