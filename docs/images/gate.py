"""Draws gate.png: which questions the gate asks about a graph, and what each answer leads to.

python docs/images/gate.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.patches import FancyBboxPatch

from graphmend.results import style

QUESTIONS = [
    (
        "Are there feature rows that a gap\nsets apart from all seen in training?",
        "impute",
        "repair them from neighbours",
        "the first layer comes no farther\nfrom where it was in training",
    ),
    (
        "Same nodes as in training, but more\nedges whose ends do not fit?",
        "purify",
        "cut the worst of them",
        "nothing else happened to the edges, and\nconfident predictions flip, as after an attack",
    ),
    (
        "Has the first layer shifted\nfar beyond its noise?",
        "align",
        "restore its mean and spread",
        "no mix of known nodes explains it, the nodes\ncome back, embeddings back the predictions",
    ),
]
BLUE, GREEN, GREY = style.COLOURS[0], style.COLOURS[4], style.MUTED


def box(
    axes: Any, x: float, y: float, width: float, height: float, text: str, colour: str, size: float = 9
) -> None:
    """A rounded box with centred text."""
    patch = FancyBboxPatch(
        (x, y),
        width,
        height,
        boxstyle="round,pad=0.02,rounding_size=0.08",
        facecolor="white",
        edgecolor=colour,
        linewidth=1.6,
    )
    axes.add_patch(patch)
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=size, color=style.INK)


def arrow(
    axes: Any, start: tuple[float, float], end: tuple[float, float], text: str = "", above: float = 0.1
) -> None:
    """An arrow with a word beside it."""
    axes.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "-|>", "color": style.INK, "linewidth": 1.1})
    if text:
        x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
        axes.text(x, y + above, text, ha="center", va="bottom", fontsize=8, color=GREY)


def main() -> None:
    """Draw and save."""
    figure = style.figure(10.6, 6)
    axes = figure.subplots()
    axes.set_xlim(0.0, 10.3)
    axes.set_ylim(-0.75, 6.1)
    axes.axis("off")
    for x, title in (
        (1.5, "what kind of trouble?"),
        (5.0, "mender"),
        (8.6, "done only if … (otherwise it is a question for labels)"),
    ):
        axes.text(x, 5.85, title, ha="center", fontsize=10, color=GREY, style="italic")
    for line, (question, name, action, check) in enumerate(QUESTIONS):
        y = 4.5 - 1.75 * line
        box(axes, 0.1, y, 2.8, 1.05, question, BLUE)
        box(axes, 3.85, y, 2.3, 1.05, f"{name}\n{action}", GREEN)
        box(axes, 7.0, y, 3.2, 1.05, check, GREEN)
        arrow(axes, (2.98, y + 0.52), (3.78, y + 0.52), "yes")
        arrow(axes, (6.22, y + 0.52), (6.92, y + 0.52))
        below = y - 0.7 if line < 2 else 0.15
        arrow(axes, (1.5, y - 0.06), (1.5, below + 0.06))
        axes.text(1.58, y - 0.35, "next", fontsize=8, color=GREY, va="center")
    box(axes, 0.1, -0.6, 10.1, 0.75, "nothing done: the graph is returned as it came, with the reason and what to ask", GREY, 10)
    style.heading(figure, "What the gate asks about a graph")
    style.save(figure, Path(__file__).with_suffix(".png"))


if __name__ == "__main__":
    main()
