"""The rule of the gate without a source card: timid, acts where the evidence is plain.

Only two kinds of trouble show in a model and a graph alone: rows that are set apart from all others by a gap, and, for
models with a batch normalisation behind the first layer, a shift from the statistics that it kept from training. Those
lag behind and were taken under dropout, so they are some way off on the training graph itself; whether to believe them
is judged by what aligning does, not by how far they are off.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphmend.adapters.align import running_moments
from graphmend.adapters.alignment import alignment
from graphmend.adapters.base import Change, Task
from graphmend.adapters.impute import outlying_rows, refilled
from graphmend.cards.observation import probabilities
from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.low_rank import changed_features
from graphmend.engine.report import Stopped
from graphmend.gate.case import Finding, Log

__all__ = ["without_card"]

FEWEST_FLIPS = 0.08
UNIFORM = 0.02  # by which class shares may move away from equal ones
WITHOUT_EDGES = 0.05  # by which the agreement with predictions without edges may fall
CONFIDENCE = 0.005  # by which the mean confidence may fall
EVENING = 0.8  # of the flips, that may only even out the predicted classes
STRENGTH = 0.5  # how far to go: half way gains most of what there is to gain and risks far less
MANY_FLIPS = 0.3  # beyond which no change of the class shares alone would explain them


@torch.no_grad()
def without_card(task: Task, log: Log) -> Finding:
    """Look at a graph with nothing but the model."""
    data, frozen = task.data, task.require_frozen()
    base = LinearMaps(data.x)
    logits = frozen(changed_features(base), data.edge_index)
    before = probabilities(logits)
    rows = outlying_rows(data.x)
    if log.at_least("rows set apart by a gap", float(rows.sum()), 1.0):
        x = task.within_limits(refilled(data.x, data.edge_index, rows))
        number = f"{int(rows.sum())} of {rows.numel()} feature rows are set apart from all others"
        if torch.equal(x, data.x):
            return Finding(f"left alone: {number}, but the limits let none of them change", logits=logits)
        change = Change(x, logits=frozen(x, data.edge_index))
        assert change.logits is not None
        flips = _flips(before, probabilities(change.logits))
        sentence = f"applied: {number} and were repaired from their neighbours"
        return Finding(sentence, ("impute",), change, flips=flips, logits=logits)
    try:
        target = running_moments(task)
    except Stopped:
        sentence = (
            "left alone: no feature row stands out, and without a source card nothing else can be told for a model "
            "without batch normalisation behind its first layer; make a card with graphmend.card(model, train_data)"
        )
        return Finding(sentence, logits=logits)
    aligned = alignment(lambda x: frozen.first_layer(x, data.edge_index), base, frozen.first_map, target)
    whole = task.within_limits(aligned.added_to(data.x))
    after = probabilities(frozen(whole, data.edge_index))
    against = _why_not(task, whole, before, after, log)
    x = task.within_limits(aligned.added_to(data.x, STRENGTH))
    change = Change(x, logits=frozen(x, data.edge_index))
    assert change.logits is not None
    flips = _flips(before, probabilities(change.logits))
    if against is not None:
        change.menders = ("align",)
        return Finding(f"left alone: {against}", (), Change(), change, flips, logits=logits)
    sentence = (
        "partly applied: aligned half way with the statistics of the model's batch normalisation, which changes "
        f"{100 * flips:.0f} % of the predictions"
    )
    return Finding(sentence, ("align",), change, flips=flips, partly=True, logits=logits)


def _why_not(task: Task, x: Tensor, before: Tensor, after: Tensor, log: Log) -> str | None:
    flips, classes = _flips(before, after), before.size(1)
    if not log.at_least("share of predictions flipped", flips, FEWEST_FLIPS):
        return f"aligning with the batch normalisation would change only {100 * flips:.1f} % of the predictions"
    if not log.at_most("share of predictions flipped", flips, 1 - 1 / classes):
        return f"aligning would change {100 * flips:.0f} % of the predictions, more than chance"
    farther = _from_uniform(after) - _from_uniform(before)
    if not log.at_most("distance of the class shares from equal ones, rise", farther, UNIFORM):
        return "the predicted classes would become less even"
    evening = -farther / flips
    if flips < MANY_FLIPS and not log.at_most("share of the flips that only even out the classes", evening, EVENING):
        return (
            "the change would mostly even out the predicted classes, as it does where only the class shares are others"
        )
    loss = float(before.amax(1).mean() - after.amax(1).mean())
    if not log.at_most("loss of confidence", loss, CONFIDENCE):
        return "the model would become less certain, as it does where only the class shares have changed"
    fall = _agreement_without_edges(task, task.data.x, before) - _agreement_without_edges(task, x, after)
    if not log.at_most("fall of the agreement with predictions without edges", fall, WITHOUT_EDGES):
        return "features and neighbourhoods would agree less than before"
    return None


def _flips(before: Tensor, after: Tensor) -> float:
    return float((before.argmax(1) != after.argmax(1)).double().mean())


def _from_uniform(probability: Tensor) -> float:
    classes = probability.size(1)
    shares = torch.bincount(probability.argmax(1), minlength=classes) / probability.size(0)
    return float((shares - 1 / classes).abs().sum() / 2)


def _agreement_without_edges(task: Task, x: Tensor, probability: Tensor) -> float:
    """The share of nodes whose prediction does not change when no edge counts."""
    nothing = torch.zeros(task.data.edge_index.size(1), dtype=x.dtype, device=x.device)
    alone = probabilities(task.require_frozen()(x, task.data.edge_index, nothing))
    return float((alone.argmax(1) == probability.argmax(1)).double().mean())
