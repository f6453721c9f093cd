"""DANN: embeddings from which a classifier cannot tell training from test graphs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.propagation import gcn_norm
from graphmend.errors import check_fields, real_number
from graphmend.lab.backbones.layers import GraphConvolution
from graphmend.lab.data.splits import Splits
from graphmend.lab.training.base import Objective, Trainer, mean_risk, outputs
from graphmend.lab.training.targets import (
    check_targets,
    domain_loss,
    embedding_of,
    reversed_gradient,
    source_rows,
)

__all__ = ["DANN"]


@dataclass(frozen=True, kw_only=True)
class DANN(Trainer):
    r"""Domain-adversarial training (Ganin et al., JMLR 2016, https://arxiv.org/abs/1505.07818).

    The loss is the mean risk of the training graphs plus the cross-entropy of a domain classifier, one graph
    convolution from the embeddings to two outputs, which learns to tell the training nodes from the nodes of the test
    graphs. Both domains count the same. The gradient that goes from it into the model is multiplied by ``-reversal``,
    so that the model learns embeddings that look alike. Labels of the test graphs are not used, but the graphs
    themselves are needed for training: to train one model per test graph, call it with splits that have one each.

    Args:
        reversal: Strength of the reversed gradient.
        lr: As in :class:`~graphmend.lab.training.Trainer`, like ``weight_decay``, ``epochs``, ``optimizer`` and
            ``seed``.

    Example:
        >>> from graphmend.lab.training import DANN
        >>> DANN(epochs=100).reversal
        1.0
    """

    reversal: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, real_number, "reversal", low=0)

    def objective(self, model: nn.Module, splits: Splits) -> Objective:
        """The risk and the domain loss; the domain classifier is trained with the model."""
        embed = embedding_of(model, "DANN")
        check_targets(splits)
        model.eval()
        with torch.no_grad():
            (sample,) = outputs(embed, splits.train[:1])
        classifier = GraphConvolution(sample.size(1), 2).to(sample)

        def domains(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
            hidden = embed(x, edge_index) if edge_weight is None else embed(x, edge_index, edge_weight)
            propagate = gcn_norm(Adjacency.of(edge_index, hidden.size(0)), edge_weight, hidden.dtype)
            out: Tensor = classifier(reversed_gradient(hidden, self.reversal), propagate)
            return out

        def loss(epoch: int) -> Tensor:
            source = source_rows(outputs(domains, splits.train), splits)
            target = torch.cat(outputs(domains, splits.test))
            return mean_risk(outputs(model, splits.train), splits.train, splits.task) + domain_loss(source, target)

        return Objective(loss, (classifier,))
