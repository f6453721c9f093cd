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
from graphmend.lab.metrics.discrepancy import central_moment_discrepancy
from graphmend.lab.training.base import Objective, Trainer, mean_risk, outputs
from graphmend.lab.training.kernel_mean_matching import instance_weights
from graphmend.lab.training.targets import check_targets, embedding_of, source_rows

__all__ = ["SRGNN"]


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
    (:mod:`kernel mean matching <graphmend.lab.training.kernel_mean_matching>`). Weights need representations that do
    not change while the model learns. As for the linear models of the paper, these are features that were propagated
    twice by the symmetrically normalised adjacency, :math:`\hat A^2 X`. The kernel has an entry for each pair of
    labelled nodes, so there may be 20,000 of them at most.

    Args:
        weight: Weight of the discrepancy.
        kmm: Weigh the training nodes by kernel mean matching.
        lr: As in :class:`~graphmend.lab.training.Trainer`, like ``weight_decay``, ``epochs``, ``optimizer`` and
            ``seed``.

    Example:
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
