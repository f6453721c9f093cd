"""How the flip probabilities of PR-BCD move along their gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

__all__ = ["VARIANTS", "Moment", "Variant"]


class Moment(NamedTuple):
    """Where an attack stands.

    Args:
        budget: Edges that may flip.
        num_nodes: Nodes of the graph.
        num_pairs: Pairs of nodes, with or without an edge.
        late: Steps since the block was last resampled for good, 0 until then.
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

    def __call__(self, gradient: Tensor, lr: float, now: Moment) -> Tensor:
        """The step for one gradient."""
        best = gradient.topk(min(now.budget, gradient.numel())).values
        reached = max(float(best[-1]), 1e-3 * float(best[0]))  # a block may hold fewer useful pairs than the budget
        self.steepest = max(self.steepest, reached)
        return gradient * (lr / math.sqrt(now.late + 1) / self.steepest) if self.steepest > 0 else 0 * gradient


def official(gradient: Tensor, lr: float, now: Moment) -> Tensor:
    r"""The step of the authors' code, proportional to the budget and larger for a block that is a smaller part of all.

    .. math:: \text{lr} \cdot \max(\log_2(\text{pairs} / \text{block}), 1) \cdot \frac{n_B}{2N} \cdot \frac{g}{\sqrt t}
    """
    searched = max(math.log2(now.num_pairs / gradient.numel()), 1.0)
    return gradient * (lr * searched * now.budget / (2 * now.num_nodes) / math.sqrt(now.late + 1))


def signed(gradient: Tensor, lr: float, now: Moment) -> Tensor:
    r"""The first step of a fresh Adam, every time: :math:`\text{lr} \cdot g / (|g| + 10^{-8})`."""
    return lr * gradient / (gradient.abs() + 1e-8)


Step = Callable[[Tensor, float, Moment], Tensor]


@dataclass(frozen=True)
class Variant:
    """One way to run the attack.

    Args:
        begin: Gives, for one attack, what adds to the flip probabilities, from the gradient.
        lr: Default step size.
        keeps_best: Go back to the block and probabilities that did most harm, after resampling and at the end.
        swaps: Spend the steps after the first phase on exchanging discrete flips.
    """

    begin: Callable[[], Step]
    lr: float
    keeps_best: bool
    swaps: bool = False


VARIANTS = {
    "adaptive": Variant(Adaptive, lr=0.5, keeps_best=True, swaps=True),
    "official": Variant(lambda: official, lr=100.0, keeps_best=True),
    "port": Variant(lambda: signed, lr=0.1, keeps_best=False),
}
