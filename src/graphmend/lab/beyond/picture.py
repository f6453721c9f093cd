"""One figure: a panel per method, a dot per cell, how good the frozen model was against what the method changed.

Dots above the line are cells that gained, dots below it cells that were harmed. The vertical scale is linear between
-1 and 1 point and logarithmic beyond, so that small harms and large gains can both be read.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphmend.errors import require
from graphmend.lab.beyond.cells import HARM, Cell, cells_of, summary
from graphmend.lab.beyond.methods import names
from graphmend.lab.beyond.rows import Row
from graphmend.lab.beyond.targets import KINDS
from graphmend.results import style

__all__ = ["picture"]

COLOURS = {kind: style.class_colour(place) for place, kind in enumerate(sorted(KINDS, key=lambda kind: kind != "rows"))}
"""The kind with most cells has the colour that is seen best."""
TITLES = {"gate": "the gate with a card", "gate-blind": "the gate without a card"}
TICKS = (-30, -10, -3, -1, 0, 1, 3, 10, 30)


def picture(rows: Sequence[Row], methods: Sequence[str] | None = None) -> bytes:
    """A picture of some rows, as PNG.

    Args:
        rows: The rows.
        methods: The methods that are shown; all but the identity when ``None``.
    """
    chosen = [name for name in methods or names() if name != "identity"]
    cells = cells_of(row for row in rows if row["method"] in chosen)
    shown = [name for name in chosen if any(cell.method == name for cell in cells)]
    require(len(shown) > 0, f"there are no rows of {', '.join(chosen)}; measure first")
    columns = min(3, len(shown))
    lines = -(-len(shown) // columns)
    figure = style.figure(max(8.0, 4.2 * columns), 3.9 * lines + 1.2)
    axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for panel, name in zip(axes.flat, shown, strict=False):
        _panel(panel, name, [cell for cell in cells if cell.method == name])
    for panel in axes.flat[len(shown) :]:
        panel.set_visible(False)
    for panel in axes[-1]:
        panel.set_xlabel("accuracy of the frozen model (%)")
    for line in axes:
        line[0].set_ylabel("change (points)")
    kinds = [kind for kind in KINDS if any(cell.kind == kind for cell in cells)]
    style.legend(figure, axes[0][0], {kind: {"color": COLOURS[kind]} for kind in kinds})
    style.heading(figure, "What mending changes, against how good the model was", "A dot is a cell; tinted: harm.")
    style.dress(figure)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _panel(panel: Any, name: str, cells: Sequence[Cell]) -> None:
    panel.axhspan(-100, HARM, color=style.BAD, alpha=0.06, linewidth=0)
    panel.axhline(0, color=style.INK, linewidth=0.8)
    places = np.array([(cell.before, cell.change) for cell in cells])
    style.points(panel, places, [COLOURS[cell.kind] for cell in cells])
    panel.set_yscale("symlog", linthresh=1.0)
    panel.set_yticks(TICKS, [f"{tick:+d}" if tick else "0" for tick in TICKS])
    panel.set_ylim(-60, 80)
    panel.minorticks_off()
    panel.grid(axis="y", linewidth=0.5, color=style.FAINT)
    s = summary(cells)
    text = f"mean {s.change:+.2f}, harmed {100 * s.harmed:.1f} %, worst {s.worst.change:+.1f}"
    style.title(panel, f"{TITLES.get(name, name)} ({s.cells} cells)", text)
