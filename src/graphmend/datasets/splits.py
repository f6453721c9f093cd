"""The graphs, the metric and the task of a data set, as a trainer and a benchmark need them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import choose, listed, require
from graphmend.metrics.scores import METRICS

__all__ = ["TASKS", "Splits", "masked", "node_mask"]

MASKS = ("train_mask", "val_mask", "test_mask")
TASKS = {"multiclass": "one of several classes", "binary": "one of two classes"}


@dataclass(frozen=True)
class Splits:
    """Training, validation and test graphs.

    A graph may carry a boolean ``mask``: the nodes that are trained on or scored; without it all nodes are. In a
    transductive set the three lists hold the same graph under three masks; :meth:`transductive` makes one.

    Args:
        train: Graphs to train on.
        val: Graphs to select on.
        test: Graphs to report on.
        metric: A name from :data:`graphmend.metrics.METRICS`.
        task: ``"multiclass"`` or ``"binary"``.
        meta: Anything else that should be recorded with results, such as ``name`` and ``classes``.
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
        for name, graphs in self.parts.items():
            require(len(graphs) > 0, f"{name} must hold at least one graph (got none); pass a list of Data")

    @classmethod
    def transductive(
        cls, data: Data, *, metric: str = "accuracy", task: str = "multiclass", meta: dict[str, Any] | None = None
    ) -> Splits:
        """One graph for training, validation and testing, under its ``train_mask``, ``val_mask`` and ``test_mask``.

        The three graphs share all tensors of ``data`` and differ in ``mask`` only.

        Example:
            >>> masks = {f"{part}_mask": torch.arange(3) == i for i, part in enumerate(("train", "val", "test"))}
            >>> data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]]), **masks)
            >>> Splits.transductive(data).val[0].mask
            tensor([False,  True, False])
        """
        missing = [name for name in MASKS if data.get(name) is None]
        require(not missing, f"the graph has no {listed(missing)}; set all of {', '.join(MASKS)}")
        train, val, test = ([masked(data, data[name])] for name in MASKS)
        return cls(train, val, test, metric, task, {} if meta is None else meta)

    @property
    def parts(self) -> dict[str, list[Data]]:
        """The three lists by name."""
        return {"train": self.train, "val": self.val, "test": self.test}

    def to(self, device: str | torch.device) -> Splits:
        """The same splits with copies of all graphs on ``device`` (PyG's ``Data.to`` would move these)."""
        train, val, test = ([copy.copy(data).to(device) for data in graphs] for graphs in self.parts.values())
        return replace(self, train=train, val=val, test=test)


def masked(data: Data, mask: Tensor) -> Data:
    """A shallow copy of ``data`` in which only the nodes in ``mask`` are trained on or scored."""
    part = copy.copy(data)
    part.mask = mask
    return part


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
