"""Every sign that the gate's rule asks about, and what every mender would do: rules are then judged without a model.

For one graph, :func:`evidence` measures all signs, whether or not the rule would get that far, and runs each mender on
the graph as it is and on the graph with its broken rows repaired. :mod:`graphmend.lab.beyond.rules` asks the tables of
the rule about such numbers, with the gate's own limits or with others. Labels are read by the caller only, for the
score.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.adapters.base import Change, Task
from graphmend.adapters.broken_rows import outlying_rows
from graphmend.adapters.gate.blind_rule import aligned_halfway
from graphmend.adapters.gate.card_rule import COLUMNS, EDGES, FEATURES, ROWS, Rule
from graphmend.adapters.gate.case import Case, Look, backing
from graphmend.adapters.gate.checks import Check
from graphmend.adapters.gate.signs import AddedEdges, BrokenRows, ShiftedFeatures
from graphmend.adapters.impute import refilled
from graphmend.cards.rows import EMPTY_ROW, row_statistics
from graphmend.cards.source_card import SourceCard
from graphmend.engine.report import Stopped
from graphmend.graph.limits import Limits
from graphmend.model import FrozenGNN
from graphmend.results.history import History

__all__ = ["RULES", "evidence"]

Numbers = dict[str, float]
RULES: dict[str, Rule] = {"columns": (COLUMNS, ()), "rows": ROWS, "edges": EDGES, "features": FEATURES}


@torch.no_grad()
def evidence(model: nn.Module, data: Data, card: SourceCard, seed: int = 0) -> tuple[Numbers, dict[str, Tensor]]:
    """The numbers by name, and the model's output for each candidate.

    Args:
        model: The frozen model.
        data: The graph, complete.
        card: The model's source card.
        seed: Seed of everything random.
    """
    with FrozenGNN(model, data, seed=seed, taps=card.taps) as frozen:
        generator = torch.Generator(device=data.x.device).manual_seed(seed)
        task = Task(model, data, Limits(), seed, generator, History(data.x.device, None, False), "auto", card)
        task.frozen = frozen
        return _collected(task, card.to(data.x.device, data.x.dtype))


def _collected(task: Task, card: SourceCard) -> tuple[Numbers, dict[str, Tensor]]:
    x, edge_index = task.data.x, task.data.edge_index
    case = Case(task, card)
    before = case.look(case.features())
    outputs: dict[str, Tensor] = {"leave": before.logits}
    numbers: Numbers = {}
    broken, outlying = BrokenRows(case, before), outlying_rows(x)
    states = {"": (case, before)}
    numbers |= {"rows: number": broken.number, "rows: share": broken.share}
    if 0 < broken.share < 1:
        numbers |= _signs("rows", broken, "")
        outputs["rows"] = broken.after.logits
        assert broken.change.x is not None
        states["repaired "] = (case.with_features(broken.change.x), broken.after)
    if bool(outlying.any()):
        outputs["blind rows"] = case.look(refilled(x, edge_index, outlying)).logits
    for name, (graph, look) in states.items():
        edges, features = AddedEdges(graph, look, None), ShiftedFeatures(graph, look)
        numbers |= _signs("columns", graph, name) | _signs("edges", edges, name) | _signs("features", features, name)
        numbers |= _more_of_edges(name, look, edges) | _more_of_features(name, look, features)
        outputs[f"{name}purify"], outputs[f"{name}align"] = edges.after.logits, features.after.logits
        moved = features.change.x
        assert moved is not None
        outputs[f"{name}half align"] = graph.look((graph.data.x + moved) / 2).logits
    try:
        outputs["blind align"] = _logits(aligned_halfway(task))
    except Stopped:  # a model without batch normalisation
        numbers["blind align"] = 0.0
    more = {
        "outlying": outlying.double().mean(),
        "empty": (row_statistics(x)[:, 0] <= EMPTY_ROW).double().mean(),
        "nodes": case.nodes / card.nodes,
    }
    return numbers | {name: float(value) for name, value in more.items()}, outputs


def _more_of_edges(state: str, before: Look, edges: AddedEdges) -> Numbers:
    """What no rule asks about, but one might."""
    after, flips = edges.after, before.classes != edges.after.classes
    old, new = (look.probability.amax(1) for look in (before, after))
    some = bool(flips.any())
    numbers = {
        "flips": float(flips.double().mean()),
        "cut": edges.number / edges.case.data.edge_index.size(1),
        "confident after": float((new[flips] > new.median()).double().mean()) if some else 0.0,
        "rise of confidence": float((new - old)[flips].mean()) if some else 0.0,
        "rise of all confidence": float((new - old).mean()),
        "backing": backing(before, after),
        "rise of agreement": after.agreement - before.agreement,
        "shift after": edges.case.shift(after) / edges.case.noise,
    }
    return {f"{state}edges: {name}": value for name, value in numbers.items()}


def _more_of_features(state: str, before: Look, features: ShiftedFeatures) -> Numbers:
    numbers = {
        "outside first": before.first_mix.outside,
        "outside z": before.z_mix.outside,
        "outside first after": features.after.first_mix.outside,
        "outside z after": features.after.z_mix.outside,
        "unexplained z after": features.after.z_mix.unexplained,
        "shift after": features.case.shift(features.after) / features.case.noise,
    }
    return {f"{state}features: {name}": value for name, value in numbers.items()}


def _logits(change: Change) -> Tensor:
    assert change.logits is not None
    return change.logits


def _signs(rule: str, signs: object, state: str) -> Numbers:
    return {f"{state}{rule}: {check.sign}": float(getattr(signs, check.sign)) for check in _checks(RULES[rule])}


def _checks(rule: Rule) -> Iterable[Check]:
    return (check for part in rule for check in part)


def numbers_of(values: dict[str, Any]) -> Numbers:
    """Rounded for storing."""
    return {name: float(f"{value:.5g}") for name, value in values.items()}
