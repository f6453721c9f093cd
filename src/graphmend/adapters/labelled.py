"""The few labels by which some adapters choose a setting."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import require
from graphmend.outputs import predictions, read_mask

__all__ = ["accuracy", "labelled_nodes"]


def labelled_nodes(data: Data, mask: Tensor | None, adapter: object) -> tuple[Tensor, Tensor]:
    """The nodes whose labels may be used, as a mask, and their labels.

    Args:
        data: The graph.
        mask: Those nodes; by default the union of ``data.train_mask`` and ``data.val_mask``.
        adapter: Who asks, for the message.
    """
    name, nodes = type(adapter).__name__, data.x.size(0)
    y: Any = data.get("y")
    require(y is not None, f"{name} chooses by the labels of some nodes, but the graph has no y; set data.y")
    if mask is None:
        given = [key for key in ("train_mask", "val_mask") if data.get(key) is not None]
        remedy = "set one of them, or pass mask=..."
        require(len(given) > 0, f"{name} chooses by labels, but the graph has no train_mask and no val_mask; {remedy}")
        chosen = torch.stack([read_mask(data[key], nodes, key) for key in given]).any(0)
    else:
        chosen = read_mask(mask, nodes).to(data.x.device)
    require(y.numel() == nodes, f"y must have one label per node (got {y.numel()} labels for {nodes} nodes)")
    return chosen, y.reshape(-1)[chosen]


def accuracy(logits: Tensor, nodes: Tensor, labels: Tensor) -> float:
    """The share of some nodes whose predicted class is their label."""
    return float((predictions(logits[nodes]) == labels).double().mean())
