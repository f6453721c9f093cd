"""Accuracy, ROC-AUC and macro-F1 of predictions, computed by scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score
from torch import Tensor

from graphmend.errors import GraphMendError, choose, require
from graphmend.outputs import (
    check_classes,
    check_output,
    has_one_logit,
    number_of_classes,
    predictions,
    read_labels,
    read_mask,
)

__all__ = ["METRICS", "score", "scores"]

Array = np.ndarray[Any, np.dtype[Any]]


class _Undefined(GraphMendError):
    """The metric has no value for these nodes, although the input is valid."""


def score(metric: str, logits: Tensor, y: Tensor, mask: Tensor | None = None) -> float:
    """One metric of ``logits`` against ``y``.

    Args:
        metric: ``"accuracy"``, ``"roc_auc"`` or ``"macro_f1"``. The AUC of more than two classes is the unweighted
            mean of one-vs-rest over the classes that occur in ``y``.
        logits: As in :func:`graphmend.outputs.predictions`.
        y: Class labels of shape ``(N,)`` or ``(N, 1)``, whole numbers.
        mask: The nodes that are scored, of shape ``(N,)``, boolean or 0 and 1; all of them when ``None``.

    Raises:
        GraphMendError: When the metric is undefined: no node is scored, or the AUC of a single class.
    """
    function = choose("metric", metric, METRICS)
    return function(*_checked(logits, y, mask))


def scores(logits: Tensor, y: Tensor, mask: Tensor | None = None) -> dict[str, float]:
    """All metrics that are defined for these nodes, by name; arguments as in :func:`score`."""
    values: dict[str, float] = {}
    for name in METRICS:
        with suppress(_Undefined):
            values[name] = score(name, logits, y, mask)
    return values


def _accuracy(logits: Tensor, y: Array) -> float:
    """The share of nodes whose class is predicted."""
    return float(accuracy_score(y, predictions(logits).numpy()))


def _macro_f1(logits: Tensor, y: Array) -> float:
    """The F1 score of each class, averaged over the classes."""
    return float(f1_score(y, predictions(logits).numpy(), average="macro", zero_division=0.0))


def _roc_auc(logits: Tensor, y: Array) -> float:
    """The area under the ROC curve; of more than two classes, the mean of one against the rest."""
    classes = np.unique(y)
    if classes.size < 2:
        raise _Undefined(
            f"roc_auc is undefined when only class {classes[0]} occurs among the {y.size} scored nodes; "
            "score nodes of at least two classes or use 'accuracy'"
        )
    if has_one_logit(logits):
        return float(roc_auc_score(y, logits.reshape(-1).sigmoid().numpy()))
    probability = logits.softmax(dim=-1).numpy()
    if logits.size(1) == 2:
        return float(roc_auc_score(y, probability[:, 1]))
    return float(np.mean([roc_auc_score(y == label, probability[:, label]) for label in classes]))


METRICS: dict[str, Callable[[Tensor, Array], float]] = {
    "accuracy": _accuracy,
    "macro_f1": _macro_f1,
    "roc_auc": _roc_auc,
}


def _checked(logits: Tensor, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Array]:
    """The scored rows as float64 logits and integer labels on the CPU, after a check of shapes and ranges."""
    check_output(logits)
    nodes = logits.size(0)
    if mask is not None:
        mask = read_mask(mask, nodes, "mask", may_be_empty=True)
        logits = logits[mask.to(logits.device)]
    labels = read_labels(y, nodes, mask).cpu()
    if labels.numel() == 0:
        raise _Undefined("no node is scored because the mask is empty; pass a mask that selects at least one node")
    logits = logits.detach().double().cpu()
    require(
        bool(torch.isfinite(logits).all()),
        f"{int((~torch.isfinite(logits)).sum())} of the scored logits are NaN or infinite; "
        "check the features and the model's weights",
    )
    remedy = "mask unlabelled nodes out or use a model with more outputs"
    check_classes(labels, number_of_classes(logits), "labels of scored nodes", remedy)
    return logits, labels.numpy()
