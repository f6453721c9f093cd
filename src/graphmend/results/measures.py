"""The usual measures of a task, computed by scikit-learn: how good an output is for known labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmend.errors import GraphMendError, require
from graphmend.outputs import Task, check_dense, predicted

__all__ = ["LESS_IS_BETTER", "PERCENT", "measures", "measures_of_pairs", "measures_per_label", "read_truth"]

Array = np.ndarray[Any, np.dtype[Any]]
HITS = (10, 50)
PERCENT = ("accuracy", "micro_f1", "roc_auc", "average_precision", *(f"hits@{k}" for k in HITS))
LESS_IS_BETTER = ("mae",)


def read_truth(task: Task, y: Any, rows: int, columns: int, of: str = "") -> Tensor:
    """Labels or numbers as ``(rows, columns)`` in float64, NaN where they are not known.

    Args:
        task: What they are of.
        y: What the caller gave.
        rows: How many rows there are.
        columns: How many there are in each.
        of: What the rows stand for, in the plural, if neither nodes nor graphs.
    """
    of = of or task.rows
    try:
        given = torch.as_tensor(y)
    except (TypeError, ValueError, RuntimeError) as error:
        raise GraphMendError(f"y must be a tensor of one row for each of the {rows} {of}") from error
    check_dense(given, "y")
    require(not given.is_complex(), f"y holds complex numbers ({given.dtype}); give real ones")
    values = given.detach().double().cpu()
    shape, wanted = tuple(values.shape), (rows, columns)
    fits = shape == wanted or (columns == 1 and shape == (rows,))
    width = "" if columns == 1 else f" and {columns} columns"
    require(fits, f"y must have one row for each of the {rows} {of}{width} (got shape {shape})")
    values = values.reshape(wanted)
    known = values[~values.isnan()]
    if task.kind == "labels":
        wrong = known[(known != 0) & (known != 1)]
        require(wrong.numel() == 0, f"y holds {wrong[:1].tolist()}, but labels are 0 or 1; put NaN where there is none")
    require(bool(known.isfinite().all()), "y holds infinite numbers; put NaN where the number is not known")
    return values


def measures(task: Task, logits: Tensor, truth: Tensor) -> dict[str, float]:
    """The measures of some rows, by name; those without a value for these rows are left out.

    Args:
        task: What the rows are.
        logits: The output.
        truth: One class for each row, or what :func:`read_truth` returns.
    """
    from sklearn import metrics  # takes a while, and only labels need it

    if task.kind == "classes":
        return {"accuracy": float(metrics.accuracy_score(truth.cpu().numpy(), predicted(task, logits).cpu().numpy()))}
    found = logits.detach().double().cpu().reshape(truth.shape).numpy()
    true = truth.cpu().numpy()
    known = ~np.isnan(true)
    if not known.any() or not np.isfinite(found).all():
        return {}
    if task.kind == "numbers":
        values = {"mae": float(metrics.mean_absolute_error(true[known], found[known]))}
        columns = zip(true.T, found.T, known.T, strict=True)
        scores = [float(metrics.r2_score(t[k], f[k])) for t, f, k in columns if np.unique(t[k]).size > 1]
        return values | ({"r2": float(np.mean(scores))} if scores else {})
    per_label = {name: [v for v in rows if v == v] for name, rows in measures_per_label(logits, truth).items()}
    out = {name: float(np.mean(rows)) for name, rows in per_label.items() if rows}
    return out | {"micro_f1": float(metrics.f1_score(true[known], found[known] > 0, zero_division=0.0))}


def measures_per_label(logits: Tensor, truth: Tensor) -> dict[str, list[float]]:
    """The ROC-AUC and the average precision of each label, NaN for one that all rows or none of them have."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    found, true = logits.detach().double().cpu().reshape(truth.shape).numpy(), truth.cpu().numpy()
    out: dict[str, list[float]] = {"roc_auc": [], "average_precision": []}
    for scores, labels in zip(found.T, true.T, strict=True):
        known = ~np.isnan(labels)
        is_defined = np.unique(labels[known]).size == 2
        for name, function in (("roc_auc", roc_auc_score), ("average_precision", average_precision_score)):
            out[name].append(float(function(labels[known], scores[known])) if is_defined else float("nan"))
    return out


def measures_of_pairs(scores: Tensor, labels: Tensor) -> dict[str, float]:
    """Those of scores of pairs of nodes: ROC-AUC, average precision and hits@k.

    ``hits@k`` is the share of the true pairs that score higher than the k-th highest of the others.

    Args:
        scores: One for each pair.
        labels: Whether it is an edge, 0 or 1.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    found, true = scores.detach().double().cpu().reshape(-1).numpy(), labels.detach().cpu().reshape(-1).numpy() > 0
    if not np.isfinite(found).all() or np.unique(true).size < 2:
        return {}
    out = {
        "roc_auc": float(roc_auc_score(true, found)),
        "average_precision": float(average_precision_score(true, found)),
    }
    others = np.sort(found[~true])[::-1]
    return out | {f"hits@{k}": float((found[true] > others[k - 1]).mean()) for k in HITS if k <= others.size}
