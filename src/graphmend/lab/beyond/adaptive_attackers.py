r"""Attackers who know the gate: the model, the source card, every view of an edge, every threshold.

*through* is PR-BCD with the defence in its way. On the relaxed graph, edge :math:`e` with weight :math:`w_e` counts as
:math:`w_e k_e`, where :math:`k_e \in \{0, 1\}` says whether :class:`~graphmend.adapters.Purify` keeps it:
:math:`k_e = [f_e > \tau]` with the fit :math:`f_e` of the edge and the threshold :math:`\tau` that the relaxed graph's
own excess leads to. Going back, :math:`\sigma((f_e - \tau) / T)` takes the place of the step (straight-through): an
edge that would be cut still has a gradient, the smaller the worse it fits. Fits and threshold are computed anew in
every step, neighbourhoods of the relaxed graph included, and count as constants on the way back. The gate's decision is
straight-through as well: forward the one that the gate came to on the last discrete graph, back always through the
purified one. Which discrete graph is the most harmful is judged by the gate itself.

*evade* makes the gate silent instead: it acts only where the well-fitting edges are all still there, so a part of the
budget removes as many of them as it takes, those first that help the model most, and the rest is PR-BCD on the bare
model. If the gate still cuts edges, half as many again are removed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import Adaptation, FrozenGNN, Gate
from graphmend.adapters.gate.card_rule import EDGES
from graphmend.adapters.purify import MOST, Purify
from graphmend.cards import SourceCard
from graphmend.cards.edges import STEPS, edge_views, fit, fits_well, neighbourhood_features
from graphmend.graph.edge_flips import pair_of
from graphmend.lab.attacks import PRBCD
from graphmend.lab.attacks.pairs import Block, UndirectedGraph
from graphmend.lab.attacks.target import Target
from graphmend.outputs import class_scores

__all__ = ["Defence", "Evading", "Through"]

TEMPERATURE = 0.2  # of the straight-through step, in units of the fit, which goes from 0 to 3
SPARE = 0.005  # below the gate's lower limit, so that the attack that follows does not lift it again
TRIES = 3
LIMITS = {check.sign: check.limit for part in EDGES for check in part}  # the gate's own


class Defence:
    """The gate with its card, as an attacker uses it.

    Args:
        model: The attacked model.
        card: Its source card.
        x: The features, which no attacker here changes.
    """

    def __init__(self, model: nn.Module, card: SourceCard, x: Tensor) -> None:
        self.model, self.card, self.x = copy.deepcopy(model), card, x
        with torch.no_grad():
            hidden = x @ _first_map(self.model, x)
            unit, small = (rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12) for rows in (x, hidden))
            self._hidden, self._features = small @ small.t(), unit @ unit.t()
            self.narrow = neighbourhood_features(x)
            self.hidden = hidden

    def __call__(self, edge_index: Tensor, seed: int = 0) -> Adaptation:
        """What the gate does with the graph of these edges."""
        return Gate()(self.model, Data(x=self.x, edge_index=edge_index), card=self.card, seed=seed)

    def purified(self, edge_index: Tensor) -> Tensor:
        """What the model says if the purifier acts, whatever the gate thinks of it."""
        return Purify()(self.model, Data(x=self.x, edge_index=edge_index), card=self.card).logits

    def well_fitting(self, edge_index: Tensor) -> Tensor:
        """Which edges fit at least as well as the training graph's median edge."""
        fits = fit(edge_views(self.x, self.hidden, edge_index), self.card.edge_grid)
        return fits_well(fits, self.card.edge_middle)

    @torch.no_grad()
    def fits(self, pairs: Tensor, weight: Tensor) -> Tensor:
        """The fit of each pair of nodes in a graph in which they are edges with these weights."""
        first, second = pairs
        present = weight > 0
        around = self.narrow.clone()
        for source, target in (pairs[:, present], pairs[:, present].flip(0)):
            around.index_add_(0, target, weight[present].unsqueeze(1) * self.narrow[source])
        both, across, inside = around @ around.t(), around @ self.narrow.t(), self.narrow @ self.narrow.t()
        own, size = across.diagonal(), inside.diagonal()
        dot = both[first, second] - weight * (own[first] + own[second]) + weight.square() * inside[first, second]
        lengths = [
            (both.diagonal()[a] - 2 * weight * across[a, b] + weight.square() * size[b]).clamp(min=1e-12).sqrt()
            for a, b in ((first, second), (second, first))
        ]
        views = [self._hidden[first, second], self._features[first, second], dot / (lengths[0] * lengths[1])]
        return fit(torch.stack(views).mul(STEPS).round().div(STEPS), self.card.edge_grid)

    @torch.no_grad()
    def threshold(self, fits: Tensor, weight: Tensor) -> float:
        """The fit up to which a relaxed graph's edges are cut; minus infinity if none is in excess."""
        total = float(weight.sum())
        good = float(weight[fits_well(fits, self.card.edge_middle)].sum()) / total / self.card.edge_share
        mass = min(Purify().strength * max(0.0, 1 - good), MOST) * total
        if mass == 0:
            return -math.inf
        present = weight > 0
        ordered, order = fits[present].sort()
        up_to = weight[present][order].cumsum(0)
        place = int(torch.searchsorted(up_to, torch.tensor(mass, dtype=up_to.dtype)))
        return float(ordered[min(place, ordered.numel() - 1)])


@dataclass(frozen=True, eq=False)
class DefendedTarget(Target):
    """The frozen model behind the gate.

    Args:
        defence: The gate.
        temperature: Of the straight-through step.
        decisions: Whether the gate cut edges in the discrete graphs that were tried so far.
    """

    defence: Defence
    temperature: float = TEMPERATURE
    decisions: list[bool] = field(default_factory=lambda: [True])

    def gradient(self, block: Block, p: Tensor) -> Tensor:
        """The straight-through gradient of the loss for every ``p`` of the block."""
        weight = block.weight(p).requires_grad_()
        logits = class_scores(self.model(self.x, block.edge_index, self._kept(block, weight)))
        if not self.decisions[-1]:
            with torch.no_grad():
                bare = class_scores(self.model(self.x, block.edge_index, weight))
            logits = bare + logits - logits.detach()
        loss = self.loss(logits[self.nodes], self.labels[self.nodes])
        return block.gradient(torch.autograd.grad(loss, weight)[0])

    @torch.no_grad()
    def logits(self, block: Block, flips: Tensor) -> Tensor:
        """What the model says about the graph that the gate returns."""
        found = self.defence(block.graph.flipped(block.pairs[flips]).edge_index())
        assert found.verdict is not None
        self.decisions.append("purify" in found.verdict.menders)
        return class_scores(found.logits)

    def _kept(self, block: Block, weight: Tensor) -> Tensor:
        loops = block.graph.loops.numel()
        size = (weight.numel() - loops) // 2
        pairs, now = block.edge_index[:, :size], weight.detach()[:size]
        fits = self.defence.fits(pairs, now)
        threshold = self.defence.threshold(fits, now)
        soft = torch.sigmoid((fits - threshold) / self.temperature)
        hard = (fits > threshold).to(soft.dtype)
        ones = soft.new_ones(loops)
        soft, hard = (torch.cat([keep, keep, ones]) for keep in (soft, hard))
        return weight * soft + (weight * (hard - soft)).detach()


@dataclass(frozen=True, eq=False, kw_only=True)
class Through(PRBCD):
    """PR-BCD through purifier and gate.

    Args:
        defence: The gate.
        temperature: Of the straight-through step.
    """

    defence: Defence
    temperature: float = TEMPERATURE

    def flips(
        self, target: Target, data: Data, graph: UndirectedGraph, budget: int, generator: torch.Generator
    ) -> Tensor:
        """The pair numbers of at most ``budget`` edges to flip."""
        bare = (target.model, target.x, target.nodes, target.labels, target.loss)
        defended = DefendedTarget(*bare, self.defence, self.temperature)
        return super().flips(defended, data, graph, budget, generator)


@dataclass(frozen=True, eq=False, kw_only=True)
class Evading(PRBCD):
    """PR-BCD on the bare model after as many well-fitting edges were removed as silence the gate.

    Args:
        defence: The gate.
    """

    defence: Defence

    def flips(
        self, target: Target, data: Data, graph: UndirectedGraph, budget: int, generator: torch.Generator
    ) -> Tensor:
        """The pair numbers of at most ``budget`` edges to flip."""
        useful = self._useful(target, graph)
        limit = 1 - LIMITS["other_change"] * max(LIMITS["excess"], budget / graph.pairs.numel()) - SPARE
        number = min(budget, _fewest(lambda k: self._kept(graph, useful[:k]) < limit, useful.numel()))
        found: list[tuple[float, Tensor]] = []
        for _ in range(TRIES):
            sparser, rest = graph.flipped(useful[:number]), budget - number
            more = super().flips(target, data, sparser, rest, generator) if rest > 0 else useful[:0]
            attacked = sparser.flipped(more)
            result = self.defence(attacked.edge_index())
            wrong = class_scores(result.logits).argmax(1) != target.labels
            found.append((float(wrong[target.nodes].double().mean()), graph.changes_to(attacked)))
            assert result.verdict is not None
            if "purify" not in result.verdict.menders or number == budget:
                break
            number = min(budget, number + max(1, number // 2))
        return max(found, key=lambda pair: pair[0])[1]

    def _useful(self, target: Target, graph: UndirectedGraph) -> Tensor:
        """Pair numbers of the well-fitting edges, those first whose loss does the most harm to the model."""
        fits_well = self.defence.well_fitting(pair_of(graph.pairs, graph.num_nodes))
        block = Block(graph, graph.pairs[fits_well])
        gradient = target.gradient(block, target.x.new_zeros(block.pairs.numel()))
        return block.pairs[gradient.argsort(descending=True)]

    def _kept(self, graph: UndirectedGraph, removed: Tensor) -> float:
        """Well-fitting edges per node, relative to the training graph, after some edges were removed."""
        good = self.defence.well_fitting(graph.flipped(removed).edge_index()).sum()
        card = self.defence.card
        return float(good) / graph.num_nodes / card.edges_per_node / card.edge_share


def _fewest(enough: Callable[[int], bool], most: int) -> int:
    """The least number, up to a largest one, that is enough."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def _first_map(model: nn.Module, x: Tensor) -> Tensor:
    data = Data(x=x, edge_index=torch.zeros(2, 1, dtype=torch.long))
    with FrozenGNN(model, data) as frozen:
        return frozen.first_map.detach()
