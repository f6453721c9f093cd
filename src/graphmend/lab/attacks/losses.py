"""Losses that an attack on node classification maximises."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["LOSSES", "margins", "masked_cross_entropy", "tanh_margin"]

Loss = Callable[[Tensor, Tensor], Tensor]


def margins(logits: Tensor, labels: Tensor) -> Tensor:
    r"""How far a node's label leads, :math:`m_i = s_{i, y_i} - \max_{c \ne y_i} s_{i, c}`; negative if it does not."""
    own = labels.unsqueeze(1)
    others = logits.scatter(1, own, -torch.inf)
    return logits.gather(1, own).squeeze(1) - others.amax(1)


def tanh_margin(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Mean of :math:`\tanh(-m_i)` over the attacked nodes (Geisler et al., NeurIPS 2021, Eq. 2).

    Nodes far on either side of the decision boundary hardly count, so the budget goes where it flips predictions.

    Example:
        >>> float(tanh_margin(torch.tensor([[1.0, 0.0]]), torch.tensor([0])))  # -tanh(1)
        -0.7615941762924194
    """
    return -torch.tanh(margins(logits, labels)).mean()


def masked_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Cross-entropy over the attacked nodes that are still classified right (Geisler et al., NeurIPS 2021, Eq. 3).

    .. math:: -\frac{1}{|V^+|} \sum_{i \in V^+} \log \mathrm{softmax}(s_i)_{y_i},
              \qquad V^+ = \{i : \arg\max_c s_{i, c} = y_i\}

    If none is, over all of them.
    """
    right = logits.argmax(1) == labels
    if bool(right.any()):
        logits, labels = logits[right], labels[right]
    return F.cross_entropy(logits, labels)


LOSSES: dict[str, Loss] = {"tanh_margin": tanh_margin, "masked_cross_entropy": masked_cross_entropy}
