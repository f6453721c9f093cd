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


def adaptive(gradient: Tensor, lr: float, now: Moment) -> Tensor:
    r"""Steps in which the :math:`n_B` best pairs gain at least ``lr``: :math:`\text{lr} / \sqrt t \cdot g / g_{(n_B)}`.

    :math:`g_{(n_B)}` is the :math:`n_B`-th largest gradient. The step does not depend on the scale of the loss, the
    number of attacked nodes, the budget or the block, so one ``lr`` serves all.
    """
    best = gradient.topk(min(now.budget, gradient.numel())).values
    scale = best[-1:].clamp(min=1e-3 * float(best[0]))  # a block may hold fewer useful pairs than the budget
    return gradient * (lr / math.sqrt(now.late + 1) / scale) if float(scale) > 0 else 0 * gradient


def official(gradient: Tensor, lr: float, now: Moment) -> Tensor:
    r"""The step of the authors' code, proportional to the budget and larger for a block that is a smaller part of all.

    .. math:: \text{lr} \cdot \max(\log_2(\text{pairs} / \text{block}), 1) \cdot \frac{n_B}{2N} \cdot \frac{g}{\sqrt t}
    """
    searched = max(math.log2(now.num_pairs / gradient.numel()), 1.0)
    return gradient * (lr * searched * now.budget / (2 * now.num_nodes) / math.sqrt(now.late + 1))


def signed(gradient: Tensor, lr: float, now: Moment) -> Tensor:
    r"""The first step of a fresh Adam, every time: :math:`\text{lr} \cdot g / (|g| + 10^{-8})`."""
    return lr * gradient / (gradient.abs() + 1e-8)


@dataclass(frozen=True)
class Variant:
    """One way to run the attack.

    Args:
        step: What is added to the flip probabilities, from the gradient.
        lr: Default step size.
        keeps_best: Go back to the block and probabilities that did most harm, after resampling and at the end.
    """

    step: Callable[[Tensor, float, Moment], Tensor]
    lr: float
    keeps_best: bool


VARIANTS = {
    "adaptive": Variant(adaptive, lr=0.2, keeps_best=True),
    "official": Variant(official, lr=100.0, keeps_best=True),
    "port": Variant(signed, lr=0.1, keeps_best=False),
}
