"""Draws architecture.png from the imports in the source, and stores them as architecture.json.

    PYTHONPATH=src:tests python docs/images/architecture.py

A test compares the stored imports with the source: if they differ, look whether the new import belongs there, then run
this again. By hand are only the place and the description of each room; a line that would lead upwards is an error.
"""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Polygon

from support.house import FOR_ALL, plan

HERE = Path(__file__).parent
DARK, SOFT, LINE = "#1a1a1a", "#4a4a4a", "#6b6b6b"
BLUE, ORANGE, WHITE, GREY = "#cfe3f3", "#fbdcb4", "#ffffff", "#ededed"
WIDTH, HEIGHT, ACROSS, UPWARDS = 1.95, 0.8, 2.1, 1.1  #: of a room, and from one to the next

PRODUCT: dict[str, tuple[float, float, str]] = {  # column, row, what lives there
    "cli": (2.6, 9, "the command line"),
    "monitor": (1.9, 7, "a stream of graphs,\nalarms"),
    "mending": (0.7, 8, "the one call: mend"),
    "hetero": (0.4, 7, "graphs of several\ntypes"),
    "adapters": (1.0, 6, "GTrans, menders,\nthe gate"),
    "surrogates": (0.5, 5, "losses without\nlabels"),
    "cards": (1.0, 4, "what a model saw\nin training"),
    "results": (2.0, 3, "patch, verdict,\nhistory"),
    "workers": (3.0, 5, "processes, Ray"),
    "shards": (3.0, 3, "graphs larger\nthan memory"),
    "transforms": (0.0, 2, "views, purifiers"),
    "model": (1.0, 2, "any model, frozen"),
    "files": (2.0, 2, "graphs and results\non disk"),
    "graph": (1.0, 1, "checks, limits,\nedits"),
    "engine": (1.0, 0, "how it is fast"),
}
LAB: dict[str, tuple[float, float, str]] = {
    "cli": (0.0, 4, "demo, train,\ndata, bench"),
    "studies": (1.0, 4, "single questions"),
    "registries": (2.0, 4, "every name"),
    "demo": (0.0, 3, "one minute,\nno downloads"),
    "bench": (1.0, 3, "the paper's tables\nand figures"),
    "beyond": (2.0, 3, "how good is\nthe gate?"),
    "training": (1.0, 2, "ERM, EERM, DANN"),
    "data": (0.0, 1, "data sets, shifts"),
    "attacks": (0.0, 0, "PR-BCD and others"),
    "backbones": (1.0, 0, "our own models"),
    "metrics": (2.0, 0, "CMD, tests"),
}
CALL: list[tuple[str, str, str]] = [  # step, what happens, file
    ("mend", "the gate, unless an adapter is named", "mending.py"),
    ("call", "prepare, propose, finish", "adapters/base.py"),
    ("prepare", "check graph, limits, options and card;\nfill missing values", "adapters/case.py"),
    ("freeze", "no gradients, evaluation mode, one seed;\nhow the model is wired, tried out once", "model/frozen.py"),
    ("propose", "the gate: see the graph through the model,\ncompare it with the card, ask the menders", "adapters/gate/"),
    ("or propose", "GTrans: steps down a loss by the engine,\nthen the best of several discrete graphs", "adapters/gtrans.py"),
    ("finish", "one patch, the logits on the mended graph,\none Adaptation", "adapters/case.py"),
    ("restore", "model and random generators as they were,\nalso after an error", "model/restore.py"),
]  # fmt: skip


def lines(rooms: dict[str, list[str]]) -> list[tuple[str, str]]:
    """The imports that no chain of others implies."""
    graph = nx.DiGraph([(room, other) for room, others in rooms.items() for other in others])
    return sorted(nx.transitive_reduction(graph).edges)


def box(axes: Axes, x: float, y: float, width: float, height: float, colour: str) -> None:
    """A rounded box with its lower left corner at (x, y)."""
    style = "round,pad=0,rounding_size=0.07"
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=style, facecolor=colour, edgecolor=SOFT, linewidth=1))


def draw_house(
    axes: Axes, left: float, rooms: dict[str, list[str]], places: dict[str, tuple[float, float, str]], title: str, colour: str
) -> None:  # fmt: skip
    """A house with a roof, its rooms, and lines from each room down to those that it imports."""
    if set(rooms) != set(places):
        raise ValueError(f"give these rooms a place, or take it away: {set(rooms) ^ set(places)}")
    columns, rows = (max(place[k] for place in places.values()) for k in (0, 1))
    right, top = left + columns * ACROSS + WIDTH + 0.5, rows * UPWARDS + HEIGHT + 0.25
    wall = [(left, -0.25), (left, top), ((left + right) / 2, top + 1.1), (right, top), (right, -0.25)]
    axes.add_patch(Polygon(wall, closed=True, facecolor="#fafafa", edgecolor=DARK, linewidth=1.6, zorder=0))
    axes.text((left + right) / 2, top + 0.15, title, ha="center", va="center", fontsize=13, weight="bold", color=DARK)
    corners = {room: (left + 0.25 + column * ACROSS, row * UPWARDS) for room, (column, row, _) in places.items()}
    for room, other in lines(rooms):
        (x, y), (other_x, other_y) = corners[room], corners[other]
        if y <= other_y:
            raise ValueError(f"{room} imports {other}, so it must have a place above it")
        ends = ((x + WIDTH / 2, y), (other_x + WIDTH / 2, other_y + HEIGHT))
        arrow = {"arrowstyle": "-|>", "color": LINE, "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", ends[1], ends[0], arrowprops=arrow, zorder=1)
    for room, (x, y) in corners.items():
        box(axes, x, y, WIDTH, HEIGHT, colour)
        text = places[room][2]
        lift = 0.22 if "\n" in text else 0.13
        name = "mending.py" if room == "mending" else f"{room}.py" if room in ("transforms", "registries") else room
        axes.text(x + WIDTH / 2, y + HEIGHT / 2 + lift, name, ha="center", va="center", fontsize=10.5, weight="bold", color=DARK)  # fmt: skip
        axes.text(x + WIDTH / 2, y + HEIGHT / 2 - 0.13, text, ha="center", va="center", fontsize=8.5, color=SOFT, linespacing=1.0)  # fmt: skip


def draw_call(axes: Axes, left: float, top: float) -> None:
    """The steps of one call, from top to bottom."""
    width, height, step = 6.95, 0.9, 1.27
    axes.text(left, top + 0.3, "The path of one call", fontsize=13, weight="bold", color=DARK)
    axes.text(left, top - 0.05, "graphmend.mend(model, data, card=card)", fontsize=10, family="monospace", color=SOFT)
    for row, (name, text, file) in enumerate(CALL):
        y = top - 0.3 - height - row * step
        box(axes, left, y, width, height, GREY if name.startswith("or") else BLUE)
        axes.text(left + 0.12, y + height - 0.26, name, va="center", fontsize=11, weight="bold", color=DARK)
        axes.text(left + 0.12, y + 0.2, file, va="center", fontsize=8, style="italic", color=SOFT)
        axes.text(left + 2.1, y + height / 2, text, va="center", fontsize=9, color=DARK)
        if row + 1 < len(CALL):
            arrow = {"arrowstyle": "-|>", "color": LINE, "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", (left + 0.6, y - step + height), (left + 0.6, y), arrowprops=arrow)


def main() -> None:
    """Draw and store."""
    rooms = plan()
    figure = Figure(figsize=(19, 11.6))
    axes = figure.subplots()
    axes.set(xlim=(-0.3, 23.6), ylim=(-1.35, 12.4))
    axes.axis("off")
    draw_house(axes, 0.0, rooms["product"], PRODUCT, "The product: graphmend", BLUE)
    draw_house(axes, 9.25, rooms["lab"], LAB, "The lab: graphmend.lab", ORANGE)
    box(axes, 0.0, -0.85, 15.9, 0.42, WHITE)
    ground = "   ".join(f"{name}.py" for name in sorted(FOR_ALL))
    axes.text(7.95, -0.64, f"for every room:   {ground}", ha="center", va="center", fontsize=10, color=DARK)
    axes.text(
        0.0,
        -1.15,
        "Arrows: imports, without those that a chain of arrows implies. "
        "Every room of the lab may import every room of the product; the product imports nothing of the lab.",
        fontsize=9.5,
        va="center",
        color=SOFT,
    )
    axes.text(
        9.35, 10.4, "GraphMend: the rooms\nand who imports whom", fontsize=16, weight="bold", color=DARK, va="center"
    )
    draw_call(axes, 16.5, 10.4)
    figure.savefig(HERE / "architecture.png", dpi=110, bbox_inches="tight", facecolor="white")
    (HERE / "architecture.json").write_text(json.dumps(rooms, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
