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

from graphmend.adapters.broken_rows import outlying_rows
from graphmend.adapters.case import Case, Needs, prepare
from graphmend.adapters.gate import Gate
from graphmend.adapters.gate.blind_rule import aligned_halfway
from graphmend.adapters.gate.card_rule import COLUMNS, EDGES, FEATURES, ROWS, Rule
from graphmend.adapters.gate.checks import Check
from graphmend.adapters.gate.examination import Examination, Reading, backing
from graphmend.adapters.gate.signs import AddedEdges, BrokenRows, ShiftedFeatures
from graphmend.adapters.impute import refilled
from graphmend.cards.rows import EMPTY_ROW, row_statistics
from graphmend.cards.source_card import SourceCard
from graphmend.engine.report import Stopped
from graphmend.results.proposal import Proposal

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
    with prepare(model, data, Needs.of(Gate()), seed=seed, card=card) as case:
        return _collected(case, card.to(data.x.device, data.x.dtype))


def _collected(case: Case, card: SourceCard) -> tuple[Numbers, dict[str, Tensor]]:
    x, edge_index = case.data.x, case.data.edge_index
    exam = Examination(case, card)
    before = exam.read(exam.features())
    outputs: dict[str, Tensor] = {"leave": before.logits}
    numbers: Numbers = {}
    broken, outlying = BrokenRows(exam, before), outlying_rows(x)
    states = {"": (exam, before)}
    numbers |= {"rows: number": broken.number, "rows: share": broken.share}
    if 0 < broken.share < 1:
        numbers |= _signs("rows", broken, "")
        outputs["rows"] = broken.after.logits
        assert broken.change.x is not None
        states["repaired "] = (exam.with_features(broken.change.x), broken.after)
    if bool(outlying.any()):
        outputs["blind rows"] = exam.read(refilled(x, edge_index, outlying)).logits
    for name, (graph, reading) in states.items():
        edges, features = AddedEdges(graph, reading, None), ShiftedFeatures(graph, reading)
        numbers |= _signs("columns", graph, name) | _signs("edges", edges, name) | _signs("features", features, name)
        numbers |= _more_of_edges(name, reading, edges) | _more_of_features(name, reading, features)
        outputs[f"{name}purify"], outputs[f"{name}align"] = edges.after.logits, features.after.logits
        moved = features.change.x
        assert moved is not None
        outputs[f"{name}half align"] = graph.read((graph.data.x + moved) / 2).logits
    try:
        outputs["blind align"] = _logits(aligned_halfway(case))
    except Stopped:  # a model without batch normalisation
        numbers["blind align"] = 0.0
    more = {
        "outlying": outlying.double().mean(),
        "empty": (row_statistics(x)[:, 0] <= EMPTY_ROW).double().mean(),
        "nodes": exam.nodes / card.nodes,
    }
    return numbers | {name: float(value) for name, value in more.items()}, outputs


def _more_of_edges(state: str, before: Reading, edges: AddedEdges) -> Numbers:
    """What no rule asks about, but one might."""
    after, flips = edges.after, before.classes != edges.after.classes
    old, new = (reading.probability.amax(1) for reading in (before, after))
    some = bool(flips.any())
    numbers = {
        "flips": float(flips.double().mean()),
        "cut": edges.number / edges.exam.data.edge_index.size(1),
        "confident after": float((new[flips] > new.median()).double().mean()) if some else 0.0,
        "rise of confidence": float((new - old)[flips].mean()) if some else 0.0,
        "rise of all confidence": float((new - old).mean()),
        "backing": backing(before, after),
        "rise of agreement": after.agreement - before.agreement,
        "shift after": edges.exam.shift(after) / edges.exam.noise,
    }
    return {f"{state}edges: {name}": value for name, value in numbers.items()}


def _more_of_features(state: str, before: Reading, features: ShiftedFeatures) -> Numbers:
    numbers = {
        "outside first": before.first_mix.outside,
        "outside z": before.z_mix.outside,
        "outside first after": features.after.first_mix.outside,
        "outside z after": features.after.z_mix.outside,
        "unexplained z after": features.after.z_mix.unexplained,
        "shift after": features.exam.shift(features.after) / features.exam.noise,
    }
    return {f"{state}features: {name}": value for name, value in numbers.items()}


def _logits(proposal: Proposal) -> Tensor:
    assert proposal.logits is not None
    return proposal.logits


def _signs(rule: str, signs: object, state: str) -> Numbers:
    return {f"{state}{rule}: {check.sign}": float(getattr(signs, check.sign)) for check in _checks(RULES[rule])}


def _checks(rule: Rule) -> Iterable[Check]:
    return (check for part in rule for check in part)


def numbers_of(values: dict[str, Any]) -> Numbers:
    """Rounded for storing."""
    return {name: float(f"{value:.5g}") for name, value in values.items()}
