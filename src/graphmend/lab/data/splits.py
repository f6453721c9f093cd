"""The graphs, the metric and the task of a data set, as a trainer and a benchmark need them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import choose, listed, require
from graphmend.graph.checks import check_structure
from graphmend.graph.convert import with_edge_index
from graphmend.outputs import read_labels, read_mask
from graphmend.results.scores import METRICS

__all__ = ["TASKS", "Splits", "masked", "node_labels", "node_mask"]

MASKS = ("train_mask", "val_mask", "test_mask")
TASKS = {"multiclass": "one of several classes", "binary": "one of two classes"}


@dataclass(frozen=True)
class Splits:
    """Training, validation and test graphs.

    A graph may carry a ``mask``: the nodes that are trained on or scored; without it all nodes are. In a
    transductive set the three lists hold the same graph under three masks; :meth:`transductive` makes one.

    Args:
        train: Graphs to train on.
        val: Graphs to select on.
        test: Graphs to report on.
        metric: A name from :data:`graphmend.lab.metrics.METRICS`.
        task: ``"multiclass"`` or ``"binary"``.
        meta: Anything else that should be recorded with results, such as ``name`` and ``classes``.

    Example:
        >>> from graphmend.lab.data import Splits, embedded
        >>> data = embedded("wine").test[0]
        >>> splits = Splits([data], [data], [data], metric="accuracy", task="multiclass", meta={"name": "wine"})
        >>> len(splits.test)
        1
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

        The three graphs share all tensors of ``data`` and differ in ``mask`` only. Masks are boolean, or 0 and 1 as
        integers; the edges may also be in a sparse ``adj_t``.

        Example:
            >>> masks = {f"{part}_mask": torch.arange(3) == i for i, part in enumerate(("train", "val", "test"))}
            >>> data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]]), **masks)
            >>> Splits.transductive(data).val[0].mask
            tensor([False,  True, False])
        """
        data = with_edge_index(data)
        check_structure(data)
        missing = [name for name in MASKS if data.get(name) is None]
        require(not missing, f"the graph has no {listed(missing)}; set all of {', '.join(MASKS)}")
        masks = [read_mask(data[name], data.num_nodes, name) for name in MASKS]
        train, val, test = ([masked(data, mask)] for mask in masks)
        return cls(train, val, test, metric, task, {} if meta is None else meta)

    @property
    def parts(self) -> dict[str, list[Data]]:
        """The three lists by name."""
        return {"train": self.train, "val": self.val, "test": self.test}

    def check(self) -> None:
        """Raise unless all graphs have features and edges that fit each other."""
        for data in (*self.train, *self.val, *self.test):
            check_structure(data)

    def to(self, device: str | torch.device) -> Splits:
        """The same splits with copies of all graphs on ``device`` (PyG's ``Data.to`` would move these)."""
        train, val, test = ([copy.copy(data).to(device) for data in graphs] for graphs in self.parts.values())
        return replace(self, train=train, val=val, test=test)


def masked(data: Data, mask: Tensor) -> Data:
    """A shallow copy of ``data`` in which only the nodes in ``mask`` are trained on or scored.

    Example:
        >>> import torch
        >>> from graphmend.lab.data import embedded, masked, node_mask
        >>> data = embedded("wine").test[0]
        >>> int(node_mask(masked(data, torch.arange(178) < 10)).sum())
        10
    """
    part = copy.copy(data)
    part.mask = mask
    return part


def node_mask(data: Data) -> Tensor:
    """The nodes of ``data`` that count, as a boolean tensor: its ``mask``, which may be empty, or all nodes.

    Example:
        >>> from graphmend.lab.data import embedded, node_mask
        >>> int(node_mask(embedded("wine").train[0]).sum())
        36
    """
    if "mask" not in data:
        return torch.ones(data.num_nodes, dtype=torch.bool, device=data.x.device)
    return read_mask(data["mask"], data.num_nodes, "data.mask", may_be_empty=True)


def node_labels(data: Data) -> Tensor:
    """The labels of the nodes that count, see :func:`node_mask`, as ``int64`` of shape ``(M,)``.

    Example:
        >>> from graphmend.lab.data import embedded, node_labels
        >>> node_labels(embedded("wine").train[0]).shape
        torch.Size([36])
    """
    require(data.get("y") is not None, "the graph has no labels y; set data.y")
    return read_labels(data.y, data.num_nodes, node_mask(data), "data.y")
