"""What a trainer and a benchmark need to know about a data set: its graphs, its metric, its task."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import choose, require
from graphmend.metrics.scores import METRICS

__all__ = ["TASKS", "Splits", "node_mask"]

TASKS = {"multiclass": "one of several classes", "binary": "one of two classes"}


@dataclass(frozen=True)
class Splits:
    """Training, validation and test graphs.

    A graph may carry a boolean ``mask``: the nodes that are trained on or scored; without it all nodes are. In a
    transductive set the three lists hold the same graph under three masks.

    Args:
        train: Graphs to train on.
        val: Graphs to select on.
        test: Graphs to report on.
        metric: A name from :data:`graphmend.metrics.METRICS`.
        task: ``"multiclass"`` or ``"binary"``.
        meta: Whatever else is worth knowing, for the record.
    """

    train: list[Data]
    val: list[Data]
    test: list[Data]
    metric: str = "accuracy"
    task: str = "multiclass"
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        choose("metric", self.metric, METRICS)
        choose("task", self.task, TASKS)
        for name in ("train", "val", "test"):
            require(
                len(getattr(self, name)) > 0, f"{name} must hold at least one graph (got none); pass a list of Data"
            )


def node_mask(data: Data) -> Tensor:
    """The nodes of ``data`` that count, as a boolean tensor: its ``mask``, or all nodes."""
    if "mask" not in data:
        return torch.ones(data.num_nodes, dtype=torch.bool, device=data.x.device)
    mask: Tensor = data["mask"]
    require(
        mask.dtype == torch.bool and tuple(mask.shape) == (data.num_nodes,),
        f"data.mask must be boolean of shape ({data.num_nodes},) (got {mask.dtype} of shape {tuple(mask.shape)}); "
        "convert node indices with torch_geometric.utils.index_to_mask",
    )
    return mask
