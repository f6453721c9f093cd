"""The figure that opens the page of results: claim by claim the paper's gain, and ours with its interval."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphmend.lab.bench.figures import BLUE, GREY, panels
from graphmend.lab.bench.page import Stored, paper_gain
from graphmend.lab.bench.tables import Table

__all__ = ["forest"]

SETS = ("photo-ood", "cora-ood", "twitch-e", "fb100", "arxiv-votes-ood")
BACKBONES = ("gcn", "sage", "gat", "gpr")
ROBUST = ("cora", "citeseer", "pubmed", "arxiv-votes")

Place = tuple[str, str, tuple[str, ...], str]
"""A label, and the experiment, row and column of the cell."""


def _shift() -> Iterator[Place]:
    for name in SETS:
        for backbone in BACKBONES:
            yield f"{name}, {backbone}", "ood-accuracy", (backbone, "gtrans"), name


def _harm() -> Iterator[Place]:
    for words, short in (("all test nodes", "all"), ("abnormal nodes", "abnormal")):
        for name in ROBUST:
            yield f"30 % noise, {short}: {name}", "abnormal-features", (name, words, "gtrans"), "30%"
    for name in ROBUST:
        yield f"attack of 20 %: {name}", "attack", (name, "gtrans"), "20%"


TITLES = ("Distribution shift: GTrans - ERM", "Harmed graphs: GTrans - GCN")


def forest(stored: Stored) -> Any:
    """A ``matplotlib.figure.Figure`` with two panels: distribution shift, and harmed graphs."""
    figure, axes = panels(2, 2, (5.4, 5.2))
    for axis, places, title in zip(axes, (list(_shift()), list(_harm())), TITLES, strict=True):
        axis.axvline(0.0, color=GREY, linewidth=0.8)
        for height, (_, name, row, column) in enumerate(reversed(places)):
            _draw(axis, stored.table(name), row, column, height)
        axis.set_yticks(range(len(places)), [place[0] for place in reversed(places)], fontsize=8)
        axis.set_xlabel("points", fontsize=8)
        axis.set_title(title, fontsize=10)
        axis.grid(axis="x", alpha=0.25)
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=BLUE, marker="o", markersize=5, label="ours, mean and 95 % interval over seeds"),
        Line2D([], [], color="black", marker="D", markersize=5, fillstyle="none", linestyle="", label="the paper"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def _draw(axis: Any, table: Table, row: tuple[str, ...], column: str, height: int) -> None:
    found, gain = table.difference(row, column), paper_gain(table, row, column)
    if found is not None:
        low, high = (found.mean, found.mean) if found.low is None else (found.low, found.high)
        axis.plot([low, high], [height, height], color=BLUE, linewidth=1.6)
        axis.plot(found.mean, height, "o", color=BLUE, markersize=5)
    if gain is not None:
        axis.plot(gain, height, "D", color="black", fillstyle="none", markersize=5)
