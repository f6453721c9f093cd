"""The rule of the gate without a source card: rows that are set apart are repaired, everything else is asked about.

Only broken rows show in a model and a graph alone. A batch normalisation behind the first layer has kept statistics
from training, but nothing tells another mix of the same nodes from a fault: aligning with them is only proposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from graphmend.adapters.align import running_moments
from graphmend.adapters.alignment import alignment
from graphmend.adapters.base import Change, Task
from graphmend.adapters.impute import outlying_rows, refilled
from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.low_rank import changed_features
from graphmend.engine.report import Stopped
from graphmend.gate.checks import Log, at_least, first_doubt
from graphmend.gate.finding import Step

__all__ = ["OUTLYING", "aligned_halfway", "without_card"]

STRENGTH = 0.5  # how far the proposal goes: half way gains most of what there is to gain and risks far less
OUTLYING = (
    at_least("number", 1, "feature rows set apart from all others"),
    at_least("changed", 1, "of them, rows that the limits let change", "the limits let no broken row change"),
)


class OutlyingRows:
    """Feature rows that a wide gap sets apart from all others, and their repair from the neighbours."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.rows = task.judged(outlying_rows(task.data.x))

    @property
    def number(self) -> int:
        """How many there are."""
        return int(self.rows.sum())

    @cached_property
    def x(self) -> Tensor:
        """The features with these rows repaired."""
        return self.task.within_limits(refilled(self.task.data.x, self.task.data.edge_index, self.rows))

    @property
    def changed(self) -> int:
        """How many rows the repair changes."""
        return int((self.x != self.task.data.x).any(1).sum())


@torch.no_grad()
def without_card(task: Task, log: Log) -> tuple[Sequence[Step], Tensor]:
    """Look at a graph with nothing but the model: the steps looked into, and the output on the graph as it is."""
    data, frozen = task.data, task.require_frozen()
    logits = frozen(changed_features(LinearMaps(data.x)), data.edge_index)
    outlying = OutlyingRows(task)
    doubt = first_doubt(OUTLYING, outlying, log)
    if doubt == "":
        return [_alignment(task)], logits
    if doubt is not None:
        return [Step("impute", doubt)], logits
    number = f"{outlying.number} of {len(outlying.rows)} feature rows are set apart from all others"
    change = Change(outlying.x, logits=frozen(outlying.x, data.edge_index))
    return [Step("impute", f"{number} and were repaired from their neighbours", change, True)], logits


def _alignment(task: Task) -> Step:
    """Aligning with the statistics of a batch normalisation, as a proposal."""
    try:
        change = aligned_halfway(task)
    except Stopped:
        return Step("align", "no feature row stands out, and without a source card nothing else can be told")
    reason = "no feature row stands out, and without a source card nothing tells a shift from another mix of nodes"
    return Step("align", reason, change)


def aligned_halfway(task: Task) -> Change:
    """The features half way to where the first layer has the moments that a batch normalisation kept from training."""
    data, frozen = task.data, task.require_frozen()
    target, base = running_moments(task), LinearMaps(data.x)
    aligned = alignment(lambda x: frozen.first_layer(x, data.edge_index), base, frozen.first_map, target)
    x = task.within_limits(aligned.added_to(data.x, STRENGTH))
    return Change(x, logits=frozen(x, data.edge_index))
