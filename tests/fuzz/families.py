"""All families of inputs, and how often each is tried."""

from __future__ import annotations

from collections.abc import Iterator

from fuzz.archives import archives, records
from fuzz.calls import calls
from fuzz.cases import Family
from fuzz.commands import commands, label_files
from fuzz.graph_files import npz_files, pt_files
from fuzz.hetero import heterogeneous
from fuzz.own_files import cards, own_files
from fuzz.tasks import tasks

FAMILIES: dict[str, Family] = {
    "npz": npz_files,
    "pt": pt_files,
    "own": own_files,
    "cards": cards,
    "archives": archives,
    "records": records,
    "calls": calls,
    "commands": commands,
    "labels": label_files,
    "hetero": heterogeneous,
    "tasks": tasks,
}
ROUND = (
    *("npz", "calls", "own", "hetero", "calls", "commands", "pt", "tasks") * 2,
    *("npz", "calls", "own", "pt", "commands", "calls", "labels", "cards", "archives", "records"),
)
"""Families in the order in which their inputs take turns."""


def inputs(number: int, first_seed: int = 0) -> Iterator[tuple[str, int]]:
    """So many inputs as pairs of a family and a seed."""
    for index in range(number):
        yield ROUND[index % len(ROUND)], first_seed + index
