"""The rule of the gate with a source card.

Rows come first, because broken rows disturb everything else; then edges, then a shift of the first layer, each judged
on what the repair of the rows has left. A change is made only if the card says that something is broken *and* that the
change brings the graph back to what the model has seen. Everything else is a question for labels. ``docs/no-harm.md``
explains the rule and says what its numbers were chosen on.
"""

from __future__ import annotations

import torch

from graphmend.adapters.alignment import alignment
from graphmend.adapters.base import Change, Task
from graphmend.adapters.impute import MOST_ROWS, abnormal_rows, refilled
from graphmend.adapters.purify import Purify, excess_of, worst_edges
from graphmend.cards.source_card import SourceCard
from graphmend.gate.case import Case, Finding, Log, Look, Step, backing, flipped
from graphmend.graph.edits import without_edges

__all__ = ["with_card"]

UNSEEN = 0.25  # of what the features say, in columns that never varied in training
# edges in excess
KNOWN_ROWS = 1.0  # times the noise of the feature rows, within which the nodes are the ones that the model knows
EXCESS = 0.03  # of all edges
LOST = 0.5  # of the excess, that well-fitting edges may be missing: edges were added, not features changed
CONFIDENT = 0.1  # of the flips, at nodes that were more confident than half of all
# shift of the first layer
SHIFT = 3.0  # times the noise
UNEXPLAINED_FIRST = 0.4  # of the shift, by any mix of the kinds of nodes that the model has seen
UNEXPLAINED_Z = 0.3
FEWEST_FLIPS = 0.02
PRIOR = 0.02  # by which class shares may move away from the training graph's
AGREEMENT = 0.04  # by which the agreement with the centroids may fall
BACKING = 0.05  # of the centroids for the flips


def with_card(task: Task, card: SourceCard, log: Log) -> Finding:
    """Look at a graph with the card of its model."""
    case = Case(task, card)
    before = case.look(case.features())
    unseen = case.unseen_mass()
    if not log.at_most("share of the features in columns unseen in training", unseen, UNSEEN):
        reason = f"{100 * unseen:.0f} % of what the features say is in columns the model has never seen vary"
        return Finding.of([Step("", reason)], before.logits)
    rows, repaired = _repaired_rows(case, before, log)
    done = Change()
    if rows.is_made and rows.change is not None and rows.change.x is not None:
        done, case = rows.change, case.with_features(rows.change.x)
    edges = _cut_edges(case, repaired, done, log)
    shift = Step("align") if edges.is_made else _aligned(case, repaired, log)
    return Finding.of([rows, edges, shift], before.logits)


def _repaired_rows(case: Case, before: Look, log: Log) -> tuple[Step, Look]:
    """Rows that look like nothing seen in training get what their neighbours have, if that adds no shift."""
    rows = case.task.judged(abnormal_rows(case.data.x, case.card))
    number, share = int(rows.sum()), float(rows.double().mean())
    if not log.at_least("abnormal rows", number, 1.0):
        return Step("impute"), before
    if not log.at_most("share of abnormal rows", share, MOST_ROWS):
        reason = f"{100 * share:.0f} % of the feature rows are abnormal, so that none says what is normal"
        return Step("impute", reason), before
    x = case.task.within_limits(refilled(case.data.x, case.data.edge_index, rows))
    after = case.look(x)
    change, limit = Change(x, logits=after.logits), max(case.shift(before), case.noise)
    if log.at_most("shift of the first layer after repairing rows", case.shift(after), limit):
        return Step(
            "impute", f"{number} abnormal feature rows were repaired from their neighbours", change, True
        ), after
    return Step("impute", f"repairing {number} abnormal feature rows would shift the first layer", change), before


def _cut_edges(case: Case, before: Look, done: Change, log: Log) -> Step:
    """The worst-fitting edges are cut if there are more than the card accounts for, and their effect is an attack's."""
    known = log.at_most("shift of the feature rows", case.rows_shift(), KNOWN_ROWS * case.rows_noise)
    least = (1 - LOST * EXCESS) / (1 - EXCESS)  # what the limits below come to, before all edges are compared
    if not (known and log.at_least("edges per node, relative to training", case.density, least)):
        return Step("purify")
    excess = excess_of(case.task, case.card)
    many = log.at_least("share of edges in excess", excess.share, EXCESS)
    if not (many and log.at_least("well-fitting edges per node", excess.kept, 1 - LOST * excess.share)):
        return Step("purify")
    removed = worst_edges(excess.fits, Purify().strength * excess.share, case.task)
    if removed.numel() == 0:  # the caller does not allow it
        return Step("purify")
    keep = torch.ones(case.data.edge_index.size(1), dtype=torch.bool, device=removed.device)
    keep[removed] = False
    after = case.look(case.features(), without_edges(case.data, keep))
    flips = before.classes != after.classes
    confidence = before.probability.amax(1)
    confident = float((confidence[flips] > confidence.median()).double().mean()) if bool(flips.any()) else 0.0
    number = f"{100 * excess.share:.0f} % of the edges are in excess of those the training graph accounts for"
    change = Change(done.x, removed, logits=after.logits)
    if log.at_least("confident nodes among the flips", confident, CONFIDENT):
        why = f"{number}; the worst of them were cut, which changes predictions as undoing an attack does"
        return Step("purify", why, change, True)
    return Step("purify", f"{number}, but cutting them would not have the effect of undoing an attack", change)


def _aligned(case: Case, before: Look, log: Log) -> Step:
    """The first layer is aligned if no mix of known nodes explains its shift and aligning brings the nodes back."""
    shift, noise = case.shift(before), case.noise
    if not log.at_least("shift of the first layer", shift, SHIFT * noise):
        limit = f"within {SHIFT:.0f} times the noise of the training graph, {noise:.2f}"
        return Step("align", f"the shift of the first layer, {shift:.2f}, is {limit}")
    aligned = alignment(case.first_layer, case.base, case.frozen.first_map, case.card.first)
    x = case.task.within_limits(aligned.added_to(case.base.x))
    after = case.look(x if case.is_limited else aligned.of(case.base))
    change = Change(x, logits=after.logits)
    against = _against(case, before, after, log)
    if against is not None:
        return Step("align", against, change)
    times = f"{shift / noise:.0f} times the noise of the training graph"
    reason = f"the first layer had shifted by {shift:.2f}, {times}, and was aligned with it"
    return Step("align", reason, change, True)


def _against(case: Case, before: Look, after: Look, log: Log) -> str | None:
    """What speaks against an alignment, in words."""
    first, z = before.first_mix, before.z_mix
    mixed = "other shares of the kinds of nodes that the model knows explain the shift, which is no error"
    if not log.at_least("share of the first layer's shift that no mix explains", first.unexplained, UNEXPLAINED_FIRST):
        return mixed
    if not log.at_least("share of the embedding's shift that no mix explains", z.unexplained, UNEXPLAINED_Z):
        return mixed
    if not log.at_most("share of nodes unlike any known one, after", after.first_mix.outside, first.outside):
        return "aligning would not bring the nodes back to what the model has seen"
    flips = flipped(before.logits, after.logits)
    if not log.at_least("share of predictions flipped", flips, FEWEST_FLIPS):
        return f"aligning would change only {100 * flips:.1f} % of the predictions"
    if not log.at_most("share of predictions flipped", flips, 1 - 1 / case.card.prior.numel()):
        return f"aligning would change {100 * flips:.0f} % of the predictions, more than chance"
    farther = case.distance_to_prior(after) - case.distance_to_prior(before)
    if not log.at_most("distance of the class shares from the training graph's, rise", farther, PRIOR):
        return "the predicted class shares would move away from those of the training graph"
    rise = after.agreement - before.agreement
    if not log.at_least("rise of the agreement with the class centroids", rise, -AGREEMENT):
        return "embeddings and predictions would agree less than before"
    if not log.at_least("backing of the flips by the class centroids", backing(before, after), BACKING):
        return "the embeddings do not back the new predictions"
    return None
