"""The rule of the gate without a source card: rows that are set apart are repaired, all else is only proposed.

A model and a graph by themselves reveal only broken rows. A batch normalisation behind the first layer has kept
statistics from training, but nothing distinguishes another mix of the same nodes from a fault, so aligning with them is
only proposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from graphmend.adapters.align import running_moments
from graphmend.adapters.alignment import alignment
from graphmend.adapters.broken_rows import outlying_rows
from graphmend.adapters.case import Case
from graphmend.adapters.gate.checks import Log, at_least, first_doubt
from graphmend.adapters.gate.signs import Repair
from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.low_rank import changed_features
from graphmend.engine.report import Stopped
from graphmend.results.proposal import Proposal

__all__ = ["OUTLYING", "aligned_halfway", "without_card"]

STRENGTH = 0.5  # how far the proposal goes: going half way gains most of what can be gained and risks far less
OUTLYING = (
    at_least("number", 1, "feature rows set apart from all others"),
    at_least("changed", 1, "broken feature rows that may change", "the limits let no broken feature row change"),
)


@torch.no_grad()
def without_card(case: Case, log: Log) -> tuple[Sequence[Proposal], Tensor]:
    """Examine a graph with nothing but the model: what each mender would do, and the output on the graph as it is."""
    data, frozen = case.data, case.require_frozen()
    logits = frozen(changed_features(LinearMaps(data.x)), data.edge_index)
    outlying = Repair(case, case.judged(outlying_rows(data.x)))
    log.begin()
    doubt = first_doubt(OUTLYING, outlying, log)
    if doubt == "":
        return [_alignment(case)], logits
    if doubt is not None:
        return [Proposal(menders=("impute",), sentence=doubt)], logits
    after = frozen(outlying.x, data.edge_index)
    repaired = Proposal(outlying.x, logits=after, menders=("impute",), sentence=outlying.done, is_made=True)
    return [repaired], logits


def _alignment(case: Case) -> Proposal:
    """Aligning with the statistics of a batch normalisation, as a proposal only."""
    x = case.data.x
    if torch.equal(x[0], x[-1]) and bool((x == x[0]).all()):  # two rows nearly always suffice
        return Proposal(menders=("align",), sentence="all feature rows are equal, so none stands out; check x")
    none = "no feature row stands out, and without a source card nothing"
    try:
        aligned = aligned_halfway(case)
    except Stopped:
        return Proposal(menders=("align",), sentence=f"{none} else can be told")
    return replace(aligned, menders=("align",), sentence=f"{none} tells a shift from another mix of nodes")


def aligned_halfway(case: Case) -> Proposal:
    """The features, moved half way to where the first layer has the moments that a batch norm kept from training."""
    data, frozen = case.data, case.require_frozen()
    target, base = running_moments(case), LinearMaps(data.x)
    aligned = alignment(lambda x: frozen.first_layer(x, data.edge_index), base, frozen.first_map, target)
    x = case.within_limits(aligned.added_to(data.x, STRENGTH))
    return Proposal(x, logits=frozen(x, data.edge_index))
