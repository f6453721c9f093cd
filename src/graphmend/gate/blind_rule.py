"""The rule of the gate without a source card: rows that are set apart are repaired, everything else is asked about.

Only broken rows show in a model and a graph alone. A batch normalisation behind the first layer has kept statistics
from training, but nothing tells another mix of the same nodes from a fault, so that aligning with them is only proposed.
"""

from __future__ import annotations

import torch

from graphmend.adapters.align import running_moments
from graphmend.adapters.alignment import alignment
from graphmend.adapters.base import Change, Task
from graphmend.adapters.impute import outlying_rows, refilled
from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.low_rank import changed_features
from graphmend.engine.report import Stopped
from graphmend.gate.case import Finding, Log, Step

__all__ = ["without_card"]

STRENGTH = 0.5  # how far the proposal goes: half way gains most of what there is to gain and risks far less


@torch.no_grad()
def without_card(task: Task, log: Log) -> Finding:
    """Look at a graph with nothing but the model."""
    data, frozen = task.data, task.require_frozen()
    base = LinearMaps(data.x)
    logits = frozen(changed_features(base), data.edge_index)
    rows = task.judged(outlying_rows(data.x))
    if log.at_least("rows set apart by a gap", float(rows.sum()), 1.0):
        return Finding.of([_repaired_rows(task, rows)], logits)
    try:
        target = running_moments(task)
    except Stopped:
        reason = "no feature row stands out, and without a source card nothing else can be told"
        return Finding.of([Step("align", reason)], logits)
    aligned = alignment(lambda x: frozen.first_layer(x, data.edge_index), base, frozen.first_map, target)
    x = task.within_limits(aligned.added_to(data.x, STRENGTH))
    change = Change(x, logits=frozen(x, data.edge_index))
    reason = "no feature row stands out, and without a source card nothing tells a shift from another mix of nodes"
    return Finding.of([Step("align", reason, change)], logits)


def _repaired_rows(task: Task, rows: torch.Tensor) -> Step:
    x = task.within_limits(refilled(task.data.x, task.data.edge_index, rows))
    number = f"{int(rows.sum())} of {rows.numel()} feature rows are set apart from all others"
    if torch.equal(x, task.data.x):
        return Step("impute", f"{number}, but the limits let none of them change")
    change = Change(x, logits=task.require_frozen()(x, task.data.edge_index))
    return Step("impute", f"{number} and were repaired from their neighbours", change, True)
