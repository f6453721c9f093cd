"""The embedding of some nodes before and after, in one plane, for pictures of it."""

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

FAR = 3.0  # usual radii of the points after: where some point lies farther out, a circle is drawn
USUAL = 0.98  # of the points after lie within the usual radius


@dataclass(frozen=True, eq=False)
class Plane:
    """Points before and after, in the two main directions (PCA) of those after, so that broken rows do not choose them.

    Args:
        nodes: The nodes, ascending.
        before: Their places before, ``(nodes, 2)``.
        after: Their places after.
        share: Which share of the variance of these nodes after lies in the plane.
        circle: The radius of the circle around 0 within which distances are true; outside it they are logarithmic.
            ``None`` where all are true.
    """

    nodes: Array
    before: Array
    after: Array
    share: float
    circle: float | None = None


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
    """A limited number of nodes, ascending, drawn with equal chances."""
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
    usual = new if np.ptp(new, axis=0).any() else old  # identical nodes have no directions
    usual = usual - usual.mean(0)
    _, sizes, directions = np.linalg.svd(usual.T @ usual)  # the covariance is as small as Z is wide
    points = (np.concatenate([old, new]) - new.mean(0)) @ directions[:2].T
    points = np.pad(points, ((0, 0), (0, 2 - points.shape[1])))
    share = float(sizes[:2].sum() / sizes.sum()) if sizes.sum() > 0 else 1.0
    circle = _shrink(points, len(nodes))
    return Plane(nodes, points[: len(nodes)], points[len(nodes) :], share, circle)


def _shrink(points: Array, nodes: int) -> float | None:
    r"""Bring far points nearer, so that the others do not shrink to one dot; returns the circle around those others.

    A radius :math:`r > s` becomes :math:`s (1 + \ln(r / s) / \ln(r_{max} / s))`, so nothing is farther out than 2s.

    Args:
        points: Points before, then those after, which lie around 0; they are changed.
        nodes: How many of each there are.
    """
    radius = np.linalg.norm(points, axis=1)
    usual, farthest = (float(np.quantile(radius[nodes:], USUAL)), float(radius.max())) if nodes else (0.0, 0.0)
    if not usual > 0 or not farthest > FAR * usual:
        return None
    outside = radius > usual
    far = radius[outside] / usual
    points[outside] *= ((1 + np.log(far) / np.log(farthest / usual)) / far)[:, None]
    return usual
