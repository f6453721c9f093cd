"""A graph before the gate: how the model sees it, and how far that is from what the source card knows."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from graphmend.adapters.case import Case
from graphmend.cards.moments import Moments, moments
from graphmend.cards.prototypes import Mix
from graphmend.cards.rows import in_blocks, projected
from graphmend.cards.source_card import SourceCard
from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.low_rank import changed_features
from graphmend.model import FrozenGNN
from graphmend.outputs import Task, changed_rows, probabilities

__all__ = ["Examination", "Reading", "backing", "number_of_flips"]

LEAST_NOISE = 1e-6  # if halves of the training graph do not differ at all, so that no shift counts as none


@dataclass(frozen=True, eq=False)
class Reading:
    """How the model sees one version of the graph.

    Args:
        logits: The model's output.
        probability: Of each class at each node, or of the card's kinds of nodes that take the place of classes.
        moments: Of the first layer.
        nearest: The class whose centroid on the card is nearest to each node's embedding.
        first_mix: Which of the card's kinds of nodes the first layer shows.
        z_mix: Which of them the embedding shows.
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
    def agreement(self) -> float:
        """The share of nodes whose prediction is the class of the nearest centroid."""
        return float((self.nearest == self.classes).double().mean())


def number_of_flips(task: Task, before: Tensor, after: Tensor) -> int:
    """The number of rows with another prediction, from two outputs of the model; 0 where there are no predictions."""
    return int(changed_rows(task, before, after).sum()) if task.predicts else 0


def backing(before: Reading, after: Reading) -> float:
    """How the centroids take sides at the nodes that flip: 1 if all back the new class, -1 if all back the old one."""
    flips = before.classes != after.classes
    if not bool(flips.any()):
        return 0.0
    new, old = (after.nearest == after.classes)[flips], (after.nearest == before.classes)[flips]
    return float((new.double() - old.double()).mean())


class Examination:
    """A graph before the gate, with a source card."""

    def __init__(self, case: Case, card: SourceCard) -> None:
        self.case, self.card, self.data = case, card, case.data
        self.frozen: FrozenGNN = case.require_frozen()
        self.nodes = case.data.x.size(0)
        self.noise = max(card.noise_for(self.nodes), LEAST_NOISE)
        self.base = LinearMaps(case.data.x)  # its products are shared by everything that is tried out

    def with_features(self, x: Tensor) -> Examination:
        """The same graph with other features, to be judged like a graph of its own."""
        data = copy.copy(self.data)
        data.x = x
        return Examination(replace(self.case, data=data), self.card)

    def features(self) -> Tensor:
        """The features as they are, for the model to run on."""
        return changed_features(self.base)

    @torch.no_grad()
    def read(self, x: Tensor, data: Data | None = None) -> Reading:
        """The model's view of other features, or of another graph."""
        card, data = self.card, self.data if data is None else data
        seen = self.frozen.observe(data, x)
        nearest = card.nearest_class(seen.z)
        return Reading(
            seen.logits,
            self._probability(seen.logits, nearest),
            moments(seen.first),
            nearest,
            card.first_mix(seen.first),
            card.z_mix(seen.z),
        )

    def _probability(self, logits: Tensor, nearest: Tensor) -> Tensor:
        """Of each class at each node; if nodes have no predicted classes, of their nearest kinds of nodes."""
        if self.card.known_task.has_node_classes:
            return probabilities(logits, self.card.temperature)
        return F.one_hot(nearest, self.card.prior.numel()).to(logits.dtype)

    def first_layer(self, x: Tensor) -> Tensor:
        """The output of the first layer for other features of this graph."""
        return self.frozen.first_layer(x, self.data.edge_index)

    def shift(self, reading: Reading) -> float:
        """The distance of the first layer's moments from the card's."""
        return self.card.first.distance(reading.moments)

    @cached_property
    def rows_shift(self) -> float:
        """The distance of the moments of the feature rows from the card's, in units of noise; edges play no part."""
        noise = max(self.card.rows_noise_for(self.nodes), LEAST_NOISE)
        return self.card.rows.distance(moments(projected(self.data.x))) / noise

    @property
    def unseen_columns(self) -> float:
        """The share of the features' deviations that lies in columns which never varied in training."""
        constant = self.card.column_max == self.card.column_min
        if not bool(constant.any()):
            return 0.0
        usual = torch.where(constant, self.card.column_min, self.card.column_mean)  # a mean may be off by rounding
        total = torch.stack([(part - usual).abs().sum(0) for part in in_blocks(self.data.x)]).sum(0)
        return float(total[constant].sum() / total.sum().clamp(min=1e-30))
