"""The steps of PR-BCD's flip probabilities along their gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from graphmend.engine.optimizers import sign_step

__all__ = ["VARIANTS", "StepContext", "Variant"]


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
