"""Figures of experiments in one style, without a display."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from graphmend.errors import optional_module

__all__ = ["BLUE", "GREEN", "GREY", "RED", "colours", "legend_below", "panels"]

GREY, RED, BLUE, GREEN = "#9aa0a6", "#d1495b", "#5b8db8", "#2a9d8f"
COLOURS = {"erm": GREY, "gcn": GREY, "tent": "#e9c46a", "eerm": RED, "jaccard": RED, "gtrans": BLUE, "mend": GREEN}
OTHERS = ("#222255", "#66ccee", "#ccbb44", "#ee8866", "#aa3377", "#8e6c8a", "#6a994e", "#264653")


def panels(number: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Any, list[Any]]:
    """A figure with some panels, from left to right and downwards.

    Args:
        number: How many.
        columns: How many beside each other at most.
        size: Width and height of one panel in inches.
        options: What else ``Figure.subplots`` takes.
    """
    made = optional_module("matplotlib.figure", "a figure", "install it with: pip install 'graphmend[plot]'")
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
