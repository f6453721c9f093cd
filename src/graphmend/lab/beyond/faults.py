"""Faults of a graph: broken rows, missing values, edges and columns, at shares from a few percent to nearly half.

A fault hits all nodes, including those whose labels are known, because a broken file does not spare them. Missing
values are NaN. As a model predicts nothing from them, the score *before* mending is that of the stopgap that every
user knows, a zero for every NaN (:func:`without_nan`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.lab.data import ColumnShift, EdgeSubsample, LabelShift, MissingColumns
from graphmend.lab.data.corruptions import FeatureNoise, RandomEdges

__all__ = ["FAULTS", "SHARES", "broken_rows", "missing_entries", "missing_rows", "without_nan"]

Change = Callable[[Data], Data]
SHARES = (0.05, 0.1, 0.2, 0.28, 0.4, 0.48)
ENTRY_SHARES = (0.05, 0.2, 0.48)
ROWS: dict[str, dict[str, object]] = {
    "gaussian": {"kind": "gaussian"},
    "faint": {"kind": "gaussian", "scale": 0.05},
    "scale": {"kind": "scale", "factor": 20.0},
    "zero": {"kind": "zero"},
}


def broken_rows(kind: str, share: float, seed: int) -> Change:
    """Other features, of one of the kinds of :data:`ROWS`, at a share of all nodes."""
    return FeatureNoise(None, share, seed=seed, **ROWS[kind])  # type: ignore[arg-type]


def missing_rows(share: float, seed: int) -> Change:
    """No features at all at a share of the nodes, the same nodes that :func:`broken_rows` takes."""

    def change(data: Data) -> Data:
        rows = FeatureNoise(None, share, seed=seed, kind="zero")(data).abnormal
        return _with_nan(data, rows.unsqueeze(1))

    return change


def missing_entries(share: float, seed: int) -> Change:
    """Each value is missing with a probability of ``share``."""

    def change(data: Data) -> Data:
        return _with_nan(data, torch.rand(data.x.shape, generator=torch.Generator().manual_seed(seed)) < share)

    return change


def _with_nan(data: Data, where: Tensor) -> Data:
    changed = copy.copy(data)
    changed.x = data.x.masked_fill(where, torch.nan)
    return changed


def without_nan(data: Data) -> Data:
    """The stopgap: a zero for every NaN; the graph itself if it has none."""
    if not bool(data.x.isnan().any()):
        return data
    changed = copy.copy(data)
    changed.x = data.x.nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)
    return changed


def _random_edges(rate: float, seed: int) -> Change:
    return RandomEdges(rate, seed=seed)


def _fewer_edges(keep: float, seed: int) -> Change:
    return EdgeSubsample(keep=keep, seed=seed)


FAULTS: dict[str, tuple[str, Callable[[int], Change]]] = {
    **{f"{kind} rows {share}": ("rows", partial(broken_rows, kind, share)) for kind in ROWS for share in SHARES},
    **{f"missing rows {share}": ("missing", partial(missing_rows, share)) for share in SHARES},
    **{f"missing entries {share}": ("missing", partial(missing_entries, share)) for share in ENTRY_SHARES},
    **{f"random edges {rate}": ("attack-random", partial(_random_edges, rate)) for rate in (0.1, 0.25, 0.5)},
    **{f"edges {keep}": ("simulated", partial(_fewer_edges, keep)) for keep in (0.8, 0.5)},
    "missing columns 0.3": ("simulated", lambda seed: MissingColumns(share=0.3, seed=seed)),
    "column shift, mild": ("simulated", lambda seed: ColumnShift(share=0.2, scale=1.5, offset=0.5, seed=seed)),
    "column shift, strong": ("simulated", lambda seed: ColumnShift(share=0.5, scale=2.0, offset=1.0, seed=seed)),
    "label shift, mild": ("simulated", lambda seed: LabelShift(concentration=10.0, seed=seed)),
    "label shift, strong": ("simulated", lambda seed: LabelShift(concentration=1.0, seed=seed)),
}
"""By the name of the target: its kind, and the fault of a seed."""
