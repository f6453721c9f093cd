"""SR-GNN: hidden representations of training and test nodes are kept alike."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphmend.datasets.splits import Splits
from graphmend.errors import require
from graphmend.training.base import Objective, Trainer, mean_risk, outputs
from graphmend.training.targets import check_targets, embedding_of, source_rows

__all__ = ["SRGNN"]


@dataclass(frozen=True, kw_only=True)
class SRGNN(Trainer):
    r"""Shift-robust training (Zhu et al., NeurIPS 2021, https://arxiv.org/abs/2108.01099).

    The loss is the mean risk of the training graphs plus ``weight`` times the central moment discrepancy

    .. math:: \mathrm{CMD}(U, V) = \lVert \bar u - \bar v \rVert
              + \sum_{k=2}^{5} \big\lVert \overline{(u - \bar u)^k} - \overline{(v - \bar v)^k} \big\rVert

    between the embeddings of the training nodes and those of as many nodes of the test graphs, drawn anew in every
    epoch from all their nodes. Labels of the test graphs are not used, but the graphs themselves are needed for
    training: to train one model per test graph, call it with splits that have one each. The instance weights of the
    paper, which its code has for linear propagation only, are left out.

    Args:
        weight: Weight of the discrepancy.
        lr: As in :class:`~graphmend.training.Trainer`, like ``weight_decay``, ``epochs``, ``optimizer`` and ``seed``.

    Example:
        >>> SRGNN(epochs=100).weight
        1.0
    """

    weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        good = self.weight >= 0 and math.isfinite(self.weight)
        require(good, f"weight must be finite and not negative (got {self.weight})")

    def objective(self, model: nn.Module, splits: Splits) -> Objective:
        """The risk and the discrepancy."""
        embed = embedding_of(model, "SRGNN")
        check_targets(splits)

        def loss(epoch: int) -> Tensor:
            source = source_rows(outputs(embed, splits.train), splits)
            target = torch.cat(outputs(embed, splits.test))
            sample = torch.randperm(target.size(0), device=target.device)[: source.size(0)]
            total = mean_risk(outputs(model, splits.train), splits.train, splits.task)
            return total + self.weight * _cmd(source, target[sample])

        return Objective(loss)


def _cmd(u: Tensor, v: Tensor, moments: int = 5) -> Tensor:
    """Central moment discrepancy of the rows of two matrices, without the division by powers of the interval."""
    means = u.mean(dim=0), v.mean(dim=0)
    differences = [means[0] - means[1]]
    u, v = u - means[0], v - means[1]
    differences += [u.pow(k).mean(dim=0) - v.pow(k).mean(dim=0) for k in range(2, moments + 1)]
    return torch.stack([torch.linalg.vector_norm(difference) for difference in differences]).sum()
