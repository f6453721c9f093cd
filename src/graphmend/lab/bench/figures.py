"""Figures of experiments in one style, without a display."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from graphmend.errors import optional_module
from graphmend.lab import INSTALL
from graphmend.lab.bench.tables import Published, Table

__all__ = ["BLUE", "GREEN", "GREY", "RED", "bars", "colours", "curves", "legend_below", "panels"]

GREY, RED, BLUE, GREEN = "#9aa0a6", "#d1495b", "#5b8db8", "#2a9d8f"
COLOURS = {
    "erm": GREY,
    "gcn": GREY,
    "none": GREY,
    "tent": "#e9c46a",
    "eerm": RED,
    "jaccard": RED,
    "gtrans": BLUE,
    "mend": GREEN,
}
OTHERS = ("#222255", "#66ccee", "#ccbb44", "#ee8866", "#aa3377", "#8e6c8a", "#6a994e", "#264653")


def panels(number: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Any, list[Any]]:
    """A figure with some panels, from left to right and downwards.

    Args:
        number: How many.
        columns: How many beside each other at most.
        size: Width and height of one panel in inches.
        options: What else ``Figure.subplots`` takes.
    """
    made = optional_module("matplotlib.figure", "a figure", INSTALL)
    columns = min(columns, number)
    rows = math.ceil(number / columns)
    figure = made.Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options).flatten().tolist()
    for axis in axes[number:]:
        axis.remove()
    for axis in axes[:number]:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    return figure, axes[:number]


def legend_below(figure: Any, handles: list[Any], labels: list[str], **options: Any) -> None:
    """One legend for all panels, in one row below them."""
    style = {"loc": "outside lower center", "ncols": len(labels), "frameon": False, "fontsize": 8}
    figure.legend(handles, labels, **{**style, **options})


def colours(methods: Iterable[str]) -> dict[str, str]:
    """A colour for every method, the same in all figures for those that occur often."""
    methods = list(methods)
    others = iter(OTHERS * len(methods))
    return {method: COLOURS.get(method) or next(others) for method in methods}


BESIDE = 4  # panels side by side
DASHES = ("-", "--", ":")


def curves(table: Table, label: str) -> Any:
    """One panel per group of rows, one line per row with the deviation over seeds, and hollow dots for the paper's.

    Args:
        table: Rows that share all words but the last are a group; columns are the steps of the scale, in order.
        label: What the scale is.

    Returns:
        A ``matplotlib.figure.Figure``; nothing of matplotlib's global state is read or changed.
    """
    groups = list(dict.fromkeys(row[:-1] for row in table.rows))
    lines = list(dict.fromkeys(row[-1] for row in table.rows))
    styles = _styles(lines)
    figure, axes = panels(len(groups), BESIDE, (3.4, 2.8))
    for place, (panel, group) in enumerate(zip(axes, groups, strict=True)):
        panel.set_title(", ".join(group), fontsize=9)
        if place % BESIDE == 0:
            panel.set_ylabel("score (%)", fontsize=8)
        panel.set_xticks(range(len(table.columns)), table.columns, fontsize=7)
        panel.set_xlabel(label, fontsize=8)
        panel.grid(alpha=0.25)
        for name in lines:
            if (*group, name) in table.rows:
                _draw(panel, table, (*group, name), *styles[name])
    figure.suptitle(table.title, fontsize=10)
    handles = {
        line.get_label(): line for panel in figure.axes for line in panel.get_lines() if line.get_label()[0] != "_"
    }
    figure.legend(handles.values(), handles.keys(), loc="outside right center", fontsize=8, frameon=False)
    return figure


def bars(table: Table) -> Any:
    """One panel per column: a bar per row with the deviation over seeds; rows that share all words but the last stand
    together, and hollow dots are the paper's."""
    methods = list(dict.fromkeys(row[-1] for row in table.rows))
    shown = {
        column: [row for row in table.rows if table.cell(row, column).mean is not None] for column in table.columns
    }
    figure, axes = panels(len(table.columns), 1, (9.0, 2.6))
    colour, width = colours(methods), 0.8 / max(len(methods), 1)
    for axis, column in zip(axes, table.columns, strict=True):
        groups = list(dict.fromkeys(row[:-1] for row in shown[column]))
        for row in shown[column]:
            cell, method = table.cell(row, column), row[-1]
            x = groups.index(row[:-1]) + (methods.index(method) - (len(methods) - 1) / 2) * width
            axis.bar(x, cell.mean, width, yerr=cell.deviation, color=colour[method], error_kw={"linewidth": 0.8})
            if isinstance(cell.paper, Published):
                axis.plot(x, cell.paper.mean, "o", color="black", fillstyle="none", markersize=4)
        axis.set_xticks(range(len(groups)), [", ".join(group) for group in groups], fontsize=8)
        axis.set_ylabel("score (%)", fontsize=8)
        axis.set_title(column, fontsize=9)
    from matplotlib.patches import Patch

    legend_below(figure, [Patch(facecolor=colour[method]) for method in methods], methods)
    figure.suptitle(table.title, fontsize=10)
    return figure


def _styles(names: list[str]) -> dict[str, tuple[str, str]]:
    """Colour and dashes; a variant, such as ``mend_blind`` of ``mend``, has the colour of what it is a variant of."""
    bases = {name: next((other for other in names if name.startswith(f"{other}_")), name) for name in names}
    colour = colours(dict.fromkeys(bases.values()))
    families: dict[str, list[str]] = {}
    for name, base in bases.items():
        families.setdefault(base, []).append(name)
    return {name: (colour[base], DASHES[families[base].index(name) % len(DASHES)]) for name, base in bases.items()}


def _draw(panel: Any, table: Table, row: tuple[str, ...], colour: str, dashes: str) -> None:
    cells = [(place, table.cell(row, column)) for place, column in enumerate(table.columns)]
    known = [(place, cell.mean, cell.deviation or 0.0) for place, cell in cells if cell.mean is not None]
    places, means, deviations = ([point[k] for point in known] for k in range(3))
    panel.plot(places, means, dashes, color=colour, linewidth=1.3, marker=".", label=row[-1])
    low, high = ([m + side * d for m, d in zip(means, deviations, strict=True)] for side in (-1, 1))
    panel.fill_between(places, low, high, color=colour, alpha=0.12, linewidth=0)
    paper = [(place, cell.paper.mean) for place, cell in cells if isinstance(cell.paper, Published)]
    if paper:
        panel.plot(*zip(*paper, strict=True), "o", color=colour, fillstyle="none", markersize=5, linestyle="none")
