"""The rule of the gate with a source card.

First the kind of trouble is found: edges in excess, abnormal rows, a shift of the first layer beyond its noise. Each
has its own mender and its own checks, and identity is always a candidate. ``docs/no-harm.md`` explains the rule and
says where its numbers come from.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from graphmend.adapters.alignment import alignment
from graphmend.adapters.base import Change, Task
from graphmend.adapters.impute import MOST_ROWS, abnormal_rows, refilled
from graphmend.adapters.purify import Purify, excess_of, worst_edges
from graphmend.cards.observation import probabilities
from graphmend.cards.source_card import SourceCard
from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.low_rank import changed_features
from graphmend.gate.case import Case, Finding, Log, Look, backing, expected_change, flipped
from graphmend.graph.edits import without_edges

__all__ = ["with_card"]

UNSEEN = 0.25  # of what the features say, in columns that never varied in training
# edges in excess
EXCESS = 0.03  # of all edges
LOST = 0.5  # of the excess, that well-fitting edges may be missing: edges were added, not features changed
KEPT = 1.05  # well-fitting edges per node, relative to the training graph
NODES = 0.1  # by which the number of nodes may differ: edges are counted against the very same graph
FEW_ROWS = 0.01  # abnormal rows, beyond which rows and not edges are the trouble
CONFIDENT = 0.1  # of the flips, at nodes that were more confident than half of all
LESS_CONFIDENT = 0.07  # that is enough where each cut edge has a large effect
FLIPS_PER_CUT = 0.65  # flipped nodes per cut edge, both as shares
# abnormal rows
ROWS_SHIFT = 2.0  # times the noise
ROWS_UNDO = 0.8  # of the shift that may be left after imputing
# shift of the first layer
SHIFT = 3.0  # times the noise
DENSITY = (0.6, 1.7)  # edges per node, relative to the training graph: beyond, degrees and not features have shifted
EXPLAINED = 0.4  # of the shift, by other class shares
MOSTLY_EXPLAINED = 0.6  # beyond which nothing outweighs it
CLEARER = 0.03  # by which the agreement with the centroids must rise to outweigh a doubt
FEWEST_FLIPS = 0.02
PRIOR = 0.02  # by which class shares may move away from the training graph's
FAINT = 0.05  # explanation by class shares up to which they may move away at all
AGREEMENT = 0.04  # by which the agreement with the centroids may fall
SECOND_OPINION = 0.98  # of the nodes on which alignment by class must agree if it falls
BACKING = 0.2  # of the centroids for the flips
FAINT_BACKING = 0.05  # that is enough where the agreement with the centroids rises clearly
HOMOPHILY = 0.55  # of the training graph's, below which edges no longer mean what they meant
OPINIONS = 3  # rounds of alignment by class

REPAIRED = "abnormal feature rows were repaired from their neighbours"


def with_card(task: Task, card: SourceCard, log: Log) -> Finding:
    """Look at a graph with the card of its model."""
    case = Case(task, card)
    before = case.look(case.features())
    unseen = case.unseen_mass()
    if not log.at_most("share of the features in columns unseen in training", unseen, UNSEEN):
        reason = f"{100 * unseen:.0f} % of what the features say is in columns the model has never seen vary"
        return Finding(f"left alone: {reason}", logits=before.logits)
    rows = abnormal_rows(task.data.x, card)
    share = float(rows.double().mean())
    edges = _excess_edges(case, before, log) if share < FEW_ROWS else None
    if edges is not None and edges.menders:
        return edges
    repaired = _abnormal_rows(case, before, rows, share, log)
    found = _shift(case, before, repaired, log)
    return edges if edges is not None and not found.menders and found.proposal is None else found


def _excess_edges(case: Case, before: Look, log: Log) -> Finding | None:
    """Cut the worst-fitting edges if there are too many of them and their effect is that of an attack."""
    nodes = abs(case.nodes / max(1, case.card.nodes) - 1)
    if not log.at_most("difference in the number of nodes from the training graph", nodes, NODES):
        return None
    least = (1 - LOST * EXCESS) / (1 - EXCESS)  # what the two limits below come to, before all edges are compared
    if not log.at_least("edges per node, relative to training, for edges that were added", case.density, least):
        return None
    excess = excess_of(case.task, case.card)
    many = log.at_least("share of edges in excess", excess.share, EXCESS)
    added = log.at_least("well-fitting edges per node, relative to training", excess.kept, 1 - LOST * excess.share)
    same = log.at_most("well-fitting edges per node, relative to training", excess.kept, KEPT)
    if not (many and added and same):
        return None
    strength = Purify().strength
    removed = worst_edges(excess.fits, strength * excess.share, case.task)
    if removed.numel() == 0:  # the caller does not allow it
        return None
    keep = torch.ones(case.data.edge_index.size(1), dtype=torch.bool, device=removed.device)
    keep[removed] = False
    after = case.look(case.features(), without_edges(case.data, keep))
    flips = before.classes != after.classes
    share = float(flips.double().mean())
    confidence = before.probability.amax(1)
    confident = float((confidence[flips] > confidence.median()).double().mean()) if bool(flips.any()) else 0.0
    per_cut = share / (removed.numel() / excess.fits.numel())
    change = Change(removed=removed, logits=after.logits)
    expected = expected_change(before, after)
    number = f"{100 * excess.share:.0f} % of the edges are in excess of those the training graph accounts for"
    strong = log.at_least("share of nodes flipped per share of edges cut", per_cut, FLIPS_PER_CUT)
    if log.at_least("confident nodes among the flips", confident, LESS_CONFIDENT if strong else CONFIDENT):
        sentence = f"applied: {number}; the worst of them were cut, which changes predictions as undoing an attack does"
        return Finding(sentence, ("purify",), change, None, share, expected, logits=before.logits)
    sentence = f"left alone: {number}, but cutting them would not have the effect of undoing an attack"
    change.menders = ("purify",)
    return Finding(sentence, (), Change(), change, share, logits=before.logits)


def _abnormal_rows(case: Case, before: Look, rows: Tensor, share: float, log: Log) -> tuple[LinearMaps, Look] | None:
    """Fill abnormal rows if that undoes part of the shift."""
    some = log.at_least("abnormal rows", float(rows.sum()), 1.0)
    if not (some and log.at_most("share of abnormal rows", share, MOST_ROWS)):
        return None
    shift = case.shift(before)
    if not log.at_least("shift of the first layer", shift, ROWS_SHIFT * case.noise):
        return None
    maps = LinearMaps(case.task.within_limits(refilled(case.data.x, case.data.edge_index, rows)))
    after = case.look(changed_features(maps))
    undone = log.at_most("shift of the first layer after imputing", case.shift(after), ROWS_UNDO * shift)
    return (maps, after) if undone else None


def _shift(case: Case, before: Look, repaired: tuple[LinearMaps, Look] | None, log: Log) -> Finding:
    """Align the first layer if its shift is beyond the noise and everything else speaks for it."""
    maps, start = (case.base, before) if repaired is None else repaired

    def stay(reason: str, proposal: Change | None = None, flips: float = 0.0) -> Finding:
        """Leave it at what imputing has done, if anything."""
        if repaired is None:
            return Finding(f"left alone: {reason}", (), Change(), proposal, flips, logits=before.logits)
        sentence = f"applied: {REPAIRED}" + (f"; not aligned: {reason}" if proposal is not None else "")
        change, own = Change(maps.x, logits=start.logits), flipped(before, start)
        expected, partly = expected_change(before, start), proposal is not None
        return Finding(sentence, ("impute",), change, proposal, own, expected, partly, before.logits)

    shift, when = case.shift(start), "" if repaired is None else " after imputing"
    if not log.at_least(f"shift of the first layer{when}, for aligning", shift, SHIFT * case.noise):
        limit = f"within {SHIFT:.0f} times the noise of the training graph, {case.noise:.2f}"
        return stay(f"the shift of the first layer, {shift:.2f}, is {limit}")
    low, high = DENSITY
    alike = log.at_least("edges per node, relative to training", case.density, low)
    if not (alike and log.at_most("edges per node, relative to training", case.density, high)):
        number = f"the graph has {case.density:.1f} times as many edges per node as the training graph"
        return stay(f"{number}, so that a shift of the first layer says little about the features")
    weight = case.frozen.first_map
    aligned = alignment(case.first_layer, maps, weight, case.card.first)
    x = case.task.within_limits(aligned.added_to(maps.x))
    after = case.look(x if case.is_limited else aligned.of(maps))
    menders = ("align",) if repaired is None else ("impute", "align")
    change = Change(x, logits=after.logits, menders=menders)
    flips = flipped(before, after)
    against = _why_not(case, before, start, after, lambda shares: _second_opinion(case, maps, weight, shares), log)
    if against is not None:
        return stay(against, change, flips)
    times = f"{shift / case.noise:.0f} times the noise of the training graph"
    sentence = f"the first layer had shifted by {shift:.2f}, {times}, and was aligned with it"
    sentence = f"applied: {sentence}" if repaired is None else f"applied: {REPAIRED}; then {sentence}"
    return Finding(sentence, menders, change, None, flips, expected_change(before, after), logits=before.logits)


def _why_not(
    case: Case, before: Look, start: Look, after: Look, second_opinion: Callable[[Tensor], Tensor], log: Log
) -> str | None:
    """What speaks against an alignment, in words."""
    explained = case.explained_by_classes(start)
    rise = after.agreement - start.agreement
    doubtful = not log.at_most("share of the shift explained by class shares", explained, EXPLAINED)
    outweighed = explained <= MOSTLY_EXPLAINED and rise >= CLEARER
    if doubtful and not outweighed:
        return f"{100 * explained:.0f} % of the shift is explained by other class shares, which are no error"
    flips, classes = flipped(before, after), case.card.prior.numel()
    if not log.at_least("share of predictions flipped", flips, FEWEST_FLIPS):
        return f"aligning would change only {100 * flips:.1f} % of the predictions"
    if not log.at_most("share of predictions flipped", flips, 1 - 1 / classes):
        return f"aligning would change {100 * flips:.0f} % of the predictions, more than chance"
    farther = case.distance_to_prior(after) - case.distance_to_prior(start)
    if not log.at_most("distance of the class shares from the training graph's, rise", farther, PRIOR):
        return "the predicted class shares would move away from those of the training graph"
    if farther > 0 and not log.at_most("share of the shift explained by class shares", explained, FAINT):
        return "the predicted class shares would move away from those of the training graph"
    if not log.at_least("rise of the agreement with the class centroids", rise, -AGREEMENT):
        return "embeddings and predictions would agree less than before"
    if rise < 0:
        other = second_opinion(start.shares)
        same = float((other == after.classes).double().mean())
        if not log.at_least("agreement with an alignment by class", same, SECOND_OPINION):
            return "an alignment class by class comes to other predictions"
    needed = FAINT_BACKING if rise >= CLEARER else BACKING
    if not log.at_least("backing of the flips by the class centroids", backing(before, after), needed):
        return "the embeddings do not back the new predictions"
    same_class = case.homophily(after) / max(case.card.homophily, 1e-12)
    if not log.at_least("edges within a predicted class, relative to the training graph", same_class, HOMOPHILY):
        return "edges would connect other classes than in training, which no change of the features can undo"
    return None


def _second_opinion(case: Case, maps: LinearMaps, weight: Tensor, shares: Tensor) -> Tensor:
    """The predictions after an alignment with the moments that the card expects for the predicted class shares."""
    probability = shares.unsqueeze(0)
    for _ in range(OPINIONS):
        other = alignment(case.first_layer, maps, weight, case.card.expected(probability.mean(0)))
        logits = case.frozen(other.of(maps), case.data.edge_index)
        probability = probabilities(logits, case.card.temperature)
    return probability.argmax(1)
