"""The rule of the gate without a source card: rows that are set apart are repaired, everything else is asked about.

Only broken rows show in a model and a graph alone. A batch normalisation behind the first layer has kept statistics
from training, but nothing tells another mix of the same nodes from a fault: aligning with them is only proposed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphmend.adapters.align import running_moments
from graphmend.adapters.alignment import alignment
from graphmend.adapters.base import Change, Task
from graphmend.adapters.broken_rows import outlying_rows
from graphmend.adapters.gate.checks import Log, at_least, first_doubt
from graphmend.adapters.gate.finding import Step
from graphmend.adapters.gate.signs import Repair
from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.low_rank import changed_features
from graphmend.engine.report import Stopped

__all__ = ["OUTLYING", "aligned_halfway", "without_card"]

STRENGTH = 0.5  # how far the proposal goes: half way gains most of what there is to gain and risks far less
OUTLYING = (
    at_least("number", 1, "feature rows set apart from all others"),
    at_least("changed", 1, "broken feature rows that may change", "the limits let no broken feature row change"),
)


@torch.no_grad()
def without_card(task: Task, log: Log) -> tuple[Sequence[Step], Tensor]:
    """Look at a graph with nothing but the model: the steps looked into, and the output on the graph as it is."""
    data, frozen = task.data, task.require_frozen()
    logits = frozen(changed_features(LinearMaps(data.x)), data.edge_index)
    outlying = Repair(task, task.judged(outlying_rows(data.x)))
    doubt = first_doubt(OUTLYING, outlying, log)
    if doubt == "":
        return [_alignment(task)], logits
    if doubt is not None:
        return [Step("impute", doubt)], logits
    change = Change(outlying.x, logits=frozen(outlying.x, data.edge_index))
    return [Step("impute", outlying.done, change, True)], logits


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
