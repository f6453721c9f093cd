"""Every sign that the gate's rule asks about, and what every mender would do: rules are then judged without a model.

For one graph, :func:`evidence` measures all signs, whether or not the rule would get that far, and runs each mender on
the graph as it is and on the graph with its broken rows repaired. :func:`decided` asks the tables of the rule about
such numbers, with the gate's own limits or with others. Labels are read by the caller only, for the score.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.adapters.base import Change, Task
from graphmend.adapters.impute import outlying_rows, refilled
from graphmend.cards.rows import EMPTY_ROW, row_statistics
from graphmend.cards.source_card import SourceCard
from graphmend.engine.report import Stopped
from graphmend.frozen import FrozenGNN
from graphmend.gate.blind_rule import aligned_halfway
from graphmend.gate.card_rule import COLUMNS, EDGES, FEATURES, ROWS, Rule
from graphmend.gate.case import Case, backing
from graphmend.gate.checks import Check, first_doubt
from graphmend.gate.signs import AddedEdges, BrokenRows, ShiftedFeatures
from graphmend.graph.limits import Limits
from graphmend.results.history import History

__all__ = ["RULES", "decided", "evidence"]

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
    with FrozenGNN(model, data, seed=seed) as frozen:
        generator = torch.Generator(device=data.x.device).manual_seed(seed)
        task = Task(model, data, Limits(), seed, generator, History(data.x.device, None, False), "auto", card)
        task.frozen = frozen
        return _collected(task, card.to(data.x.device, data.x.dtype))


def _collected(task: Task, card: SourceCard) -> tuple[Numbers, dict[str, Tensor]]:
    x, edge_index = task.data.x, task.data.edge_index
    case = Case(task, card)
    before = case.look(case.features())
    outputs, numbers = {"leave": before.logits}, _signs("columns", case, "")
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
        numbers |= _signs("edges", edges, name) | _signs("features", features, name)
        numbers[f"{name}edges: backing"] = backing(look, edges.after)
        numbers[f"{name}features: rise of outside z"] = features.after.z_mix.outside - look.z_mix.outside
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


def _logits(change: Change) -> Tensor:
    assert change.logits is not None
    return change.logits


def _signs(rule: str, signs: object, state: str) -> Numbers:
    return {f"{state}{rule}: {check.sign}": float(getattr(signs, check.sign)) for check in _checks(RULES[rule])}


def _checks(rule: Rule) -> Iterable[Check]:
    return (check for part in rule for check in part)


def decided(numbers: Mapping[str, float], rules: Mapping[str, Rule] = RULES) -> str:
    """The candidate that a rule with these tables chooses."""
    if not _holds("columns", numbers, rules, ""):
        return "leave"
    state = "repaired " if _holds("rows", numbers, rules, "") else ""
    for rule, candidate in (("edges", "purify"), ("features", "align")):
        if _holds(rule, numbers, rules, state):
            return state + candidate
    return "rows" if state else "leave"


def _holds(rule: str, numbers: Mapping[str, float], rules: Mapping[str, Rule], state: str) -> bool:
    """Whether all checks of a rule hold; like the gate, it looks at none after the first that does not."""
    start = f"{state}{rule}: "
    signs = SimpleNamespace(**{name.removeprefix(start): v for name, v in numbers.items() if name.startswith(start)})
    return all(first_doubt(part, signs, []) is None for part in rules[rule])


def numbers_of(values: dict[str, Any]) -> Numbers:
    """Rounded for storing."""
    return {name: float(f"{value:.5g}") for name, value in values.items()}
