"""PR-BCD: a gradient attack on the edges of graphs too large for all their node pairs."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.errors import choose, require
from graphmend.graph.budget import bernoulli, project, top
from graphmend.progress import track
from graphmend.transforms.attacks.losses import LOSSES
from graphmend.transforms.attacks.pairs import UndirectedGraph, check_rate
from graphmend.transforms.attacks.random_block import Block
from graphmend.transforms.attacks.steps import VARIANTS, Moment
from graphmend.transforms.attacks.swaps import improved
from graphmend.transforms.attacks.target import Target, target_of

__all__ = ["PRBCD"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class PRBCD:
    r"""Projected randomised block coordinate descent (Geisler et al., NeurIPS 2021, https://arxiv.org/abs/2110.14038).

    Flips at most :math:`n_B` undirected edges so that a trained model errs on the attacked nodes. Only a random block
    of node pairs is looked at, each with a flip probability :math:`p`; on the relaxed graph :math:`A \oplus p`

    .. math:: p \leftarrow \Pi_{[0,1],\, \sum p \le n_B}
              \left( p + \eta_t \nabla_p \mathcal L(f(X, A \oplus p)) \right).

    After each step of the first phase the pairs with :math:`p = 0`, and at least half of the block, are replaced by
    random others (Algorithm 1, lines 9-14). At the end ``num_samples`` discrete graphs are tried, the :math:`n_B`
    largest :math:`p` first, then Bernoulli draws cut to the budget.

    Three variants differ in the step (:mod:`graphmend.transforms.attacks.steps`) and in what is kept:

    * ``"adaptive"`` scales the gradient so that the :math:`n_B` best pairs first gain ``lr``, keeps the most
      harmful iterate, and spends the steps after the first phase on exchanging discrete flips for better ones
      (:mod:`graphmend.transforms.attacks.swaps`). Ours, and the strongest.
    * ``"official"`` takes the authors' step, :math:`\text{lr} \cdot \max(\log_2(\text{pairs} / \text{block}), 1) \cdot
      n_B / 2N`, decaying by :math:`1/\sqrt t` after the first phase, keeps the most harmful iterate and returns the
      sample with the lowest accuracy on the attacked nodes.
    * ``"port"`` is what the GTrans experiments ran: signed steps, the last iterate, and the sample with the highest
      negative log-likelihood of the true labels on ``data.val_mask`` (without one, the criterion of the others).

    Model, input and random generators are left as they were.

    Args:
        model: A trained model whose edges can be weighted: a GraphMend backbone or any that
            :class:`~graphmend.FrozenGNN` supports.
        rate: Budget :math:`n_B` as a fraction of the undirected edges, rounded down.
        budget: The same as a number of undirected edges, instead of ``rate``.
        nodes: Boolean mask of the attacked nodes; ``None`` for all.
        labels: Labels the attack moves predictions away from, one per node. By default the true ones of the ``known``
            nodes and the model's own clean prediction elsewhere, so that no other label is read.
        known: Boolean mask of the nodes whose ``data.y`` the attacker knows; by default ``data.train_mask``, if any.
        block_size: Node pairs looked at at a time.
        epochs: Gradient steps.
        resampling_epochs: Length of the first phase; by default three quarters of ``epochs``.
        loss: ``"tanh_margin"`` or ``"masked_cross_entropy"``.
        variant: ``"adaptive"``, ``"official"`` or ``"port"``.
        lr: Step size; by default the variant's, 0.5, 100 or 0.1.
        num_samples: Discrete graphs tried at the end.
        seed: Seed of the blocks and the samples.
        progress: Show a progress bar.

    Example:
        >>> from graphmend.nn import GCN
        >>> ring = torch.stack([torch.arange(6), torch.arange(6).roll(1)])
        >>> data = Data(x=torch.eye(6), edge_index=torch.cat([ring, ring.flip(0)], dim=1))
        >>> PRBCD(GCN(6, 4, 2), budget=0)(data).num_edges
        12
    """

    model: nn.Module = field(repr=False)
    _: KW_ONLY
    rate: float = 0.1
    budget: int | None = None
    nodes: Tensor | None = field(default=None, repr=False)
    labels: Tensor | None = field(default=None, repr=False)
    known: Tensor | None = field(default=None, repr=False)
    block_size: int = 250_000
    epochs: int = 400
    resampling_epochs: int | None = None
    loss: str = "tanh_margin"
    variant: str = "adaptive"
    lr: float | None = None
    num_samples: int = 20
    seed: int = 0
    progress: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        check_rate(self.rate, self.budget)
        choose("loss", self.loss, LOSSES)
        choose("variant", self.variant, VARIANTS)
        require(self.block_size >= 1, f"block_size must be at least 1 (got {self.block_size})")
        require(self.epochs >= 1, f"epochs must be at least 1 (got {self.epochs})")
        first = self.resampling_epochs
        require(
            first is None or 0 <= first <= self.epochs,
            f"resampling_epochs must be in 0..epochs = {self.epochs} (got {first})",
        )
        require(self.lr is None or 0 < self.lr < math.inf, f"lr must be positive and finite (got {self.lr})")
        require(self.num_samples >= 1, f"num_samples must be at least 1 (got {self.num_samples})")

    def __call__(self, data: Data) -> Data:
        """A copy of ``data`` with the attacked edges, sorted and in both directions."""
        graph = UndirectedGraph.of(data)
        budget = min(graph.count(self.rate, self.budget), graph.num_pairs)
        if budget == 0:
            return graph.put_into(data)
        size = min(self.block_size, graph.num_pairs)
        require(
            size > budget or size == graph.num_pairs,
            f"block_size must exceed the budget of {budget} edges (got {self.block_size}); enlarge it",
        )
        generator = torch.Generator(device=data.x.device).manual_seed(self.seed)
        with target_of(
            self.model,
            data,
            nodes=self.nodes,
            labels=self.labels,
            known=self.known,
            loss=self.loss,
            seed=self.seed,
        ) as target:
            block, p = self._search(target, graph, budget, generator)
            flips = self._discretise(target, data, block, p, budget, generator)
        return graph.flipped(flips).put_into(data)

    def _search(
        self, target: Target, graph: UndirectedGraph, budget: int, generator: torch.Generator
    ) -> tuple[Block, Tensor]:
        variant = VARIANTS[self.variant]
        step = variant.begin()
        lr = variant.lr if self.lr is None else self.lr
        first = 3 * self.epochs // 4 if self.resampling_epochs is None else self.resampling_epochs
        block = Block.random(graph, self.block_size, generator)
        p = target.x.new_zeros(block.pairs.numel())
        best, most = (block.pairs, p), (-math.inf, -math.inf)
        relaxed = first if variant.swaps and first > 0 else self.epochs
        for epoch in track(range(relaxed), "attacking", self.progress):
            gradient = target.gradient(block, p)
            now = Moment(budget, graph.num_nodes, graph.num_pairs, max(0, epoch - first))
            p = _projected(p + step(gradient, lr, now), budget)
            if variant.keeps_best:
                harm = target.harm(block, top(p, budget))
                if harm > most:
                    best, most = (block.pairs, p), harm
            if epoch + 1 < first and not block.is_whole:
                block, p = block.resample(p, generator)
            elif epoch + 1 == first and variant.keeps_best:
                block, p = _restored(block, *best)
        if variant.keeps_best:
            block, p = _restored(block, *best)
        if relaxed < self.epochs:
            p = improved(target, block, top(p, budget), self.epochs - relaxed).to(p.dtype)
        return block, p

    def _discretise(
        self, target: Target, data: Data, block: Block, p: Tensor, budget: int, generator: torch.Generator
    ) -> Tensor:
        """The most harmful of ``num_samples`` discrete choices."""
        harm = self._final_harm(target, data)
        chosen = p > 0
        block, p = Block(block.graph, block.pairs[chosen]), p[chosen]
        best, most = block.pairs[:0], (-math.inf, -math.inf)
        for flips in samples(p, budget, self.num_samples, generator):
            found = harm(block, flips)
            if found > most:
                best, most = block.pairs[flips], found
        logger.info("flipped %d of at most %d edges, harm %s", best.numel(), budget, most)
        return best

    def _final_harm(self, target: Target, data: Data) -> Callable[[Block, Tensor], tuple[float, float]]:
        nodes, y = data.get("val_mask"), data.get("y")
        if self.variant != "port" or nodes is None or y is None or not bool(nodes.any()):
            return target.harm
        labels = y.view(-1).long()[nodes]

        def validation_loss(block: Block, flips: Tensor) -> tuple[float, float]:
            return float(F.cross_entropy(target.logits(block, flips)[nodes], labels)), 0.0

        return validation_loss


def samples(p: Tensor, budget: int, number: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Masks within the budget: the largest ``p``, then Bernoulli draws, which lose flips at random until they fit."""
    yield top(p, budget)
    for _ in range(number - 1):
        yield bernoulli(p, budget, generator)


def _projected(p: Tensor, budget: int) -> Tensor:
    """The projection onto the budget; entries up to 0, mostly half of them, end at 0 and need no work."""
    positive = (p > 0).nonzero().view(-1)
    return torch.zeros_like(p).index_copy_(0, positive, project(p[positive], budget))


def _restored(block: Block, pairs: Tensor, p: Tensor) -> tuple[Block, Tensor]:
    return (block if pairs is block.pairs else Block(block.graph, pairs)), p
