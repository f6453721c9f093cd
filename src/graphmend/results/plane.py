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

FAR = 4.0  # times the usual radius of the points after, beyond which points are drawn closer to the middle
USUAL = 0.9  # of the points after lie within the usual radius


@dataclass(frozen=True, eq=False)
class Plane:
    """Points before and after, in the two main directions (PCA) of those after: broken rows would else choose the plane.

    Args:
        nodes: The nodes, ascending.
        before: Their places before, ``(nodes, 2)``.
        after: Their places after.
        share: Which share of the variance of these nodes after lies in the plane.
        is_bent: Whether some points lay so far out that all were drawn closer to the middle, the farther the more.
    """

    nodes: Array
    before: Array
    after: Array
    share: float
    is_bent: bool = False


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
    old, new = (graph.flatten(1)[rows].double().cpu().numpy() for graph in (first, second))
    usual = new if np.ptp(new, axis=0).any() else old  # nodes that are all alike have no directions
    usual = usual - usual.mean(0)
    _, sizes, directions = np.linalg.svd(usual.T @ usual)  # the covariance is as small as Z is wide
    points = (np.concatenate([old, new]) - new.mean(0)) @ directions[:2].T
    points = np.pad(points, ((0, 0), (0, 2 - points.shape[1])))
    share = float(sizes[:2].sum() / sizes.sum()) if sizes.sum() > 0 else 1.0
    points, is_bent = _bent(points, len(nodes))
    return Plane(nodes, points[: len(nodes)], points[len(nodes) :], share, is_bent)


def _bent(points: Array, nodes: int) -> tuple[Array, bool]:
    r"""Points with the radius :math:`s\,\mathrm{asinh}(r / s)` instead of r, if some lie so far out that others melt together.

    Args:
        points: Points before, then those after, which lie around 0.
        nodes: How many of each there are.
    """
    radius = np.linalg.norm(points, axis=1)
    usual = float(np.quantile(radius[nodes:], USUAL)) if nodes else 0.0
    if not usual > 0 or not radius.max() > FAR * usual:
        return points, False
    shrunk = usual * np.arcsinh(radius / usual) / np.maximum(radius, 1e-300)
    return points * shrunk[:, None], True
