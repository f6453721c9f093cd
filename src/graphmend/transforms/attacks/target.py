"""The target of an attack: a frozen model, the nodes to be misclassified and the labels the attacker has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.errors import UnsupportedLayerError, choose, require
from graphmend.frozen import FrozenGNN
from graphmend.frozen.restore import plain
from graphmend.transforms.attacks.losses import LOSSES, Loss, class_scores
from graphmend.transforms.attacks.random_block import Block

__all__ = ["Target", "check_mask", "target_of"]


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
    nodes = torch.ones_like(x[:, 0], dtype=torch.bool) if nodes is None else nodes.to(x.device)
    check_mask("nodes", nodes, size)
    require(bool(nodes.any()), "nodes marks no node to attack; mark at least one or pass None for all")
    with FrozenGNN(model, data, seed=seed) as frozen:
        try:
            frozen.require_edge_weights()
        except UnsupportedLayerError as error:
            reason = f"the attack needs gradients for edges, but {str(error).split(';')[0]}"
            raise UnsupportedLayerError(f"{reason}; RandomEdges needs none") from error
        with torch.no_grad():
            clean = class_scores(frozen.predict(data))
        if labels is None:
            labels = _assumed(data, clean.argmax(1), known)
        labels = labels.to(x.device)
        whole = not labels.is_floating_point() and tuple(labels.shape) == (size,)
        require(whole, f"labels must be {size} integers (got {labels.dtype} of shape {tuple(labels.shape)})")
        low, high = int(labels[nodes].min()), int(labels[nodes].max())
        classes = clean.size(1)
        require(
            low >= 0 and high < classes,
            f"labels of attacked nodes must be in 0..{classes - 1} (got {low}..{high}); leave other nodes out of nodes",
        )
        yield Target(frozen, plain(data).x, nodes, labels.long(), choose("loss", loss, LOSSES))


def _assumed(data: Data, predicted: Tensor, known: Tensor | None) -> Tensor:
    y = data.get("y")
    if known is None:
        known = data.get("train_mask") if y is not None else None
    if known is None:
        return predicted
    check_mask("known", known, predicted.numel())
    require(y is not None or not bool(known.any()), "known marks nodes, but the graph has no y; set data.y")
    return predicted if y is None else torch.where(known.to(predicted.device), y.view(-1).long(), predicted)


def check_mask(name: str, mask: Tensor, size: int) -> None:
    """A boolean mask with one entry per node."""
    require(
        isinstance(mask, Tensor) and mask.dtype == torch.bool and tuple(mask.shape) == (size,),
        f"{name} must be a boolean mask of shape ({size},) (got {getattr(mask, 'dtype', type(mask).__name__)} of shape "
        f"{tuple(getattr(mask, 'shape', ()))}); convert indices with torch_geometric.utils.index_to_mask",
    )
