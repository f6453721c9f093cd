"""One reader for labels: one whole number per node that counts, in the range of the classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphmend.errors import require
from graphmend.graph.tensors import check_dense

__all__ = ["check_classes", "count_classes", "read_labels"]


def read_labels(y: Any, nodes: int, mask: Tensor | None = None, name: str = "y") -> Tensor:
    """The labels of the nodes in ``mask``, or of all, as ``int64`` of shape ``(M,)``.

    Labels may come in one column, ``(N, 1)``, and as floating-point numbers, as long as they are whole. What stands for
    a missing label, often -1 or NaN, is not looked at outside of the mask.

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
    """Raise unless all labels lie in ``0..classes - 1``; nothing as large as the largest label is made.

    Args:
        labels: Whole numbers, at least one.
        classes: The number of classes.
        of: What the labels are, for the message.
        remedy: What to do about it.
    """
    low, high = (int(value) for value in torch.aminmax(labels))
    require(low >= 0 and high < classes, f"{of} must lie in 0..{classes - 1} (got {low}..{high}); {remedy}")


def count_classes(labels: Tensor, nodes: int, name: str = "y") -> int:
    """The number of classes, the highest label + 1, where nobody has said how many there are.

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
