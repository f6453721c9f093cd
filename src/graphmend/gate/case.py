"""What the gate knows about a graph: how the model sees it, before and after a change, and what it comes to."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.adapters.base import Change, Task
from graphmend.cards.moments import Moments, moments
from graphmend.cards.observation import observe, probabilities
from graphmend.cards.prototypes import Mix
from graphmend.cards.rows import in_blocks, projected
from graphmend.cards.source_card import SourceCard
from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.low_rank import changed_features
from graphmend.frozen import FrozenGNN
from graphmend.results.verdict import Evidence

__all__ = ["Case", "Finding", "Log", "Look", "Step", "backing", "flipped"]

LEAST_NOISE = 1e-6  # where halves of the training graph do not differ at all, so that no shift is no shift


@dataclass(frozen=True, eq=False)
class Look:
    """How the model sees one version of the graph.

    Args:
        logits: The model's output.
        probability: Of each class at each node.
        moments: Of the first layer, with a card.
        nearest: The class whose centroid on the card is nearest to each node's embedding, with a card.
        first_mix: Which of the card's kinds of nodes the first layer shows, with a card.
        z_mix: Which of them the embedding shows, with a card.
    """

    logits: Tensor
    probability: Tensor
    moments: Moments
    nearest: Tensor
    first_mix: Mix
    z_mix: Mix

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


def flipped(before: Tensor, after: Tensor) -> float:
    """The share of nodes with another prediction, from two outputs of the model."""
    return float((probabilities(before).argmax(1) != probabilities(after).argmax(1)).double().mean())


def backing(before: Look, after: Look) -> float:
    """How the centroids take sides at the nodes that flip: 1 if all back the new class, -1 if all back the old one."""
    flips = before.classes != after.classes
    if not bool(flips.any()):
        return 0.0
    new, old = (after.nearest == after.classes)[flips], (after.nearest == before.classes)[flips]
    return float((new.double() - old.double()).mean())


class Case:
    """A graph before the gate, with a source card."""

    def __init__(self, task: Task, card: SourceCard) -> None:
        self.task, self.card, self.data = task, card, task.data
        self.frozen: FrozenGNN = task.require_frozen()
        self.nodes = task.data.x.size(0)
        self.density = card.relative_density(task.data)
        self.noise = max(card.noise_for(self.nodes), LEAST_NOISE)
        self.rows_noise = max(card.rows_noise_for(self.nodes), LEAST_NOISE)
        self.is_limited = task.limits.projection(task.data.x) is not None
        self.base = LinearMaps(task.data.x)  # its products are shared by everything that is tried out

    def with_features(self, x: Tensor) -> Case:
        """The same graph with other features, to be judged like a graph of its own."""
        data = copy.copy(self.data)
        data.x = x
        return Case(replace(self.task, data=data), self.card)

    def features(self) -> Tensor:
        """The features as they are, for the model to run on."""
        return changed_features(self.base)

    @torch.no_grad()
    def look(self, x: Tensor, data: Data | None = None) -> Look:
        """The model's view of other features, or of another graph."""
        card, data = self.card, self.data if data is None else data
        seen = observe(self.frozen, data, x)
        return Look(
            seen.logits,
            probabilities(seen.logits, card.temperature),
            seen.moments,
            card.nearest_class(seen.z),
            card.first_mix(seen.first),
            card.z_mix(seen.z),
        )

    def first_layer(self, x: Tensor) -> Tensor:
        """The output of the first layer for other features of this graph."""
        return self.frozen.first_layer(x, self.data.edge_index)

    def shift(self, look: Look) -> float:
        """The distance of the first layer's moments from the card's."""
        return self.card.first.distance(look.moments)

    def rows_shift(self) -> float:
        """The distance of the moments of the feature rows from the card's; no edge enters."""
        return self.card.rows.distance(moments(projected(self.data.x)))

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


@dataclass(frozen=True, eq=False)
class Step:
    """What one mender would change, and whether that is done.

    Args:
        mender: Its name.
        reason: What was done and why, or why not; empty if there was nothing to look into.
        change: The change of the caller's graph, with all that was done before; its logits are the model's output then.
        is_made: Whether it is done.
    """

    mender: str
    reason: str = ""
    change: Change | None = None
    is_made: bool = False


@dataclass
class Finding:
    """What a rule came to.

    Args:
        sentence: The reason, for a person.
        menders: Names of the menders whose change is applied.
        change: The change to apply; nothing if there is none.
        proposal: A change that was considered and not applied; it names its menders.
        flips: Share of the predictions that the change flips; those that the proposal flips if there is no change.
        logits: The output of the model on the graph as it is.
    """

    sentence: str
    menders: tuple[str, ...] = ()
    change: Change = field(default_factory=Change)
    proposal: Change | None = None
    flips: float = 0.0
    logits: Tensor | None = None

    @classmethod
    def of(cls, steps: Sequence[Step], logits: Tensor) -> Self:
        """What steps that were looked into one after the other come to.

        Args:
            steps: The steps in their order; of those that were considered and not made, the last is the proposal.
            logits: The output of the model on the graph as it is.
        """
        made, proposal = [step for step in steps if step.is_made], None
        now, menders = logits if not made else _output(made[-1]), tuple(step.mender for step in made)
        for step in steps:  # a change that alters no prediction is no proposal
            if not step.is_made and step.change is not None and flipped(now, _output(step)) > 0:
                proposal = step
        if made:
            doubt = "" if proposal is None else f"; nothing else was done, because {proposal.reason}"
            sentence = f"applied: {'; then '.join(step.reason for step in made)}{doubt}"
        else:
            reasons = [step.reason for step in steps if step.reason]
            sentence = f"left alone: {reasons[-1] if proposal is None else proposal.reason}"
        considered = None
        if proposal is not None and proposal.change is not None:
            considered = replace(proposal.change, menders=(*menders, proposal.mender))
        flips = flipped(logits, now if made or proposal is None else _output(proposal))
        change = made[-1].change if made else None
        return cls(sentence, menders, change or Change(), considered, flips, logits)


def _output(step: Step) -> Tensor:
    assert step.change is not None and step.change.logits is not None
    return step.change.logits
