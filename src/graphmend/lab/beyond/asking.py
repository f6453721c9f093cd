"""What a few labels add where a shift is natural: ask at nodes whose prediction the proposal changes, and decide.

The evidence of graphs under natural shift has the predictions of every candidate, so that asking is simulated with the
library's own test (:func:`graphmend.results.questions.poll`): the gate's proposal is asked about, at flipped nodes in
random order or at random nodes. For comparison, several candidates are asked about at once, and the one is chosen that
leads by five right answers or more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphmend.lab.beyond.rules import CANDIDATES, Outcome, Table, judged
from graphmend.results.questions import poll

__all__ = ["LABELS", "ORACLE", "asked"]

Array = NDArray[Any]
LABELS = (0, 5, 10, 25)
DRAWS = 4  # orders of the nodes
LEAD = 5  # right answers more than the graph as it is, as Wald's test wants them
SEVERAL = ("align", "half align", "purify")
ORACLE = "the best candidate, known from all labels"


def asked(table: Table) -> dict[tuple[str, int], Outcome]:
    """What each way of asking comes to, by its name and the number of labels."""
    found: dict[tuple[str, int], list[float]] = {}
    decisions, proposals = table.decisions({}), table.proposals()
    for row, decision, proposal in zip(table.rows, decisions, proposals, strict=True):
        if "flips" not in row:
            continue
        own, name = CANDIDATES[decision], CANDIDATES[proposal]
        best = max(_change(row, candidate) for candidate in row["flips"])
        found.setdefault((ORACLE, 0), []).append(max(0.0, best))
        for number in LABELS:
            for draw in range(DRAWS):
                random = np.random.default_rng(draw)
                flipped = random.permutation(np.array(row["flips"][name][0], dtype=int))[:number]
                anywhere = random.permutation(len(row["y"]))[:number]
                ways = {
                    "the gate's proposal, at nodes that it flips": _settled(row, own, name, flipped),
                    "the gate's proposal, at random nodes": _settled(row, own, name, anywhere),
                    "several candidates, where they differ": _leading(row, own, number, random),
                }
                for way, chosen in ways.items():
                    found.setdefault((way, number), []).append(_change(row, chosen))
    values = {key: np.array(changes) for key, changes in found.items() if changes}
    return {key: judged(changes, (changes != 0).astype(int)) for key, changes in values.items()}


def _predictions(row: Mapping[str, Any], candidate: str) -> Array:
    out = np.array(row["leave"])
    nodes, classes = row["flips"][candidate]
    out[nodes] = classes
    return out


def _change(row: Mapping[str, Any], candidate: str) -> float:
    """What a candidate changes about the accuracy, in points."""
    y = np.array(row["y"])
    return float(100 * ((_predictions(row, candidate) == y).mean() - (np.array(row["leave"]) == y).mean()))


def _settled(row: Mapping[str, Any], own: str, name: str, nodes: Array) -> str:
    """The proposal or the graph as it is, whatever the labels of some nodes settle; else what the gate did."""
    old, new = (torch.from_numpy(_predictions(row, candidate)[nodes]) for candidate in ("leave", name))
    decision = poll(old, new, np.array(row["y"])[nodes].tolist()).decision
    return own if decision is None else name if decision else "leave"


def _leading(row: Mapping[str, Any], own: str, number: int, random: np.random.Generator) -> str:
    """The candidate with most right answers at nodes where candidates differ, if it leads by enough."""
    names = [name for name in ("leave", *SEVERAL) if name in row["flips"]]
    seen = np.stack([_predictions(row, name) for name in names])
    nodes = random.permutation(np.flatnonzero((seen != seen[0]).any(axis=0)))[:number]
    right = (seen[:, nodes] == np.array(row["y"])[nodes]).sum(axis=1)
    best = int(right.argmax())
    return names[best] if right[best] - right[0] >= LEAD else own
