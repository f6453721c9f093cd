"""What the gate knows about a graph: how the model sees it, before and after a change."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.adapters.base import Change, Task
from graphmend.cards.moments import Moments
from graphmend.cards.observation import observe, probabilities
from graphmend.cards.rows import in_blocks
from graphmend.cards.source_card import SourceCard
from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.low_rank import changed_features
from graphmend.frozen import FrozenGNN
from graphmend.results.verdict import Evidence

__all__ = ["Case", "Finding", "Log", "Look", "backing", "expected_change", "flipped"]

LEAST_NOISE = 1e-6  # where halves of the training graph do not differ at all, so that no shift is no shift


@dataclass(frozen=True, eq=False)
class Look:
    """How the model sees one version of the graph.

    Args:
        moments: Of the first layer.
        probability: Of each class at each node.
        nearest: The class whose centroid on the source card is nearest to each node's embedding.
        logits: The model's output.
    """

    moments: Moments
    probability: Tensor
    nearest: Tensor
    logits: Tensor

    @property
    def classes(self) -> Tensor:
        """The predicted class of each node."""
        return self.probability.argmax(1)

    @property
    def shares(self) -> Tensor:
        """The mean prediction."""
        return self.probability.mean(0)

    @property
    def agreement(self) -> float:
        """The share of nodes whose prediction is the class of the nearest centroid."""
        return float((self.nearest == self.classes).double().mean())


def flipped(before: Look, after: Look) -> float:
    """The share of nodes with another prediction."""
    return float((before.classes != after.classes).double().mean())


def backing(before: Look, after: Look) -> float:
    """How the centroids take sides at the nodes that flip: 1 if all back the new class, -1 if all back the old one."""
    flips = before.classes != after.classes
    if not bool(flips.any()):
        return 0.0
    new, old = (after.nearest == after.classes)[flips], (after.nearest == before.classes)[flips]
    return float((new.double() - old.double()).mean())


def expected_change(before: Look, after: Look) -> float:
    """The expected change of the accuracy in points: the share of flips times their backing, if that is positive."""
    return 100 * flipped(before, after) * max(0.0, backing(before, after))


class Case:
    """A graph before the gate, with a source card."""

    def __init__(self, task: Task, card: SourceCard) -> None:
        self.task, self.card, self.data = task, card, task.data
        self.frozen: FrozenGNN = task.require_frozen()
        self.nodes = task.data.x.size(0)
        self.density = card.relative_density(task.data)
        self.noise = max(card.noise_for(self.nodes), LEAST_NOISE)
        self.is_limited = task.limits.projection(task.data.x) is not None
        self.base = LinearMaps(task.data.x)  # its products are shared by everything that is tried out

    def features(self) -> Tensor:
        """The features as they are, for the model to run on."""
        return changed_features(self.base)

    @torch.no_grad()
    def look(self, x: Tensor, data: Data | None = None) -> Look:
        """The model's view of other features, or of another graph."""
        data = self.data if data is None else data
        seen = observe(self.frozen, data, x)
        probability = probabilities(seen.logits, self.card.temperature)
        return Look(seen.moments, probability, self.card.nearest_class(seen.z), seen.logits)

    def first_layer(self, x: Tensor) -> Tensor:
        """The output of the first layer for other features of this graph."""
        return self.frozen.first_layer(x, self.data.edge_index)

    def shift(self, look: Look) -> float:
        """The distance of the first layer's moments from the card's."""
        return self.card.first.distance(look.moments)

    def explained_by_classes(self, look: Look) -> float:
        r"""The share :math:`1 - \delta_\pi / \delta` of the shift that other class shares alone would explain."""
        shift = self.shift(look)
        return 1 - self.card.expected(look.shares).distance(look.moments) / max(shift, 1e-12)

    def distance_to_prior(self, look: Look) -> float:
        """The total variation between the predicted class shares and the training graph's."""
        return float((look.shares - self.card.prior).abs().sum() / 2)

    def homophily(self, look: Look) -> float:
        """The share of edges within a predicted class."""
        source, target = look.classes[self.data.edge_index]
        return float((source == target).double().mean())

    def unseen_mass(self) -> float:
        """The share of what the features say that is in columns which never varied in training."""
        constant = self.card.column_max == self.card.column_min
        if not bool(constant.any()):
            return 0.0
        usual = torch.where(constant, self.card.column_min, self.card.column_mean)  # a mean may be off by rounding
        total = torch.stack([(part - usual).abs().sum(0) for part in in_blocks(self.data.x)]).sum(0)
        return float(total[constant].sum() / total.sum().clamp(min=1e-30))


class Log:
    """Collects the evidence in the order in which it was looked at."""

    def __init__(self) -> None:
        self.items: list[Evidence] = []

    def at_least(self, name: str, value: float, threshold: float) -> bool:
        """Note a number that has to be large."""
        self.items.append(Evidence(name, value, threshold, above=True))
        return self.items[-1].holds

    def at_most(self, name: str, value: float, threshold: float) -> bool:
        """Note a number that has to be small."""
        self.items.append(Evidence(name, value, threshold, above=False))
        return self.items[-1].holds


@dataclass
class Finding:
    """What a rule came to.

    Args:
        sentence: The reason, for a person.
        menders: Names of the menders whose change is applied.
        change: The change to apply; nothing if there is none.
        proposal: A change that was considered and not applied; it names its menders.
        flips: Share of the predictions that the change, or the proposal, flips.
        expected: Expected change of the accuracy in points.
        partly: Whether a further change was considered and not applied.
        logits: The output of the model on the graph as it is.
    """

    sentence: str
    menders: tuple[str, ...] = ()
    change: Change = field(default_factory=Change)
    proposal: Change | None = None
    flips: float = 0.0
    expected: float = 0.0
    partly: bool = False
    logits: Tensor | None = None
