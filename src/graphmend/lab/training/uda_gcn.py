"""UDA-GCN: domain-adversarial training of the two-view network with sure predictions on the test graphs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphmend.errors import GraphMendError, check_fields, real_number, whole_number
from graphmend.lab.backbones.dual_gcn import DualGCN
from graphmend.lab.data.splits import Splits
from graphmend.lab.training.base import Objective, Trainer, mean_risk, outputs
from graphmend.lab.training.targets import check_targets, domain_loss, reversed_gradient, source_rows

__all__ = ["UDAGCN"]


@dataclass(frozen=True, kw_only=True)
class UDAGCN(Trainer):
    r"""Unsupervised domain-adaptive graph convolution (Wu et al., WWW 2020, https://doi.org/10.1145/3366423.3380219).

    Trains a :class:`~graphmend.lab.backbones.DualGCN`. The loss of epoch :math:`e` (from 0) is the mean risk of the
    training graphs, plus the cross-entropies of both domains for a domain classifier on the embeddings, whose gradient
    enters the model multiplied by :math:`-\min((e + 1) / \text{epochs},\; \text{reversal})`, plus
    :math:`\text{entropy}\; e / \text{epochs}` times the mean entropy of the predictions on the test graphs.
    Labels of the test graphs are not used, but the graphs themselves are needed for training.

    Two things of the official code are left out: it reports the epoch with the best accuracy on the test graph, where
    this trainer selects on the validation graphs; and it adds the sum of the means of all weights to the loss, where
    this trainer has ``weight_decay``.

    Args:
        hidden_channels: Width of the domain classifier.
        dropout: Dropout of the domain classifier; the model has its own.
        reversal: Highest strength of the reversed gradient.
        entropy: Weight of the entropy at the end of training.
        lr: As in :class:`~graphmend.lab.training.Trainer`, like ``weight_decay``, ``epochs``, ``optimizer`` and
            ``seed``.

    Example:
        >>> from graphmend.lab.training import UDAGCN
        >>> from graphmend.lab.backbones import DualGCN
        >>> model, trainer = DualGCN(8, 128, 3, dropout=0.1), UDAGCN(lr=3e-3, weight_decay=0.0, optimizer="adam")
    """

    hidden_channels: int = 40
    dropout: float = 0.1
    reversal: float = 0.05
    entropy: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, whole_number, "hidden_channels", low=1)
        check_fields(self, real_number, "dropout", low=0, below=1)
        check_fields(self, real_number, "reversal", "entropy", low=0)

    def objective(self, model: nn.Module, splits: Splits) -> Objective:
        """The risk, the domain loss and the entropy; the domain classifier is trained with the model."""
        if not isinstance(model, DualGCN):
            name = type(model).__name__
            raise GraphMendError(
                f"UDAGCN trains dual_gcn, a graphmend.lab.backbones.DualGCN (got {name}); "
                "build one, or use DANN for others"
            )
        check_targets(splits)
        classifier = nn.Sequential(
            nn.Linear(model.encoding_channels, self.hidden_channels),
            nn.ReLU(),
            nn.Dropout(self.dropout),
            nn.Linear(self.hidden_channels, 2),
        ).to(splits.train[0].x)

        def loss(epoch: int) -> Tensor:
            rate = min((epoch + 1) / self.epochs, self.reversal)
            hidden, target = outputs(model.embed, splits.train), torch.cat(outputs(model.embed, splits.test))
            total = mean_risk([model.classify(z) for z in hidden], splits.train, splits.task)
            source = source_rows(hidden, splits)
            domains = 2 * domain_loss(*(classifier(reversed_gradient(z, rate)) for z in (source, target)))
            logs: Tensor = model.classify(target).log_softmax(dim=1)
            entropy = -(logs.exp() * logs).sum(dim=1).mean()
            return total + domains + self.entropy * epoch / self.epochs * entropy

        return Objective(loss, (classifier,))
