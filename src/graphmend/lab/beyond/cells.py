"""Cells: results of a set, a backbone and a target, averaged over seeds, and what is said about many of them.

An average over seeds may hide a graph that was harmed, so harm is counted by the same threshold for single graphs, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

from graphmend.lab.beyond.rows import Row

__all__ = ["DAMAGE", "HARM", "ORACLE", "Cell", "Summary", "cells_of", "lost_accuracy", "summary", "with_oracle"]

HARM = -0.3  # points below which a cell or a single graph counts as harmed
DAMAGE = ("attack", "attack-random", "noise", "rows", "missing")  # kinds of targets that are a clean graph damaged
ORACLE = "oracle"


@dataclass(frozen=True)
class Cell:
    """A method on a set, a backbone and a target, averaged over seeds.

    Args:
        name: The set.
        backbone: The backbone.
        target: The target.
        kind: Its kind.
        method: The method.
        before: The metric of the frozen model, in percent.
        changes: What the method changes about it on each graph, in points.
        flips: Share of all nodes whose prediction changed.
        acted: Share of the seeds with a changed prediction.
        seconds: Time per graph.
    """

    name: str
    backbone: str
    target: str
    kind: str
    method: str
    before: float
    changes: tuple[float, ...]
    flips: float
    acted: float
    seconds: float

    @property
    def change(self) -> float:
        """The mean over seeds."""
        return mean(self.changes)

    @property
    def seeds(self) -> int:
        """Their number."""
        return len(self.changes)

    @property
    def place(self) -> tuple[str, str, str]:
        """What the cells of all methods share."""
        return self.name, self.backbone, self.target

    def __str__(self) -> str:
        return f"{self.name} {self.backbone} {self.target}"


@dataclass(frozen=True)
class Summary:
    """What is said about the cells of one method."""

    cells: int
    change: float
    harmed: float
    worst: Cell
    harmed_graphs: float
    worst_graph: float
    worst_graph_in: Cell
    acted: float
    harmed_of_acted: float
    change_of_acted: float
    seconds: float


def cells_of(rows: Iterable[Row]) -> list[Cell]:
    """The cells of all rows."""
    groups: dict[tuple[str, str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["name"], row["backbone"], row["target"], row["method"]].append(row)
    return [
        Cell(
            name,
            backbone,
            target,
            group[0]["kind"],
            method,
            before=mean(row["before"] for row in group),
            changes=tuple(row["after"] - row["before"] for row in group),
            flips=mean(row["flips_all"] for row in group),
            acted=mean(row["flips_all"] > 0 for row in group),
            seconds=mean(row["seconds"] for row in group),
        )
        for (name, backbone, target, method), group in groups.items()
    ]


def with_oracle(cells: Sequence[Cell]) -> list[Cell]:
    """The cells and, for each place, the best of doing nothing and all methods measured there."""
    best: dict[tuple[str, str, str], Cell] = {}
    for cell in cells:
        if cell.place not in best or cell.change > best[cell.place].change:
            best[cell.place] = cell
    chosen = []
    for cell in best.values():
        helps = cell.change > 0
        changes = cell.changes if helps else (0.0,) * cell.seeds
        values = {**vars(cell), "method": ORACLE, "changes": changes, "acted": float(helps)}
        chosen.append(Cell(**values))
    return [*cells, *chosen]


def summary(cells: Sequence[Cell]) -> Summary:
    """Of the cells of one method, of which there must be some."""
    active = [cell for cell in cells if cell.acted > 0]
    graphs = [change for cell in cells for change in cell.changes]
    worst_graph_in = min(cells, key=lambda cell: min(cell.changes))
    return Summary(
        cells=len(cells),
        change=mean(cell.change for cell in cells),
        harmed=mean(cell.change < HARM for cell in cells),
        worst=min(cells, key=lambda cell: cell.change),
        harmed_graphs=mean(change < HARM for change in graphs),
        worst_graph=min(worst_graph_in.changes),
        worst_graph_in=worst_graph_in,
        acted=mean(cell.acted for cell in cells),
        harmed_of_acted=mean(cell.change < HARM for cell in active) if active else 0.0,
        change_of_acted=mean(cell.change for cell in active) if active else 0.0,
        seconds=mean(cell.seconds for cell in cells),
    )


def lost_accuracy(cells: Sequence[Cell]) -> dict[tuple[str, str, str], float]:
    """By place, how much damage cost: the metric on the clean graph minus that on the harmed one."""
    clean = {(c.name, c.backbone): c.before for c in cells if c.kind == "unshifted" and c.target == "clean"}
    return {
        cell.place: clean[cell.name, cell.backbone] - cell.before
        for cell in cells
        if cell.kind in DAMAGE and (cell.name, cell.backbone) in clean
    }
