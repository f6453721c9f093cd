"""The embedding of some nodes before and after, in one plane: what a picture of it shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from graphmend.outputs import changed_rows, predicted

if TYPE_CHECKING:
    from graphmend.results.adaptation import Adaptation

__all__ = ["Groups", "Plane", "groups_of", "plane", "sampled"]

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Plane:
    """Points before and after, in the two main directions (PCA) of both together.

    Args:
        nodes: The nodes, ascending.
        before: Their places before, ``(nodes, 2)``.
        after: Their places after.
        share: Which share of the variance of these nodes lies in the plane.
    """

    nodes: Array
    before: Array
    after: Array
    share: float


class Groups(NamedTuple):
    """The predicted class of each node before and after, 0 where there are no classes; and whether it changed."""

    before: Array
    after: Array
    changed: Array


def groups_of(result: Adaptation) -> Groups:
    """By what nodes are coloured; where graphs are predicted, a node has the class of its graph."""
    task, nodes = result.task, result.data.x.size(0)
    if task.kind == "classes":
        old, new = predicted(task, result.before), result.predictions
    else:
        old = new = torch.zeros(result.logits.size(0), dtype=torch.long)
    changed = (
        changed_rows(task, result.before, result.logits) if task.predicts else torch.zeros(len(new), dtype=torch.bool)
    )
    columns = [values.cpu() for values in (old, new, changed)]
    if len(columns[0]) != nodes:
        graph = result.graph_of_nodes().cpu()
        columns = [values[graph] for values in columns]
    return Groups(*(values.numpy() for values in columns))


def sampled(nodes: int, most: int) -> Array:
    """At most so many of the nodes, ascending; every node has the same chance."""
    chosen = torch.randperm(nodes, generator=torch.Generator().manual_seed(0))[:most]
    return chosen.sort().values.numpy()


def plane(result: Adaptation, nodes: Array) -> Plane:
    """The embeddings of some nodes before and after in one plane.

    Args:
        result: A result that can run its model again.
        nodes: The nodes.
    """
    rerun, patch = result.require_rerun(), result.patch
    weights_count = patch.weight_bits is not None or patch.new_weights is not None
    first = rerun.embedding_of(result.graph_before(), rerun.model)
    is_same = patch.is_empty and result.model is rerun.model
    second = first if is_same else rerun.embedding_of(result.data, result.model, weights_count=weights_count)
    rows = torch.from_numpy(nodes).to(first.device)
    z = np.concatenate([graph.flatten(1)[rows].double().cpu().numpy() for graph in (first, second)])
    z = z - z.mean(0)
    _, sizes, directions = np.linalg.svd(z.T @ z)  # the covariance is as small as Z is wide
    points = z @ directions[:2].T
    points = np.pad(points, ((0, 0), (0, 2 - points.shape[1])))
    share = float(sizes[:2].sum() / sizes.sum()) if sizes.sum() > 0 else 1.0
    return Plane(nodes, points[: len(nodes)], points[len(nodes) :], share)
