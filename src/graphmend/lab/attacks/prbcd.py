"""PR-BCD: a gradient attack on the edges of graphs too large for all their node pairs."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from graphmend.engine.optimizers import sign_step
from graphmend.errors import check_fields, choose, real_number, require, whole_number
from graphmend.graph.budget import project, samples, top
from graphmend.lab.attacks.attack import EdgeAttack
from graphmend.lab.attacks.pairs import Block, UndirectedGraph
from graphmend.lab.attacks.target import Target
from graphmend.outputs import check_classes, class_scores, read_labels, read_mask
from graphmend.progress import track

__all__ = ["PRBCD", "VARIANTS", "StepContext", "Variant", "exchanged", "improved", "selection_criterion"]


class StepContext(NamedTuple):
    """The sizes and the time that a step may depend on.

    Args:
        budget: Edges that may flip.
        num_nodes: Nodes of the graph.
        num_pairs: Pairs of nodes, with or without an edge.
        late: Steps since the last resampling of the block, 0 while there is more to come.
    """

    budget: int
    num_nodes: int
    num_pairs: int
    late: int


class Adaptive:
    r"""Steps in which the :math:`n_B` best pairs first gain ``lr``: :math:`\text{lr} / \sqrt t \cdot g / m_t`.

    :math:`m_t` is the largest :math:`n_B`-th largest gradient so far. The step does not depend on the scale of the
    loss, the number of attacked nodes, the budget or the block, so one ``lr`` serves all, and it shrinks with the
    gradient as fewer nodes are left to flip.
    """

    def __init__(self) -> None:
        self.steepest = 0.0

    def __call__(self, gradient: Tensor, lr: float, context: StepContext) -> Tensor:
        """The step for one gradient."""
        best = gradient.topk(min(context.budget, gradient.numel())).values
        reached = max(float(best[-1]), 1e-3 * float(best[0]))  # a block may hold fewer useful pairs than the budget
        self.steepest = max(self.steepest, reached)
        return gradient * (lr / math.sqrt(context.late + 1) / self.steepest) if self.steepest > 0 else 0 * gradient


def official(gradient: Tensor, lr: float, context: StepContext) -> Tensor:
    r"""The step of the authors' code, proportional to the budget and larger for a block that is a smaller part of all.

    .. math:: \text{lr} \cdot \max(\log_2(\text{pairs} / \text{block}), 1) \cdot \frac{n_B}{2N} \cdot \frac{g}{\sqrt t}
    """
    searched = max(math.log2(context.num_pairs / gradient.numel()), 1.0)
    return gradient * (lr * searched * context.budget / (2 * context.num_nodes) / math.sqrt(context.late + 1))


def signed(gradient: Tensor, lr: float, context: StepContext) -> Tensor:
    """A fresh Adam at every step, see :func:`graphmend.engine.optimizers.sign_step`."""
    return sign_step(gradient, lr)


Step = Callable[[Tensor, float, StepContext], Tensor]


@dataclass(frozen=True)
class Variant:
    """One way to run the attack.

    Args:
        begin: Makes the function that turns gradients into steps, anew for every attack.
        lr: Default step size.
        keeps_best: Return to the most harmful block and probabilities, after resampling and at the end.
        swaps: Spend the steps after the first phase on exchanging discrete flips.
        selects_by_validation: Choose the final sample by the loss on ``data.val_mask``, if there is one.
    """

    begin: Callable[[], Step]
    lr: float
    keeps_best: bool
    swaps: bool = False
    selects_by_validation: bool = False


VARIANTS = {
    "adaptive": Variant(Adaptive, lr=0.5, keeps_best=True, swaps=True),
    "official": Variant(lambda: official, lr=100.0, keeps_best=True),
    "port": Variant(lambda: signed, lr=0.1, keeps_best=False, selects_by_validation=True),
}


def improved(target: Target, block: Block, flips: Tensor, tries: int) -> Tensor:
    """The flips after some tries to exchange the least useful of them for the most promising pairs of the block.

    Every try takes one gradient at the discrete graph and keeps the exchange if it does more harm; if not, the next
    one exchanges half as many, beginning with a tenth.

    Args:
        target: The attacked model and nodes.
        block: The node pairs that are considered.
        flips: Mask of the pairs that are flipped.
        tries: Number of exchanges to try.
    """
    most, number = target.harm(block, flips), max(1, int(flips.sum()) // 10)
    for _ in range(tries):
        other = exchanged(flips, target.gradient(block, flips.to(target.x.dtype)), number)
        harm = target.harm(block, other)
        if harm > most:
            flips, most = other, harm
        else:
            number = max(1, number // 2)
    return flips


def exchanged(flips: Tensor, gradient: Tensor, number: int) -> Tensor:
    """Replace up to ``number`` flips with the smallest gradient, each by a pair with a larger one."""
    number = min(number, int(flips.sum()), int((~flips).sum()))
    worst = gradient.masked_fill(~flips, torch.inf).topk(number, largest=False).indices
    best = gradient.masked_fill(flips, -torch.inf).topk(number).indices
    gains = gradient[best] > gradient[worst]
    out = flips.clone()
    out[worst[gains]] = False
    out[best[gains]] = True
    return out


logger = logging.getLogger(__name__)
Harm = Callable[[Block, Tensor], tuple[float, float]]


@dataclass(frozen=True, eq=False, kw_only=True)
class PRBCD(EdgeAttack):
    r"""Projected randomised block coordinate descent (Geisler et al., NeurIPS 2021, https://arxiv.org/abs/2110.14038).

    Flips at most :math:`n_B` undirected edges so that a trained model errs on the attacked nodes. Only a random block
    of node pairs is considered, each with a flip probability :math:`p`; on the relaxed graph :math:`A \oplus p`

    .. math:: p \leftarrow \Pi_{[0,1],\, \sum p \le n_B}
              \left( p + \eta_t \nabla_p \mathcal L(f(X, A \oplus p)) \right).

    After each step of the first phase the pairs with :math:`p = 0`, and at least half of the block, are replaced by
    random others (Algorithm 1, lines 9-14). At the end ``num_samples`` discrete graphs are tried, the :math:`n_B`
    largest :math:`p` first, then Bernoulli draws that lose flips at random until they are within the budget.

    Three variants differ in the step and in the iterate they keep:

    * ``"adaptive"`` scales the gradient so that the :math:`n_B` best pairs first gain ``lr``, keeps the most
      harmful iterate, and spends the steps after the first phase on exchanging discrete flips for better
      ones (:func:`improved`). Ours, and the strongest.
    * ``"official"`` takes the authors' step, :math:`\text{lr} \cdot \max(\log_2(\text{pairs} / \text{block}), 1) \cdot
      n_B / 2N`, decaying by :math:`1/\sqrt t` after the first phase, keeps the most harmful iterate and returns the
      sample with the lowest accuracy on the attacked nodes.
    * ``"port"`` is the attack of the GTrans experiments: signed steps, the last iterate, and the sample with the
      highest negative log-likelihood of the true labels on ``data.val_mask`` (without one, as the other variants).

    Model, input and random generators are left as they were.

    Args:
        model: The attacked model; it and all arguments not listed here are those of :class:`EdgeAttack`.
        resampling_epochs: Length of the first phase; by default three quarters of ``epochs``.
        variant: ``"adaptive"``, ``"official"`` or ``"port"``.
        lr: Step size; by default the variant's, 0.5, 100 or 0.1.
        num_samples: Discrete graphs tried at the end.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.lab.attacks import PRBCD
        >>> from graphmend.lab.backbones import GCN
        >>> ring = torch.stack([torch.arange(6), torch.arange(6).roll(1)])
        >>> data = Data(x=torch.eye(6), edge_index=torch.cat([ring, ring.flip(0)], dim=1))
        >>> PRBCD(GCN(6, 4, 2), budget=0)(data).num_edges
        12
    """

    resampling_epochs: int | None = None
    variant: str = "adaptive"
    lr: float | None = None
    num_samples: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("variant", self.variant, VARIANTS)
        check_fields(self, whole_number, "resampling_epochs", optional=True)
        first = self.resampling_epochs
        fits = first is None or first <= self.epochs
        require(fits, f"resampling_epochs must be in 0..epochs = {self.epochs} (got {first})")
        check_fields(self, real_number, "lr", above=0, optional=True)
        check_fields(self, whole_number, "num_samples", low=1)

    def flips(
        self, target: Target, data: Data, graph: UndirectedGraph, budget: int, generator: torch.Generator
    ) -> Tensor:
        """The pair numbers of at most ``budget`` edges to flip."""
        size = min(self.block_size, graph.num_pairs)
        require(
            size > budget or size == graph.num_pairs,
            f"block_size must exceed the budget of {budget} edges (got {self.block_size}); enlarge it",
        )
        harm = selection_criterion(target, data, VARIANTS[self.variant])
        block, p = self._search(target, graph, budget, generator)
        return self._most_harmful_sample(block, p, budget, harm, generator)

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
            context = StepContext(budget, graph.num_nodes, graph.num_pairs, max(0, epoch - first))
            p = _projected(p + step(gradient, lr, context), budget)
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

    def _most_harmful_sample(
        self, block: Block, p: Tensor, budget: int, harm: Harm, generator: torch.Generator
    ) -> Tensor:
        """The pairs of the most harmful of ``num_samples`` discrete choices: the largest ``p``, then random draws."""
        candidates = p > 0
        block, p = Block(block.graph, block.pairs[candidates]), p[candidates]
        best, most = block.pairs[:0], (-math.inf, -math.inf)
        for flips in chain([top(p, budget)], samples(p, budget, self.num_samples - 1, generator)):
            value = harm(block, flips)
            if value > most:
                best, most = block.pairs[flips], value
        logger.info("flipped %d of at most %d edges, harm %s", best.numel(), budget, most)
        return best


def selection_criterion(target: Target, data: Data, variant: Variant) -> Harm:
    """The harm by which a variant chooses among discrete graphs: that to the target or, for some, to ``val_mask``."""
    mask, y = data.get("val_mask"), data.get("y")
    if not variant.selects_by_validation or mask is None or y is None:
        return target.harm
    nodes = read_mask(mask, target.x.size(0), "val_mask", may_be_empty=True).to(target.x.device)
    if not bool(nodes.any()):
        return target.harm
    labels = read_labels(y, target.x.size(0), nodes).to(target.x.device)
    check_classes(labels, class_scores(target.model.predict(data)).size(1), "labels of nodes in val_mask")

    def validation_loss(block: Block, flips: Tensor) -> tuple[float, float]:
        return float(F.cross_entropy(target.logits(block, flips)[nodes], labels)), 0.0

    return validation_loss


def _projected(p: Tensor, budget: int) -> Tensor:
    """The projection onto the budget, computed for positive entries only: the others, about half, end at 0."""
    positive = (p > 0).nonzero().view(-1)
    return torch.zeros_like(p).index_copy_(0, positive, project(p[positive], budget))


def _restored(block: Block, pairs: Tensor, p: Tensor) -> tuple[Block, Tensor]:
    return (block if pairs is block.pairs else Block(block.graph, pairs)), p
