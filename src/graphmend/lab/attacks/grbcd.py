"""GR-BCD: the greedy sibling of PR-BCD."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.lab.attacks.attack import EdgeAttack
from graphmend.lab.attacks.pairs import Block, UndirectedGraph
from graphmend.lab.attacks.target import Target
from graphmend.progress import track

__all__ = ["GRBCD"]


@dataclass(frozen=True, eq=False, kw_only=True)
class GRBCD(EdgeAttack):
    r"""Greedy randomised block coordinate descent (Geisler et al., NeurIPS 2021, https://arxiv.org/abs/2110.14038).

    Every epoch draws a random block of node pairs, differentiates the loss at :math:`p = 0` and flips permanently the
    pairs with the largest positive gradient, as many as spread the budget evenly over the epochs (Algorithm 2). A
    flipped pair is never flipped back. Model, input and random generators are left as they were.

    Args:
        model: The attacked model; it and all arguments not listed here are those of :class:`EdgeAttack`.
        epochs: Gradient steps, at most one per flip.
        loss: ``"masked_cross_entropy"`` or ``"tanh_margin"``.

    Example:
        >>> from graphmend.lab.attacks import GRBCD
        >>> from graphmend.lab.backbones import GCN
        >>> from graphmend.lab.data import embedded
        >>> data = embedded("wine").test[0]
        >>> GRBCD(GCN(13, 16, 3), rate=0.05, epochs=2)(data).is_undirected()
        True
    """

    epochs: int = 100
    loss: str = "masked_cross_entropy"

    def flips(
        self, target: Target, data: Data, graph: UndirectedGraph, budget: int, generator: torch.Generator
    ) -> Tensor:
        """The pair numbers of at most ``budget`` edges to flip."""
        now, epochs = graph, min(self.epochs, budget)
        for epoch in track(range(epochs), "attacking", self.progress):
            due = budget * (epoch + 1) // epochs - graph.changes_to(now).numel()
            block = Block.random(now, self.block_size, generator)
            gradient = target.gradient(block, target.x.new_zeros(block.pairs.numel()))
            gradient[graph.positions(block.pairs)[1] != block.exists] = 0  # flipped already
            best = gradient.topk(min(due, gradient.numel()))
            now = now.flipped(block.pairs[best.indices[best.values > 0]])
        return graph.changes_to(now)
