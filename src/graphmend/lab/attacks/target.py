"""The target of an attack: a frozen model, the nodes to be misclassified and the labels the attacker has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.errors import UnsupportedLayerError, choose, require
from graphmend.lab.attacks.losses import LOSSES, Loss
from graphmend.lab.attacks.random_block import Block
from graphmend.model import FrozenGNN
from graphmend.model.restore import plain
from graphmend.outputs import check_classes, class_scores, read_labels, read_mask

__all__ = ["Target", "target_of"]


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
