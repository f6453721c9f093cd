"""GR-BCD: the greedy sibling of PR-BCD."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.errors import choose, require
from graphmend.progress import track
from graphmend.transforms.attacks.losses import LOSSES
from graphmend.transforms.attacks.pairs import UndirectedGraph, check_rate
from graphmend.transforms.attacks.random_block import Block
from graphmend.transforms.attacks.target import target_of

__all__ = ["GRBCD"]


@dataclass(frozen=True, eq=False)
class GRBCD:
    r"""Greedy randomised block coordinate descent (Geisler et al., NeurIPS 2021, https://arxiv.org/abs/2110.14038).

    Every epoch draws a random block of node pairs, differentiates the loss at :math:`p = 0` and flips, for good, the
    pairs with the largest positive gradient, so many that the budget is spread evenly over the epochs (Algorithm 2). A
    flipped pair is never flipped back. Model, input and random generators are left as they were.

    Args:
        model: A trained model whose edges can be weighted, as for :class:`PRBCD`.
        rate: Budget as a fraction of the undirected edges, rounded down.
        budget: The same as a number of undirected edges, instead of ``rate``.
        nodes: Boolean mask of the attacked nodes; ``None`` for all.
        labels: Labels the attack moves predictions away from; by default as for :class:`PRBCD`.
        known: Boolean mask of the nodes whose ``data.y`` the attacker knows; by default ``data.train_mask``, if any.
        block_size: Node pairs looked at at a time.
        epochs: Gradient steps, at most one per flip.
        loss: ``"masked_cross_entropy"`` or ``"tanh_margin"``.
        seed: Seed of the blocks.
        progress: Show a progress bar.
    """

    model: nn.Module = field(repr=False)
    _: KW_ONLY
    rate: float = 0.1
    budget: int | None = None
    nodes: Tensor | None = field(default=None, repr=False)
    labels: Tensor | None = field(default=None, repr=False)
    known: Tensor | None = field(default=None, repr=False)
    block_size: int = 250_000
    epochs: int = 100
    loss: str = "masked_cross_entropy"
    seed: int = 0
    progress: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        check_rate(self.rate, self.budget)
        choose("loss", self.loss, LOSSES)
        require(self.block_size >= 1, f"block_size must be at least 1 (got {self.block_size})")
        require(self.epochs >= 1, f"epochs must be at least 1 (got {self.epochs})")

    def __call__(self, data: Data) -> Data:
        """A copy of ``data`` with the attacked edges, sorted and in both directions."""
        clean = graph = UndirectedGraph.of(data)
        budget = min(graph.count(self.rate, self.budget), graph.num_pairs)
        if budget == 0:
            return graph.put_into(data)
        generator = torch.Generator(device=data.x.device).manual_seed(self.seed)
        epochs = min(self.epochs, budget)
        with target_of(
            self.model,
            data,
            nodes=self.nodes,
            labels=self.labels,
            known=self.known,
            loss=self.loss,
            seed=self.seed,
        ) as target:
            for epoch in track(range(epochs), "attacking", self.progress):
                due = budget * (epoch + 1) // epochs - clean.changes_to(graph).numel()
                block = Block.random(graph, self.block_size, generator)
                gradient = target.gradient(block, target.x.new_zeros(block.pairs.numel()))
                gradient[clean.positions(block.pairs)[1] != block.exists] = 0  # flipped already
                best = gradient.topk(min(due, gradient.numel()))
                graph = graph.flipped(block.pairs[best.indices[best.values > 0]])
        return graph.put_into(data)
