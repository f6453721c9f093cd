"""The signs that the rule with a source card asks about: of broken rows, of added edges and of shifted features.

Each object measures a sign on demand, works out its change when that is needed, and keeps both.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from graphmend.adapters.alignment import alignment
from graphmend.adapters.broken_rows import abnormal_rows
from graphmend.adapters.case import Case
from graphmend.adapters.gate.examination import Examination, Reading, backing
from graphmend.adapters.impute import refilled
from graphmend.adapters.purify import Excess, Purify, excess_of, worst_edges
from graphmend.graph.edits import without_edges
from graphmend.results.proposal import Proposal

__all__ = ["AddedEdges", "BrokenRows", "Repair", "ShiftedFeatures"]

SHIFTED = 5.0  # times the noise, from which (nearly) empty rows are worth filling
_TINY = 1e-12


class Repair:
    """Feature rows that are broken, and their repair from the neighbours.

    Args:
        case: The graph and its limits.
        rows: The broken rows as a mask.
    """

    def __init__(self, case: Case, rows: Tensor) -> None:
        self.case, self.rows = case, rows

    @property
    def number(self) -> int:
        """How many there are."""
        return int(self.rows.sum())

    @property
    def share(self) -> float:
        """Their share of all rows."""
        return float(self.rows.double().mean())

    @cached_property
    def x(self) -> Tensor:
        """The features with these rows repaired, within the caller's limits."""
        data = self.case.data
        return self.case.within_limits(refilled(data.x, data.edge_index, self.rows))

    @property
    def changed(self) -> int:
        """How many rows the repair changes."""
        return int((self.x != self.case.data.x).any(1).sum()) if 0 < self.share < 1 else self.number

    @property
    def done(self) -> str:
        """What was done, for a person."""
        rows = "row was repaired from its" if self.number == 1 else "rows were repaired from their"
        return f"{self.number} broken feature {rows} neighbours"


class BrokenRows(Repair):
    """Feature rows that look like nothing seen in training.

    Rows that are empty or nearly so mislead nobody: a model sees their neighbours anyway. They count only if there are
    so many of them that the first layer has shifted.

    Args:
        exam: The graph.
        before: How the model sees it.
    """

    def __init__(self, exam: Examination, before: Reading) -> None:
        self.exam, self.before = exam, before
        rows = exam.case.judged(abnormal_rows(exam.data.x, exam.card))
        if exam.shift(before) < SHIFTED * exam.noise and bool(rows.any()) and not bool(rows.all()):
            size: Tensor = torch.linalg.vector_norm(exam.data.x, dim=1)
            rows = rows & (size > size[~rows].median())
        super().__init__(exam.case, rows)

    @cached_property
    def after(self) -> Reading:
        """How the model sees the graph with these rows repaired."""
        return self.exam.read(self.x)

    @property
    def rise_of_the_shift(self) -> float:
        """The shift of the first layer after the repair, in units of the shift before or, if that is more, of noise.

        It is 0 if only the broken rows were so large that the shift was not a finite number.
        """
        shift, noise = self.exam.shift, self.exam.noise
        before, after = shift(self.before), shift(self.after)
        return after / max(before, noise) if math.isfinite(before) or not math.isfinite(after) else 0.0

    @property
    def change(self) -> Proposal:
        """The repair."""
        return Proposal(self.x, logits=self.after.logits)


class AddedEdges:
    """Edges beyond those that the training graph accounts for, and the cut of the worst of them.

    Args:
        exam: The graph.
        before: How the model sees it.
        x: Its features, if rows were repaired; the change has them, too.
    """

    def __init__(self, exam: Examination, before: Reading, x: Tensor | None) -> None:
        self.exam, self.before, self.x = exam, before, x

    @property
    def rows_shift(self) -> float:
        """The shift of the feature rows in units of their noise."""
        return self.exam.rows_shift

    @property
    def density(self) -> float:
        """Edges per node, relative to the training graph."""
        return self.exam.card.relative_density(self.exam.data)

    @cached_property
    def _excess(self) -> Excess:
        return excess_of(self.exam.case, self.exam.card)

    @property
    def excess(self) -> float:
        """The share of the edges that is in excess."""
        return self._excess.share

    @property
    def other_change(self) -> float:
        """By how much the number of well-fitting edges per node has changed, for one edge in excess."""
        return abs(1 - self._excess.kept) / max(self._excess.share, _TINY)

    @cached_property
    def removed(self) -> Tensor:
        """The positions of the worst edges."""
        return worst_edges(self._excess.fits, Purify().strength * self.excess, self.exam.case)

    @property
    def number(self) -> int:
        """How many of them may be cut."""
        return self.removed.numel()

    @cached_property
    def after(self) -> Reading:
        """How the model sees the graph without them."""
        keep = torch.ones(self.exam.data.edge_index.size(1), dtype=torch.bool, device=self.removed.device)
        keep[self.removed] = False
        return self.exam.read(self.exam.features(), without_edges(self.exam.data, keep))

    @property
    def predicted_classes(self) -> float:
        """Whether nodes have predicted classes, so that flips can reveal an attack: 1 or 0."""
        return float(self.exam.card.known_task.has_node_classes)

    @property
    def confident_flips(self) -> float:
        """The share of nodes in the more confident half that flip, relative to the shares of edges cut and in excess.

        An attack spends each edge where it turns a decision; random edges only turn decisions that were open anyway.
        """
        confidence: Tensor = self.before.probability.amax(1)
        flips = (self.before.classes != self.after.classes) & (confidence > confidence.median())
        share, cut = float(flips.double().mean()), float(self.number / self.exam.data.edge_index.size(1))
        return share / max(cut * self.excess, _TINY)

    @property
    def backing(self) -> float:
        """How the centroids take sides at the nodes that flip."""
        return backing(self.before, self.after)

    @property
    def done(self) -> str:
        """What was done, for a person."""
        share = f"{self.excess:.0%} of the edges are in excess of those in training"
        return f"{share}; the worst of them, {self.number}, were cut"

    @property
    def change(self) -> Proposal:
        """The cut."""
        return Proposal(self.x, self.removed, logits=self.after.logits)


class ShiftedFeatures:
    """A first layer that sees other features than in training, and the alignment of the features with it.

    Args:
        exam: The graph.
        before: How the model sees it.
    """

    def __init__(self, exam: Examination, before: Reading) -> None:
        self.exam, self.before = exam, before

    @property
    def shift(self) -> float:
        """The shift of the first layer in units of the noise."""
        return self.exam.shift(self.before) / self.exam.noise

    @property
    def rows_shift(self) -> float:
        """The shift of the feature rows in units of their noise."""
        return self.exam.rows_shift

    @property
    def unexplained_first(self) -> float:
        """The share of the first layer's shift that no mix of known nodes explains."""
        return self.before.first_mix.unexplained

    @property
    def unexplained_z(self) -> float:
        """The same of the embedding."""
        return self.before.z_mix.unexplained

    @cached_property
    def _aligned(self) -> tuple[Tensor, Reading]:
        exam, case = self.exam, self.exam.case
        aligned = alignment(exam.first_layer, exam.base, exam.frozen.first_map, exam.card.first)
        x = case.within_limits(aligned.added_to(exam.base.x))
        is_limited = case.limits.projection(exam.data.x) is not None
        return x, exam.read(x if is_limited else aligned.of(exam.base))

    @property
    def after(self) -> Reading:
        """How the model sees the aligned graph."""
        return self._aligned[1]

    @property
    def more_unknown_z(self) -> float:
        """By how much the share of nodes rises whose embedding is unlike any known one."""
        return self.after.z_mix.outside - self.before.z_mix.outside

    @property
    def still_unknown(self) -> float:
        """The share of nodes that are unlike any known one after the alignment."""
        return self.after.first_mix.outside

    @property
    def more_unknown(self) -> float:
        """By how much that share rises."""
        return self.still_unknown - self.before.first_mix.outside

    @property
    def flips_of_chance(self) -> float:
        """The share of the predictions that flip, as a share of what predictions at random would flip."""
        flips = float((self.before.classes != self.after.classes).double().mean())
        return flips / (1 - 1 / self.exam.card.prior.numel())

    @property
    def rise_of_agreement(self) -> float:
        """How much better the predictions agree with the nearest centroids."""
        return self.after.agreement - self.before.agreement

    @property
    def backing(self) -> float:
        """How the centroids take sides at the nodes that flip."""
        return backing(self.before, self.after)

    @property
    def done(self) -> str:
        """What was done, for a person."""
        times = f"{self.shift:.0f} times the noise of the training graph"
        return f"the first layer had shifted by {times} and was aligned with it"

    @property
    def change(self) -> Proposal:
        """The alignment."""
        return Proposal(self._aligned[0], logits=self.after.logits)
