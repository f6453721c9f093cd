"""The geometry of the page's drawings; the template only writes it down."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from graphmend.results.report.facts import Move, NodeFacts, Predictions

__all__ = ["Bar", "Flow", "Ribbon", "Spot", "area", "effects", "flow", "line", "spots"]

WIDTH = 340  # of every drawing, so that its letters can be read on a phone
MOVES = 12  # drawn one by one


@dataclass(frozen=True)
class Bar:
    """The nodes of one class on one side of the flow."""

    group: int
    nodes: int
    y: float
    height: float


@dataclass(frozen=True)
class Ribbon:
    """The nodes that went from one class to another."""

    move: Move
    path: str


@dataclass(frozen=True)
class Flow:
    """How predictions flowed between classes: bars left and right, ribbons between them."""

    height: float
    left: tuple[Bar, ...]
    right: tuple[Bar, ...]
    ribbons: tuple[Ribbon, ...]
    left_out: int


def flow(predictions: Predictions) -> Flow:
    """The most frequent moves as a drawing."""
    moves = predictions.moves[:MOVES]
    total = sum(move.nodes for move in moves) or 1
    left: dict[int, int] = {}
    right: dict[int, int] = {}
    for move in moves:
        left[move.before] = left.get(move.before, 0) + move.nodes
        right[move.after] = right.get(move.after, 0) + move.nodes
    scale, gap = 180.0 / total, 15.0
    height = 190.0 + gap * max(len(left), len(right))
    bars = [_stacked(nodes, scale, gap, height) for nodes in (left, right)]
    tops = [{bar.group: bar.y for bar in side} for side in bars]
    ribbons = []
    for move in sorted(moves, key=lambda m: (m.before, m.after)):
        y0, y1, thick = tops[0][move.before], tops[1][move.after], move.nodes * scale
        tops[0][move.before], tops[1][move.after] = y0 + thick, y1 + thick
        path = (
            f"M92,{y0:.1f}C170,{y0:.1f} 170,{y1:.1f} 248,{y1:.1f}V{y1 + thick:.1f}"
            f"C170,{y1 + thick:.1f} 170,{y0 + thick:.1f} 92,{y0 + thick:.1f}Z"
        )
        ribbons.append(Ribbon(move, path))
    return Flow(height, bars[0], bars[1], tuple(ribbons), len(predictions.moves) - len(moves))


def _stacked(nodes: dict[int, int], scale: float, gap: float, height: float) -> tuple[Bar, ...]:
    y = (height - scale * sum(nodes.values()) - gap * (len(nodes) - 1)) / 2
    bars = []
    for group, number in sorted(nodes.items()):
        bars.append(Bar(group, number, round(y, 1), round(max(1.0, number * scale), 1)))
        y += number * scale + gap
    return tuple(bars)


def area(counts: Sequence[int], highest: int, height: float) -> str:
    """A histogram as the outline of steps, ``WIDTH`` wide."""
    step = WIDTH / len(counts)
    parts = [f"M0,{height:g}"]
    for place, count in enumerate(counts):
        parts.append(f"V{height - height * count / max(highest, 1):.1f}H{(place + 1) * step:.1f}")
    return "".join([*parts, f"V{height:g}Z"])


def line(values: Sequence[tuple[int, float]], height: float) -> str:
    """A curve, ``WIDTH`` wide."""
    xs, ys = [x for x, _ in values], [y for _, y in values]
    wide, high = max(xs) - min(xs) or 1, max(ys) - min(ys) or 1.0
    points = (
        f"{WIDTH * (x - min(xs)) / wide:.1f},{height - 6 - (height - 12) * (y - min(ys)) / high:.1f}" for x, y in values
    )
    return " ".join(points)


@dataclass(frozen=True)
class Spot:
    """A neighbour in the drawing of a neighbourhood."""

    x: float
    y: float
    text_x: float
    text_y: float
    anchor: str
    number: int  # its position in the list of neighbours


def spots(node: NodeFacts) -> tuple[Spot, ...]:
    """Places of the neighbours, on a circle around the node."""
    made = []
    for place in range(len(node.neighbours)):
        angle = 2 * math.pi * place / len(node.neighbours) - math.pi / 2
        cos, sin = math.cos(angle), math.sin(angle)
        anchor = "middle" if abs(cos) < 0.3 else "start" if cos > 0 else "end"
        made.append(
            Spot(
                round(WIDTH / 2 + 95 * cos, 1),
                round(125 + 88 * sin, 1),
                round(WIDTH / 2 + 107 * cos, 1),
                round(125 + 104 * sin + 4, 1),
                anchor,
                place,
            )
        )
    return tuple(made)


def effects(parts: Sequence[tuple[str, float]]) -> list[tuple[str, float, float, float]]:
    """Bars from the middle to both sides: the part, its effect, where its bar begins and how wide it is, in percent."""
    most = max((abs(effect) for _, effect in parts), default=0.0) or 1.0
    bars = []
    for label, effect in parts:
        width = 50 * abs(effect) / most
        bars.append((label, effect, round(50 - width if effect < 0 else 50.0, 2), round(max(width, 0.5), 2)))
    return bars
