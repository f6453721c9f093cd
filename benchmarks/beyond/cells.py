"""Cells: results of a set, a backbone and a target, averaged over seeds, and what is said about many of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

from benchmarks.beyond.rows import Row

__all__ = ["HARM", "ORACLE", "Cell", "Summary", "cells_of", "lost_accuracy", "summary", "with_oracle"]

HARM = -0.3  # points below which a cell counts as harmed
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
        change: What the method changes about it, in points.
        flips: Share of all nodes whose prediction changed.
        acted: Share of the seeds with a changed prediction.
        seconds: Time per graph.
        seeds: Number of seeds.
    """

    name: str
    backbone: str
    target: str
    kind: str
    method: str
    before: float
    change: float
    flips: float
    acted: float
    seconds: float
    seeds: int

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
            change=mean(row["after"] - row["before"] for row in group),
            flips=mean(row["flips_all"] for row in group),
            acted=mean(row["flips_all"] > 0 for row in group),
            seconds=mean(row["seconds"] for row in group),
            seeds=len(group),
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
        values = {**vars(cell), "method": ORACLE, "change": max(0.0, cell.change), "acted": float(helps)}
        chosen.append(Cell(**values))
    return [*cells, *chosen]


def summary(cells: Sequence[Cell]) -> Summary:
    """Of the cells of one method, of which there must be some."""
    active = [cell for cell in cells if cell.acted > 0]
    return Summary(
        cells=len(cells),
        change=mean(cell.change for cell in cells),
        harmed=mean(cell.change < HARM for cell in cells),
        worst=min(cells, key=lambda cell: cell.change),
        acted=mean(cell.acted for cell in cells),
        harmed_of_acted=mean(cell.change < HARM for cell in active) if active else 0.0,
        change_of_acted=mean(cell.change for cell in active) if active else 0.0,
        seconds=mean(cell.seconds for cell in cells),
    )


def lost_accuracy(cells: Sequence[Cell]) -> dict[tuple[str, str, str], float]:
    """By place, how much attacks and noise cost: the metric on the clean graph minus that on the harmed one."""
    clean = {(c.name, c.backbone): c.before for c in cells if c.kind == "unshifted" and c.target == "clean"}
    return {
        cell.place: clean[cell.name, cell.backbone] - cell.before
        for cell in cells
        if cell.kind in ("attack", "attack-random", "noise") and (cell.name, cell.backbone) in clean
    }
