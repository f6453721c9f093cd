"""The one place that reads outputs of models, labels and masks.

What an output means is its :class:`Task`. A classifier has one row of class scores per node, ``(N, C)``, or one binary
logit per node, ``(N,)`` or ``(N, 1)``, which is class 1 where it is above 0. Labels are one whole number per node; a
mask says which nodes count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from graphmend.errors import GraphMendError, one_of, require
from graphmend.scratch import ROWS, large_empty, row_ranges

__all__ = [
    "ASK",
    "CLASSES",
    "FLOATS",
    "KINDS",
    "TASKS",
    "Task",
    "changed_rows",
    "check_classes",
    "check_dense",
    "check_floats",
    "check_output",
    "class_scores",
    "count_classes",
    "cross_entropy",
    "has_one_logit",
    "moves_that_count",
    "number_of_classes",
    "number_of_columns",
    "predicted",
    "predictions",
    "probabilities",
    "read_labels",
    "read_mask",
    "wrongness",
]

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
KINDS = {
    "classes": "one class for each node or graph",
    "labels": "several independent labels, one logit each",
    "numbers": "regression",
    "embedding": "a representation of the nodes that predicts nothing itself, such as an encoder's for link prediction",
}
"""What the rows of an output can be."""
TASKS = (*KINDS, *(f"{kind} per graph" for kind in KINDS if kind != "embedding"))
"""The texts of all tasks: with one row per node, then with one row per graph."""
MOVE = 0.1  # times its standard deviation: a predicted number that moves farther counts as changed
ASK = "name what the model's rows are with task='classes', 'labels', 'numbers' or 'embedding' (--task)"


@dataclass(frozen=True)
class Task:
    """What the rows of a model's output are.

    Args:
        kind: One of :data:`KINDS`; ``None`` if it is unknown.
        per_graph: Whether there is one row per graph instead of one per node.
        moves: For numbers, by how much each column has to move to count as changed.
        doubt: Why the kind is not known.
    """

    kind: str | None = None
    per_graph: bool = False
    moves: tuple[float, ...] = ()
    doubt: str = "nothing tells what the model's rows are"

    def __str__(self) -> str:
        return "unknown" if self.kind is None else f"{self.kind} per graph" if self.per_graph else self.kind

    @property
    def rows(self) -> str:
        """What the rows stand for, in the plural."""
        return "graphs" if self.per_graph else "nodes"

    @property
    def has_node_classes(self) -> bool:
        """Whether every node has a predicted class."""
        return self.kind == "classes" and not self.per_graph

    @property
    def predicts(self) -> bool:
        """Whether it is known, and its rows are predictions."""
        return self.kind not in (None, "embedding")

    def known(self) -> Task:
        """The task, if it is known; the error asks for its name."""
        require(self.kind is not None, f"{self.doubt}; {ASK}")
        return self

    @classmethod
    def of(cls, text: str, moves: tuple[float, ...] = ()) -> Task:
        """The task with one of the texts in :data:`TASKS`."""
        one_of("task", text, TASKS)
        return cls(text.removesuffix(" per graph"), text.endswith(" per graph"), moves)


CLASSES = Task("classes")


def has_one_logit(logits: Tensor) -> bool:
    """Whether an output is one binary logit per node instead of a score per class."""
    return logits.dim() == 1 or logits.size(1) == 1


def number_of_classes(logits: Tensor) -> int:
    """The number of classes between which an output decides."""
    return 2 if has_one_logit(logits) else logits.size(1)


def predictions(logits: Tensor) -> Tensor:
    """The predicted class of every node, of shape ``(N,)``."""
    check_output(logits)
    logits = logits if logits.dtype in FLOATS else logits.double()
    return (logits.reshape(-1) > 0).long() if has_one_logit(logits) else logits.argmax(dim=1)


def number_of_columns(logits: Tensor) -> int:
    """How many numbers an output has in each row."""
    return 1 if logits.dim() == 1 else logits.size(1)


def predicted(task: Task, logits: Tensor) -> Tensor:
    """What an output predicts: a class each, ``(rows,)``; labels of 0 and 1, ``(rows, labels)``; or the numbers."""
    kind = task.known().kind
    if kind == "classes":
        return predictions(logits)
    check_output(logits)
    if kind == "labels":
        return (logits > 0).long().reshape(logits.size(0), -1)
    if kind == "numbers":
        return logits
    raise GraphMendError(
        "the model's output is an embedding (task='embedding'), which predicts nothing by itself; result.logits has it"
    )


def changed_rows(task: Task, before: Tensor, after: Tensor) -> Tensor:
    """The rows, as a mask, that predict something else: another class, any other label, or a number that has moved."""
    old, new = predicted(task, before), predicted(task, after)
    if task.kind != "numbers":
        return (old != new).reshape(old.size(0), -1).any(1)
    moved = (new.double() - old.double()).abs().reshape(old.size(0), -1)
    return ~(moved <= moved.new_tensor(task.moves or moves_that_count(before))).all(1)


def moves_that_count(logits: Tensor) -> tuple[float, ...]:
    """By how much each number has to move to count as changed: a tenth of its standard deviation."""
    columns = logits.detach().double().reshape(logits.size(0), -1)
    finite = columns[columns.isfinite().all(1)]
    if len(finite) == 0:
        return (0.0,) * columns.size(1)
    return tuple(MOVE * float(value) for value in finite.std(0, correction=0))


def wrongness(task: Task, logits: Tensor, truth: Tensor) -> Tensor:
    """How wrong each row is: 1 for another class, the number of wrong labels, or the mean distance of the numbers.

    Args:
        task: What the rows are.
        logits: The output.
        truth: One class, or one row of labels or numbers, for each row; NaN is not known and does not count.
    """
    found = predicted(task, logits)
    if task.kind == "classes":
        return (found != truth).double()
    away = (found.double().reshape(len(truth), -1) - truth.double().reshape(len(truth), -1)).abs()
    return away.nansum(1) if task.kind == "labels" else away.nanmean(1)


def class_scores(logits: Tensor) -> Tensor:
    """One column per class; a single binary logit ``z`` becomes ``(0, z)``."""
    if not has_one_logit(logits):
        return logits
    flat = logits.reshape(-1)
    return torch.stack([torch.zeros_like(flat), flat], dim=1)


def probabilities(logits: Tensor, temperature: float = 1.0, dtype: torch.dtype | None = None) -> Tensor:
    """Class probabilities, ``(N, classes)``, of logits or log-probabilities.

    Args:
        logits: The logits.
        temperature: What they are divided by.
        dtype: The type of the result, if it is another one.
    """
    if logits.numel() > ROWS and logits.dim() == 2 and not logits.requires_grad:
        out = large_empty((logits.size(0), max(2, logits.size(1))), logits, dtype)
        for rows in row_ranges(*logits.shape):
            out[rows] = probabilities(logits[rows], temperature)
        return out
    if dtype is not None:
        return probabilities(logits, temperature).to(dtype)
    if has_one_logit(logits):
        one = logits.reshape(-1, 1) / temperature
        return torch.cat([torch.sigmoid(-one), torch.sigmoid(one)], dim=1)
    return F.softmax(logits / temperature, dim=1)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of some nodes with their labels."""
    if has_one_logit(logits):
        return F.binary_cross_entropy_with_logits(logits.reshape(-1), labels.to(logits.dtype))
    return F.cross_entropy(logits, labels.long())


def check_output(logits: Any) -> None:
    """Raise unless something is the output of a classifier."""
    require(isinstance(logits, Tensor), f"logits must be a tensor of one row per node (got {type(logits).__name__})")
    check_dense(logits, "logits")
    require(not logits.is_complex(), f"logits must be real numbers (got {logits.dtype})")
    good = logits.dim() == 1 or (logits.dim() == 2 and logits.size(1) >= 1)
    require(good, f"logits must have shape (N, classes) or (N,) (got {tuple(logits.shape)}); pass one row per node")


def read_labels(y: Any, nodes: int, mask: Tensor | None = None, name: str = "y") -> Tensor:
    """The labels of the nodes in ``mask``, or of all, as ``int64`` of shape ``(M,)``.

    Labels may come in one column, ``(N, 1)``, and as floating-point numbers, as long as they are whole. Values that
    stand for a missing label, often -1 or NaN, are not read outside the mask.

    Args:
        y: The labels of all nodes.
        nodes: The number of nodes.
        mask: The nodes that count, boolean; all when ``None``.
        name: What the labels are called, for the message.

    Example:
        >>> read_labels(torch.tensor([[2.0], [torch.nan]]), 2, torch.tensor([True, False]))
        tensor([2])
    """
    require(isinstance(y, Tensor), f"{name} must be a tensor of one label per node (got {type(y).__name__})")
    check_dense(y, name)
    shape = tuple(y.shape)
    require(
        shape in ((nodes,), (nodes, 1)),
        f"{name} must have one label per node, {nodes} in all (got shape {shape}); "
        "turn one-hot rows into classes with argmax(1), and choose one column of several labels",
    )
    require(not y.is_complex(), f"{name} must hold whole numbers (got {y.dtype})")
    labels: Tensor = y.detach().reshape(-1)
    if mask is not None:
        labels = labels[mask.to(labels.device)]
    if labels.is_floating_point():
        whole = labels.isfinite() & (labels == labels.round())
        if not bool(whole.all()):
            value = float(labels[~whole][0])
            require(False, f"{name} holds {value}, which is no class; give whole numbers and mask unlabelled nodes out")
    return labels.long()


def check_classes(labels: Tensor, classes: int, of: str = "labels", remedy: str = "mask unlabelled nodes out") -> None:
    """Raise unless all labels lie in ``0..classes - 1``; no array as large as the largest label is made.

    Args:
        labels: Whole numbers, at least one.
        classes: The number of classes.
        of: What the labels are, for the message.
        remedy: What to do about it.
    """
    low, high = (int(value) for value in torch.aminmax(labels))
    require(low >= 0 and high < classes, f"{of} must lie in 0..{classes - 1} (got {low}..{high}); {remedy}")


def count_classes(labels: Tensor, nodes: int, name: str = "y") -> int:
    """The number of classes, if nobody has said it: the highest label + 1.

    A graph with fewer nodes than classes cannot show them all. A label that high is an identifier or a mistake, and
    anything with one row or output per class would fill the memory.

    Args:
        labels: Whole numbers, at least one.
        nodes: The number of nodes of the graph.
        name: What the labels are called, for the message.
    """
    check_classes(
        labels,
        max(nodes, 2),
        f"classes in {name}",
        "number the classes from 0 without gaps, as torch.unique(y, return_inverse=True)[1] does, and mask unlabelled "
        "nodes out",
    )
    return int(labels.max()) + 1


def read_mask(
    mask: Any, size: int | None = None, name: str = "mask", *, of: str = "node", may_be_empty: bool = False
) -> Tensor:
    """A mask as a boolean tensor of shape ``(size,)``, where the caller's tensor is.

    Booleans are taken as they are, integers if all of them are 0 or 1 and there is one per node; NumPy arrays are read
    in the same way. Everything else is an error, above all indices of nodes, which some operations would take for a
    mask and others for indices.

    Args:
        mask: What the caller has.
        size: The number of entries, one per node (or column, or edge); ``None`` where it is not known yet.
        name: What the mask is called, for the message.
        of: What the entries stand for: ``"node"``, ``"column"`` or ``"edge"``.
        may_be_empty: Whether a mask that marks nothing makes sense.

    Example:
        >>> read_mask(torch.tensor([0, 1, 1]), 3)
        tensor([False,  True,  True])
    """
    if isinstance(mask, np.ndarray) and mask.dtype.kind in "biu":
        mask = torch.tensor(mask)
    require(isinstance(mask, Tensor), f"{name} must be a boolean tensor (got {type(mask).__name__})")
    check_dense(mask, name)
    kind = f"{mask.dtype} of shape {tuple(mask.shape)}"
    remedy = f"torch_geometric.utils.index_to_mask(indices, size={size or f'number of {of}s'}) makes a mask of indices"
    if mask.dim() == 2 and mask.size(1) > 1 and size in (None, mask.size(0)):
        remedy = f"choose one of its {mask.size(1)} columns, such as {name}[:, 0]"
    fits = mask.dim() == 1 and size in (None, mask.numel())
    total = "" if size is None else f", {size} in all"
    require(fits, f"{name} must have one entry per {of}{total} (got {kind}); {remedy}")
    boolean: Tensor = mask
    if mask.dtype != torch.bool:
        whole = not (mask.is_floating_point() or mask.is_complex())
        require(whole, f"{name} must be boolean, or 0 and 1 as integers (got {kind}); convert it with {name}.bool()")
        boolean = mask != 0
        valid = ~boolean | (mask == 1)
        if not bool(valid.all()):
            place = int((~valid).nonzero()[0])
            require(False, f"{name} must hold 0 and 1 only (got {name}[{place}] = {int(mask[place])}); {remedy}")
    require(may_be_empty or bool(boolean.any()), f"{name} marks no {of}; mark at least one")
    return boolean


def check_dense(value: Tensor, name: str) -> None:
    """Raise unless a tensor holds every one of its values: one that is sparse, nested or quantised does not.

    Args:
        value: Any tensor.
        name: What it is called, for the message.
    """
    require(not value.is_nested, f"{name} is a nested tensor; pass a dense one, {name}.to_padded_tensor(0)")
    require(not value.is_meta, f"{name} is on the meta device, where tensors have no values; load its values first")
    require(
        value.layout == torch.strided, f"{name} is stored as {value.layout}; pass a dense tensor, {name}.to_dense()"
    )
    require(not value.is_quantized, f"{name} is quantised ({value.dtype}); convert it with {name}.dequantize()")
    require(not value.is_neg(), f"{name} is a negated view of complex numbers; convert it with {name}.resolve_neg()")


def check_floats(value: Tensor, name: str) -> None:
    """Raise unless a tensor is dense and of a floating-point type that sums and products can be computed in."""
    check_dense(value, name)
    require(not value.is_complex(), f"{name} holds complex numbers ({value.dtype}); take {name}.real or {name}.abs()")
    require(
        value.is_floating_point(), f"{name} must be floating-point (got {value.dtype}); convert it with {name}.float()"
    )
    usable = value.dtype in FLOATS
    require(usable, f"{name} is {value.dtype}, a type that is only for storage; convert it with {name}.float()")
