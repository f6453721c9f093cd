"""One figure: a panel per method, a dot per cell, how good the frozen model was against what the method changed.

Dots above the line are cells that gained, dots below it cells that were harmed. The vertical scale is linear between
-1 and 1 point and logarithmic beyond, so that small harms and large gains can both be read.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from graphmend.errors import optional_module, require
from graphmend.lab import INSTALL
from graphmend.lab.beyond.cells import HARM, Cell, cells_of, summary
from graphmend.lab.beyond.methods import names
from graphmend.lab.beyond.rows import Row
from graphmend.lab.beyond.targets import KINDS

__all__ = ["picture"]

PALETTE = (
    "#1b6ca8",
    "#6a4c93",
    "#e08e0b",
    "#c1121f",
    "#ef8a8a",
    "#6c757d",
    "#2a9d8f",
    "#5f0f40",
    "#b5838d",
    "#386641",
    "#a7c957",
)
COLOURS = dict(zip(KINDS, PALETTE, strict=True))
TITLES = {"gate": "the gate with a card", "gate-blind": "the gate without a card"}
TICKS = (-30, -10, -3, -1, 0, 1, 3, 10, 30)


def picture(rows: Sequence[Row], methods: Sequence[str] | None = None) -> bytes:
    """A picture of some rows, as PNG.

    Args:
        rows: The rows.
        methods: The methods that are shown; all but the identity when ``None``.
    """
    optional_module("matplotlib", "a figure", INSTALL).use("Agg")
    import matplotlib.pyplot as plt

    chosen = [name for name in methods or names() if name != "identity"]
    cells = cells_of(row for row in rows if row["method"] in chosen)
    shown = [name for name in chosen if any(cell.method == name for cell in cells)]
    require(len(shown) > 0, f"there are no rows of {', '.join(chosen)}; measure first")
    columns = min(3, len(shown))
    lines = -(-len(shown) // columns)
    size = (4.2 * columns, 3.6 * lines + 0.6)
    figure, axes = plt.subplots(
        lines, columns, figsize=size, sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for panel, name in zip(axes.flat, shown, strict=False):
        _panel(panel, name, [cell for cell in cells if cell.method == name])
    for panel in axes.flat[len(shown) :]:
        panel.set_visible(False)
    figure.supxlabel("frozen model (%)", fontsize=9)
    figure.supylabel("change (points)", fontsize=9)
    kinds = [kind for kind in KINDS if any(cell.kind == kind for cell in cells)]
    handles = [plt.Line2D([], [], linestyle="", marker="o", markersize=5, color=COLOURS[kind]) for kind in kinds]
    figure.legend(handles, kinds, ncols=6, fontsize=8, frameon=False, loc="outside upper center")
    file = io.BytesIO()
    figure.savefig(file, dpi=150, format="png")
    plt.close(figure)
    return file.getvalue()


def _panel(panel: Any, name: str, cells: Sequence[Cell]) -> None:
    panel.axhspan(-100, HARM, color="#c1121f", alpha=0.06, linewidth=0)
    panel.axhline(0, color="black", linewidth=0.8)
    for cell in cells:
        panel.plot(
            cell.before, cell.change, "o", markersize=3.2, alpha=0.6, color=COLOURS[cell.kind], markeredgewidth=0
        )
    panel.set_yscale("symlog", linthresh=1.0)
    panel.set_yticks(TICKS, [f"{tick:+d}" if tick else "0" for tick in TICKS])
    panel.set_ylim(-60, 80)
    panel.minorticks_off()
    panel.grid(axis="y", linewidth=0.3, alpha=0.5)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=8)
    s = summary(cells)
    text = f"mean {s.change:+.2f}, harmed {100 * s.harmed:.1f} %, worst {s.worst.change:+.1f}"
    panel.set_title(f"{TITLES.get(name, name)} ({s.cells} cells)\n{text}", fontsize=9)
