"""The target of an attack: a frozen model, the nodes to be misclassified, the labels the attacker has, and the loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.errors import UnsupportedLayerError, choose, require
from graphmend.lab.attacks.pairs import Block
from graphmend.model import FrozenGNN
from graphmend.model.restore import plain
from graphmend.outputs import check_classes, class_scores, read_labels, read_mask

__all__ = ["LOSSES", "Target", "margins", "masked_cross_entropy", "tanh_margin", "target_of"]

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


@dataclass(frozen=True, eq=False)
class Target:
    """A frozen model on a graph, seen by an attacker.

    Args:
        model: The model, inside its ``with`` block.
        x: Node features.
        nodes: Boolean mask of the attacked nodes.
        labels: The label the attacker assumes for each node.
        loss: The function of logits and labels that the attack maximises over the attacked nodes.
    """

    model: FrozenGNN
    x: Tensor
    nodes: Tensor
    labels: Tensor
    loss: Loss

    def gradient(self, block: Block, p: Tensor) -> Tensor:
        r"""The gradient of the loss on :math:`A \oplus p` for every ``p`` of the block, zeros included."""
        weight = block.weight(p).requires_grad_()
        loss = self.loss(*self._attacked(self._logits(block, weight)))
        return block.gradient(torch.autograd.grad(loss, weight)[0])

    @torch.no_grad()
    def harm(self, block: Block, flips: Tensor) -> tuple[float, float]:
        """The share of attacked nodes that miss the attacker's label, and the loss, with some pairs flipped."""
        logits, labels = self._attacked(self.logits(block, flips))
        return float((logits.argmax(1) != labels).double().mean()), float(self.loss(logits, labels))

    @torch.no_grad()
    def logits(self, block: Block, flips: Tensor) -> Tensor:
        """Class scores with some pairs of the block flipped."""
        return self._logits(block, block.weight(flips.to(self.x.dtype)))

    def _logits(self, block: Block, weight: Tensor) -> Tensor:
        return class_scores(self.model(self.x, block.edge_index, weight))

    def _attacked(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        return logits[self.nodes], self.labels[self.nodes]


@contextmanager
def target_of(
    model: nn.Module,
    data: Data,
    *,
    nodes: Tensor | None,
    labels: Tensor | None,
    known: Tensor | None,
    loss: str,
    seed: int,
) -> Iterator[Target]:
    """Freeze the model and collect the attacker's labels; afterwards model and generators are as they were.

    Without ``labels``, the attacker has the true ones of the ``known`` nodes (by default ``data.train_mask``, if any)
    and the model's own prediction on the clean graph everywhere else.
    """
    x: Tensor = data.x
    size = x.size(0)
    everywhere = torch.ones(size, dtype=torch.bool, device=x.device)
    nodes = everywhere if nodes is None else read_mask(nodes, size, "nodes").to(x.device)
    known = _known(data, known)
    with FrozenGNN(model, data, seed=seed) as frozen:
        try:
            frozen.require_edge_weights()
        except UnsupportedLayerError as error:
            reason = f"the attack needs gradients for edges, but {str(error).split(';')[0]}"
            raise UnsupportedLayerError(f"{reason}; RandomEdges needs none") from error
        with torch.no_grad():
            clean = class_scores(frozen.predict(data))
        assumed = clean.argmax(1)
        if labels is None and known is not None:
            assumed[known] = read_labels(data.y, size, known).to(x.device)
        elif labels is not None:
            assumed[nodes] = read_labels(labels, size, nodes, "labels").to(x.device)
        check_classes(
            assumed[nodes], clean.size(1), "labels of attacked nodes", "leave nodes of other classes out of nodes"
        )
        yield Target(frozen, plain(data).x, nodes, assumed, choose("loss", loss, LOSSES))


def _known(data: Data, known: Tensor | None) -> Tensor | None:
    """The nodes whose true labels the attacker has, if any."""
    size, y, name = data.x.size(0), data.get("y"), "known"
    if known is None and y is not None:
        known, name = data.get("train_mask"), "train_mask"
    if known is None:
        return None
    known = read_mask(known, size, name, may_be_empty=True).to(data.x.device)
    if y is None:
        require(not bool(known.any()), "known marks nodes, but the graph has no y; set data.y")
        return None
    return known
