"""Labels in a graph file: checked before any work, scored after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import GraphMendError, listed, require
from graphmend.files.files import first_line
from graphmend.outputs import read_labels, read_mask
from graphmend.results.scores import scores


def labelled_nodes(data: Data, name: str, path: Path) -> Tensor:
    """The nodes of a mask in the graph, all of which have a class as a label.

    Args:
        data: The graph.
        name: The name of the mask.
        path: The file of the graph, for the message.
    """
    mask, y = data.get(name), data.get("y")
    require(mask is not None, f"{path}: the graph has no mask {name!r}; it has {listed(data.keys())}")
    require(y is not None, f"{path}: {name} marks nodes with labels, but the graph has no y")
    nodes = data.x.size(0)
    marked = read_mask(mask, nodes, f"{path}: {name}")
    lowest = int(read_labels(y, nodes, marked, f"{path}: y").min())
    require(lowest >= 0, f"{path}: y holds the label {lowest} in {name}; take unlabelled nodes out of the mask")
    return marked


def scores_of(logits: Tensor, data: Data, mask: Tensor, name: str, path: Path) -> dict[str, float]:
    """The scores on the nodes of a mask that :func:`labelled_nodes` returned; arguments as there."""
    try:
        return scores(logits, data.y, mask)
    except GraphMendError as error:
        raise GraphMendError(f"{path}: {name}: {error}") from error


def scores_if_possible(logits: Tensor, data: Data, mask: Tensor) -> dict[str, Any]:
    """The scores, or why there are none: finished work is not lost for them."""
    try:
        return {"after": scores(logits, data.y, mask)}
    except Exception as error:
        return {"after": None, "reason": f"{type(error).__name__}: {first_line(error)}"}
