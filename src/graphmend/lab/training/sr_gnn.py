"""SR-GNN: hidden representations of training and test nodes are kept alike."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.propagation import gcn_norm
from graphmend.errors import require
from graphmend.lab.data.splits import Splits, node_mask
from graphmend.lab.metrics.graphs import central_moment_discrepancy
from graphmend.lab.training.base import Objective, Trainer, mean_risk, outputs
from graphmend.lab.training.targets import check_targets, embedding_of, source_rows

__all__ = ["SRGNN", "instance_weights", "matched_weights"]


@dataclass(frozen=True, kw_only=True)
class SRGNN(Trainer):
    r"""Shift-robust training (Zhu et al., NeurIPS 2021, https://arxiv.org/abs/2108.01099).

    The loss is the mean risk of the training graphs plus ``weight`` times the central moment discrepancy

    .. math:: \mathrm{CMD}(U, V) = \lVert \bar u - \bar v \rVert
              + \sum_{k=2}^{5} \big\lVert \overline{(u - \bar u)^k} - \overline{(v - \bar v)^k} \big\rVert

    between the embeddings of the training nodes and those of as many nodes of the test graphs, drawn anew in every
    epoch from all their nodes. Labels of the test graphs are not used, but the graphs themselves are needed for
    training: to train one model per test graph, call it with splits that have one each.

    With ``kmm``, the training nodes have weights in the risk, by which they resemble the nodes of the test graphs
    (:func:`instance_weights`). Weights need representations that do not change while the model learns. As for the
    linear models of the paper, these are features that were propagated twice by the symmetrically normalised adjacency,
    :math:`\hat A^2 X`. The kernel has an entry for each pair of labelled nodes, so there may be 20,000 of them at most.

    Args:
        weight: Weight of the discrepancy.
        kmm: Weigh the training nodes by kernel mean matching.
        lr: As in :class:`~graphmend.lab.training.Trainer`, like ``weight_decay``, ``epochs``, ``optimizer`` and
            ``seed``.

    Example:
        >>> from graphmend.lab.training import SRGNN
        >>> SRGNN(epochs=100).weight
        1.0
    """

    weight: float = 1.0
    kmm: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        good = self.weight >= 0 and math.isfinite(self.weight)
        require(good, f"weight must be finite and not negative (got {self.weight})")

    def objective(self, model: nn.Module, splits: Splits) -> Objective:
        """The risk and the discrepancy."""
        embed = embedding_of(model, "SRGNN")
        check_targets(splits)
        weights = _instance_weights(splits) if self.kmm else None

        def loss(epoch: int) -> Tensor:
            source = source_rows(outputs(embed, splits.train), splits)
            target = torch.cat(outputs(embed, splits.test))
            sample = torch.randperm(target.size(0), device=target.device)[: source.size(0)]
            total = mean_risk(outputs(model, splits.train), splits.train, splits.task, weights)
            return total + self.weight * central_moment_discrepancy(source, target[sample])

        return Objective(loss)


@torch.no_grad()
def _instance_weights(splits: Splits) -> list[Tensor]:
    """For each training graph, the weights of its labelled nodes; all of them together have mean 1."""
    labelled = source_rows(outputs(_propagated, splits.train), splits)
    weights = instance_weights(labelled, torch.cat(outputs(_propagated, splits.test)))
    return list(torch.split(weights, [int(node_mask(data).sum()) for data in splits.train]))


def _propagated(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    """Two hops over the symmetrically normalised adjacency, without weights to learn."""
    propagate = gcn_norm(Adjacency.of(edge_index, x.size(0)), edge_weight, x.dtype)
    return propagate(propagate(x))


MOST_ROWS = 20_000
"""Their kernel matrix takes 3.2 GB."""

MOST_STEPS, SMALLEST_STEP = 2_000, 1e-7
ROWS_FOR_MEDIAN = 1_000
BLOCK = 1_024  # rows of the other sample at a time


@torch.no_grad()
def instance_weights(rows: Tensor, others: Tensor, *, lower: float = 0.2, upper: float = 10.0) -> Tensor:
    r"""Kernel mean matching: a weight for each of the ``rows``, with mean 1, so that together they resemble the others.

    With the kernel matrix :math:`K` of the :math:`n` rows :math:`x_i` that get weights, and :math:`m` other rows
    :math:`t_j`, the weights are

    .. math:: \min_\beta\; \tfrac12 \beta^\top K \beta - \kappa^\top \beta, \qquad
              \kappa_i = \frac nm \sum_j k(x_i, t_j), \qquad
              \texttt{lower} \le \beta_i \le \texttt{upper}, \quad \tfrac1n \sum_i \beta_i = 1

    (Huang et al., NeurIPS 2006; as Zhu et al., NeurIPS 2021, https://arxiv.org/abs/2108.01099, use it). The kernel is
    :math:`k(x, t) = \exp(-\lVert x - t \rVert^2 / 2\sigma^2)`, where :math:`\sigma` is the median distance of the rows.
    The problem is solved by accelerated projected gradient steps in double precision. Nothing is random.

    Args:
        rows: One row per labelled node.
        others: One row per node of the test graphs.
        lower: Lower bound of the weights, by default that of the released SR-GNN code.
        upper: Upper bound of the weights.

    Example:
        >>> rows = torch.tensor([[0.0], [1.0], [2.0]])
        >>> instance_weights(rows, torch.tensor([[2.0], [2.0]])).argmax().item()
        2
    """
    count = rows.size(0)
    require(count > 0, "a training graph has no node to train on; pass a mask that selects at least one node")
    require(
        count <= MOST_ROWS,
        f"kernel mean matching compares all pairs of the {count:,} labelled nodes, and at most {MOST_ROWS:,} fit into "
        "memory; train on fewer labels or leave kmm at False",
    )
    x, t = rows.double(), others.double()
    finite = bool(torch.isfinite(x).all() and torch.isfinite(t).all())
    require(finite, "kernel mean matching found NaN or infinity in the training or test features; repair them first")
    width = _median_distance(torch.cat([x, t]))
    parts = [_kernel(x, block, width).sum(dim=1) for block in torch.split(t, BLOCK)]
    target = torch.stack(parts).sum(dim=0) * (count / t.size(0))
    return matched_weights(_kernel(x, x, width), target, lower, upper).to(rows.dtype)


def matched_weights(kernel: Tensor, target: Tensor, lower: float, upper: float) -> Tensor:
    """The solution for a kernel matrix without negative entries and a vector, by steps that restart their momentum.

    Args:
        kernel: K, symmetric and positive semi-definite.
        target: The vector κ.
        lower: Lower bound of the weights, at most 1.
        upper: Upper bound of the weights, at least 1.
    """
    size = 1 / kernel.sum(dim=1).max()  # no eigenvalue is above the largest sum of a row
    weights = point = torch.ones_like(target)
    momentum = 1.0
    for _ in range(MOST_STEPS):
        new = _projected(point - size * (kernel @ point - target), lower, upper)
        step = new - weights
        if float((point - new) @ step) > 0:  # the momentum points uphill: begin anew (O'Donoghue & Candès, 2015)
            momentum = 1.0
        following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        point_before, point = point, new + (momentum - 1) / following * step
        weights, momentum = new, following
        if max(float(step.abs().max()), float((new - point_before).abs().max())) < SMALLEST_STEP:
            break
    return weights


def _projected(weights: Tensor, lower: float, upper: float) -> Tensor:
    """The nearest weights within the bounds that have mean 1: all are moved by the same number, then cut off."""
    number = weights.numel()
    # The mean is piecewise linear in the shift: with a growing shift, each weight leaves its upper bound, then meets
    # its lower one.
    shifts, order = torch.cat([weights - upper, weights - lower]).sort()
    free = torch.where(order < number, 1, -1).cumsum(0)[:-1]
    means = upper - (free * shifts.diff()).cumsum(0) / number
    piece = (means > 1).sum().clamp(max=means.numel() - 1)
    shift = shifts[piece + 1] - (1 - means[piece]) * number / free[piece].clamp(min=1)
    return (weights - shift).clamp(lower, upper)


def _kernel(one: Tensor, two: Tensor, width: float) -> Tensor:
    return torch.cdist(one, two).square_().div_(-2 * width**2).exp_()


def _median_distance(rows: Tensor) -> float:
    """Of evenly chosen rows; if most of them are equal, the mean distance, and 1 if all are."""
    few = rows[torch.linspace(0, rows.size(0) - 1, min(rows.size(0), ROWS_FOR_MEDIAN), device=rows.device).long()]
    distances = torch.nn.functional.pdist(few)
    return float(distances.median()) or float(distances.mean()) or 1.0 if distances.numel() else 1.0
