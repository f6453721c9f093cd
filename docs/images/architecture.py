"""Draws architecture.png: the rooms of the library with the direction of imports, and the path of one call.

python docs/images/architecture.py
"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

FRONT, METHOD, MODEL, DATA, ENGINE, BASE = "#e8eaed", "#fde2c5", "#cfe8e3", "#dfe3f7", "#f9d5d9", "#f4f4f4"
DARK, SOFT = "#202124", "#5f6368"

ROOMS: list[list[tuple[str, str, str]]] = [  # name, what lives there, colour; from top to bottom
    [
        ("cli", "command line", FRONT),
        ("report", "figures", FRONT),
        ("demo", "the demo", FRONT),
        ("bench", "tuning, presets", FRONT),
    ],
    [("gate", "which mender acts, if any", METHOD), ("training", "ERM, EERM, SR-GNN, ...", DATA)],
    [("adapters", "GTrans, the menders; their shell", METHOD), ("datasets", "graphs and splits", DATA)],
    [("results", "history, patch, verdict, plot", METHOD), ("metrics", "scores, statistics, tests", DATA)],
    [("surrogates", "losses without labels", METHOD), ("nn", "our backbones, checkpoints", MODEL)],
    [("cards", "what a model saw in training", METHOD), ("transforms", "views, attacks, purifiers", METHOD)],
    [("frozen", "any model, kept as it was", MODEL), ("io", "files", DATA)],
    [("graph", "checks, masks, labels, limits, variables", MODEL)],
    [("engine", "sparse operations, gradients, recording: how it is fast", ENGINE)],
    [("contracts.py   errors.py   progress.py   version.py", "", BASE)],
]
CALL: list[tuple[str, str, str, str]] = [  # step, what happens, room, colour
    ("check", "graph, limits, seed, mode", "adapters, graph", METHOD),
    ("freeze", "evaluation mode, no gradients, generators seeded", "frozen", MODEL),
    ("try out", "what the model can do: once, on a few nodes", "frozen, engine", MODEL),
    ("engine", "variables X' and p; enough memory?", "graph, engine", ENGINE),
    ("steps", "loss, gradient, step; features and edges in turn", "adapters, surrogates, engine", ENGINE),
    ("candidates", "discrete graphs from p, all under the same views", "graph, engine", ENGINE),
    ("predict", "logits on the best one", "engine", ENGINE),
    ("patch", "the reversible change, bit for bit", "results", METHOD),
    ("restore", "model and generators as they were", "frozen", MODEL),
]
LEGEND = [  # position, name, colour
    (0.0, "methods", METHOD),
    (1.2, "models and graphs", MODEL),
    (3.2, "data and files", DATA),
    (4.8, "engine", ENGINE),
    (5.9, "front ends", FRONT),
]


def check_rooms() -> None:
    """Raise unless the picture has the rooms of the table in architecture.md, and imports point where it says."""
    page = (Path(__file__).parent.parent / "architecture.md").read_text(encoding="utf-8")
    places = {name: (row, column) for row, rooms in enumerate(ROOMS[:-1]) for column, (name, *_) in enumerate(rooms)}
    above: list[str] = []
    for room, cell in re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", page.split("## Five contracts")[0], re.MULTILINE):
        for other in above if cell == "all rooms above" else re.findall(r"`(\w+)`", cell):
            is_front = places[room][0] == places[other][0] == 0
            assert places[room][0] < places[other][0] or (is_front and places[room] < places[other]), (room, other)
        above.append(room)
    assert sorted(above) == sorted(places)


def box(axes: Axes, x: float, y: float, width: float, height: float, colour: str) -> None:
    """A rounded box."""
    style = "round,pad=0,rounding_size=0.07"
    axes.add_patch(
        FancyBboxPatch((x, y), width, height, boxstyle=style, facecolor=colour, edgecolor=SOFT, linewidth=0.8)
    )


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], width: float = 1.0) -> None:
    """An arrow from start to end."""
    head = FancyArrowPatch(
        start, end, arrowstyle="-|>", mutation_scale=11, color=SOFT, linewidth=width, shrinkA=0, shrinkB=0
    )
    axes.add_patch(head)


def draw_rooms(axes: Axes) -> None:
    """One band per row; every room imports from the bands below it, a front end also from those to its right."""
    left, right, height, gap, top = 0.75, 7.75, 0.6, 0.135, 8.55
    axes.text(left, top + 0.45, "Rooms: imports follow the arrows", fontsize=12, weight="bold", color=DARK)
    for row, rooms in enumerate(ROOMS):
        y = top - row * (height + gap) - height + 0.2
        width = (right - left - 0.15 * (len(rooms) - 1)) / len(rooms)
        for column, (name, about, colour) in enumerate(rooms):
            x = left + column * (width + 0.15)
            box(axes, x, y, width, height, colour)
            if column > 0 and colour == FRONT:
                arrow(axes, (x - 0.15, y + height / 2), (x, y + height / 2))
            middle = x + width / 2
            if about:
                axes.text(middle, y + 0.4, name, ha="center", va="center", fontsize=11, weight="bold", color=DARK)
                axes.text(middle, y + 0.16, about, ha="center", va="center", fontsize=8.5, color=SOFT)
            else:
                axes.text(middle, y + height / 2, name, ha="center", va="center", fontsize=10, color=DARK)
    bottom = top - len(ROOMS) * (height + gap) + gap + 0.2
    for x, name, colour in LEGEND:
        box(axes, left + x, bottom - 0.42, 0.2, 0.2, colour)
        axes.text(left + x + 0.28, bottom - 0.32, name, va="center", fontsize=9, color=SOFT)
    arrow(axes, (0.4, top + 0.15), (0.4, bottom), 1.6)
    axes.text(
        0.18, (top + bottom) / 2 + 0.15, "imports", rotation=90, ha="center", va="center", fontsize=10, color=SOFT
    )


def draw_call(axes: Axes) -> None:
    """The steps of one call, from top to bottom."""
    left, width, height, gap, top = 8.75, 6.2, 0.6, 0.215, 8.55
    axes.text(
        left, top + 0.45, "The path of one call: mend(model, data, GTrans())", fontsize=12, weight="bold", color=DARK
    )
    for row, (name, about, room, colour) in enumerate(CALL):
        y = top - row * (height + gap) - height + 0.2
        box(axes, left, y, width, height, colour)
        axes.text(left + 0.15, y + height / 2, name, va="center", fontsize=11, weight="bold", color=DARK)
        axes.text(left + 1.6, y + 0.41, about, va="center", fontsize=9, color=DARK)
        axes.text(left + 1.6, y + 0.16, room, va="center", fontsize=8, color=SOFT, style="italic")
        arrow(axes, (left + 0.55, y), (left + 0.55, y - gap))
    end = top - len(CALL) * (height + gap) + 0.2
    axes.text(
        left + 0.15,
        end - 0.17,
        "Adaptation: data, logits, patch, history, engine",
        fontsize=10.5,
        weight="bold",
        color=DARK,
    )


def main() -> None:
    """Draw and save."""
    check_rooms()
    figure, axes = plt.subplots(figsize=(15, 8.6))
    axes.set_xlim(0, 15)
    axes.set_ylim(0.75, 9.35)
    axes.axis("off")
    draw_rooms(axes)
    draw_call(axes)
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=110, bbox_inches="tight", facecolor="white")


if __name__ == "__main__":
    main()
