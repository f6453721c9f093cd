"""The rule of the gate with a source card, as tables of questions that are asked from top to bottom.

Rows come first, because broken rows disturb everything else; then edges, then a shift of the features, each judged
after the repair of the rows. A change is made only if there is *trouble* and the *remedy* brings the graph back to what
the model has seen. In all other cases labels have to decide. ``docs/no-harm.md`` explains the rule and says which data
its numbers were chosen on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from graphmend.adapters.broken_rows import MOST_ROWS
from graphmend.adapters.case import Case
from graphmend.adapters.gate.checks import Check, Log, at_least, at_most, first_doubt
from graphmend.adapters.gate.examination import Examination
from graphmend.adapters.gate.signs import AddedEdges, BrokenRows, ShiftedFeatures
from graphmend.cards.source_card import SourceCard
from graphmend.results.proposal import Proposal

__all__ = [
    "COLUMNS",
    "EDGES",
    "EDGES_WITHOUT_CLASSES",
    "FEATURES",
    "FEATURES_WITHOUT_CLASSES",
    "ROWS",
    "with_card",
]

Rule = tuple[tuple[Check, ...], tuple[Check, ...]]  #: the signs of trouble, and the signs that the remedy is right

_MIX = "other shares of the kinds of nodes that the model knows explain the shift, which is no fault"
_ROWS_SHIFT = "shift of the feature rows, in units of its noise"
_UNKNOWN = "aligning would not bring the nodes back to what the model has seen"
ROWS: Rule = (
    (
        at_least("number", 1, "broken feature rows"),
        at_least("changed", 1, "broken feature rows that may change", "the limits let no broken feature row change"),
        at_most(
            "share",
            MOST_ROWS,
            "share of broken feature rows",
            "{value:.0%} of the feature rows are broken, so nothing shows what a normal row looks like",
        ),
    ),
    (
        at_most(
            "rise_of_the_shift",
            1.0,
            "shift of the first layer after repairing rows, relative to before",
            "repairing the broken feature rows would move the first layer away from the training graph",
        ),
    ),
)
COLUMNS = (
    at_most(
        "unseen_columns",
        0.25,
        "share of the features in columns that never varied in training",
        "{value:.0%} of what the features say is in columns that never varied in training, so the card cannot judge it",
    ),
)
EXCESS, OTHER_CHANGE = 0.03, 0.25
EDGES: Rule = (
    (
        # this follows from the limits below, and saves comparing the ends of all edges
        at_least("density", (1 - OTHER_CHANGE * EXCESS) / (1 - EXCESS), "edges per node, relative to training"),
        at_most("rows_shift", 1.0, _ROWS_SHIFT),  # the nodes are the known ones
        at_least("excess", EXCESS, "share of the edges in excess"),
        at_least("number", 1, "edges that may be removed"),
    ),
    (
        at_most(
            "other_change",
            OTHER_CHANGE,
            "change of the number of well-fitting edges, for each edge in excess",
            "the edges have changed in other ways than by additions, which removing some would not undo",
        ),
        at_least(
            "confident_flips",
            0.35,
            "confident predictions that flip, for each edge removed and each in excess",
            "more edges fit badly than in training, but removing them would not undo an attack",
        ),
        at_least(
            "backing",
            0.45,
            "backing of the flips by the class centroids",
            "the embeddings do not back the predictions without the badly fitting edges",
        ),
    ),
)
FEATURES: Rule = (
    (
        at_least(
            "shift",
            4.0,
            "shift of the first layer, in units of its noise",
            "nothing was found; the first layer differs from training by {value:.1f} times the noise, "
            "and a fault makes it {limit:.0f} or more",
        ),
        at_least(
            "rows_shift",
            2.5,
            _ROWS_SHIFT,
            "the first layer has shifted, but the feature rows have not: other edges do that, which no change of "
            "features undoes",
        ),
    ),
    (
        at_least(
            "unexplained_first", 0.4, "share of the first layer's shift that no mix of known nodes explains", _MIX
        ),
        at_least("unexplained_z", 0.2, "share of the embedding's shift that no mix of known nodes explains", _MIX),
        at_most("still_unknown", 0.35, "share of nodes unlike any seen in training, after aligning", _UNKNOWN),
        at_most("more_unknown", 0.05, "rise of the share of nodes unlike any seen in training", _UNKNOWN),
        at_most(
            "flips_of_chance",
            1.0,
            "predictions that flip, relative to predictions at random",
            "aligning would change predictions at random",
        ),
        at_least(
            "rise_of_agreement",
            -0.04,
            "rise of the agreement with the class centroids",
            "embeddings and predictions would agree less than before",
        ),
        at_least(
            "backing",
            0.2,
            "backing of the flips by the class centroids",
            "the embeddings do not back the new predictions",
        ),
    ),
)

EDGES_WITHOUT_CLASSES: Rule = (
    EDGES[0],
    (
        EDGES[1][0],
        at_least(
            "predicted_classes",
            1.0,
            "predicted classes of nodes, by whose flips an attack is told",
            "more edges fit badly than in training, but whether somebody added them shows in flips of predicted "
            "classes, and the nodes have none",
        ),
    ),
)
FEATURES_WITHOUT_CLASSES: Rule = (
    FEATURES[0],
    (
        *FEATURES[1][:4],
        at_most(
            "more_unknown_z",
            0.05,
            "rise of the share of nodes whose embedding is unlike any seen in training",
            _UNKNOWN,
        ),
    ),
)
"""The same if nodes have no predicted classes; the kinds of nodes on the card take their place."""


def with_card(case: Case, card: SourceCard, log: Log) -> tuple[Sequence[Proposal], Tensor]:
    """Examine a graph with the card of its model: what each mender would do, and the output on the graph as it is."""
    exam = Examination(case, card)
    before = start = exam.read(exam.features())
    broken, x = BrokenRows(exam, before), None
    rows = _step("impute", ROWS, broken, log)
    if rows.is_made:
        x, before = broken.x, broken.after
        exam = exam.with_features(x)
    elif rows.sentence:
        return [rows], start.logits  # while rows are broken, nothing else can be judged
    unseen = first_doubt(COLUMNS, exam, log)
    if unseen is not None:
        return [rows, Proposal(sentence=unseen)], start.logits
    has_classes = card.known_task.has_node_classes
    edges = _step("purify", EDGES if has_classes else EDGES_WITHOUT_CLASSES, AddedEdges(exam, before, x), log)
    if edges.is_made:
        return [rows, edges], start.logits
    features = FEATURES if has_classes else FEATURES_WITHOUT_CLASSES
    return [rows, edges, _step("align", features, ShiftedFeatures(exam, before), log)], start.logits


def _step(mender: str, rule: Rule, signs: BrokenRows | AddedEdges | ShiftedFeatures, log: Log) -> Proposal:
    """Is there trouble, and is the remedy right?"""
    trouble, remedy = rule
    log.begin()
    nothing = first_doubt(trouble, signs, log)
    if nothing is not None:
        return Proposal(menders=(mender,), sentence=nothing)
    doubt = first_doubt(remedy, signs, log)
    sentence = signs.done if doubt is None else doubt
    return replace(signs.change, menders=(mender,), sentence=sentence, is_made=doubt is None)
