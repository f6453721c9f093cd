"""One figure of a result: the loss, the predictions that changed, and the embedding before and after."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmend.results import style
from graphmend.results.plane import Groups, Plane, groups_of, plane, sampled
from graphmend.results.style import COLOURS, FAINT, GOOD, INK, MUTED, class_colour

if TYPE_CHECKING:
    from graphmend.results.adaptation import Adaptation

__all__ = ["plot"]

POINTS = 4000  # nodes in the pictures of the embedding; more would only cover each other
MOVES = 8  # bars
KINDS = ((COLOURS[0], "o"), (COLOURS[1], "s"), (COLOURS[4], "^"), (COLOURS[8], "D"))  # of steps
ROW = 0.34  # inches for a line of evidence
RINGS = 0.15  # of the nodes, up to which those whose prediction changed get a ring
_TURN = np.stack([np.cos(np.linspace(0, 2 * np.pi, 100)), np.sin(np.linspace(0, 2 * np.pi, 100))])


def plot(result: Adaptation, path: str | Path | None = None) -> Any:
    """Draw a result; nothing of matplotlib's global state is read or changed.

    The first panel has the loss of each step, or the evidence of the gate if no steps were taken. The second one counts
    the predictions that changed, by class. The others show the embedding Z of the nodes before and after, in the plane
    of its two main directions (PCA of both together, so that the panels can be compared), coloured by the predicted
    class; a ring marks a node whose prediction changed. Of many nodes, only some are drawn.

    Args:
        result: The result.
        path: Where to save the figure, if anywhere; the ending decides on the format.

    Returns:
        A ``matplotlib.figure.Figure``.
    """
    evidence = 0 if result.history or result.verdict is None else len(result.verdict.evidence)
    top = max(3.2, 0.7 + ROW * evidence)
    figure = style.figure(12, top + 5.4)
    if path is not None:
        style.form_of(figure, path)
    loss, flips, first, second = figure.subplots(2, 2, height_ratios=[top, 4.6]).flat
    _draw_loss(loss, result)
    _draw_flips(flips, result)
    note = _draw_embeddings(figure, first, second, result)
    patch = "" if result.sentence == result.patch.summary() else f"Patch: {result.patch.summary()}."
    text = str(result.verdict) if result.verdict is not None else f"{result.decision}: {result.sentence}"
    style.heading(figure, text[:1].upper() + text[1:], " ".join([note, patch]))
    style.dress(figure)
    if path is not None:
        style.save(figure, path)
    return figure


def _draw_loss(axes: Any, result: Adaptation) -> None:
    if not result.history:
        _draw_evidence(axes, result)
        return
    steps = result.history
    style.title(axes, f"Loss: {steps[0].loss:.4g} at the first step, {steps[-1].loss:.4g} at the last")
    axes.set(xlabel="step", ylabel="surrogate loss")
    axes.plot([s.index for s in steps], [s.loss for s in steps], color=FAINT, linewidth=1.5, zorder=1)
    for (colour, marker), kind in zip(cycle(KINDS), dict.fromkeys(step.kind for step in steps), strict=False):
        own = [step for step in steps if step.kind == kind]
        places, losses = [step.index for step in own], [step.loss for step in own]
        axes.scatter(places, losses, s=22, color=colour, marker=marker, linewidths=0, label=f"{kind} step")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="y", color=FAINT, linewidth=0.7)
    axes.legend()


def _draw_evidence(axes: Any, result: Adaptation) -> None:
    """One line for each thing that was looked for: its number beside its limit, which is in the middle."""
    axes.set_axis_off()
    evidence = () if result.verdict is None else result.verdict.evidence
    style.title(
        axes,
        "What was looked for (tinted: speaks for mending)" if evidence else "No steps were taken",
    )
    axes.set(xlim=(0, 1), ylim=(max(len(evidence), 6), 0))
    for place, item in enumerate(evidence):
        colour, weight = (GOOD, "bold") if item.holds else (MUTED, "normal")
        axes.barh(place + 0.72, 1, height=0.16, color=FAINT)
        axes.barh(place + 0.72, 0.5, left=0.5 if item.above else 0, height=0.16, color="#cfe2f6")
        axes.plot([0.5, 0.5], [place + 0.6, place + 0.84], color=INK, linewidth=1)
        axes.plot(item.place, place + 0.72, marker="o", markersize=5, color=colour, clip_on=False)
        name, value, _, word = item.cells
        axes.text(0, place + 0.52, name, fontsize=7.5, color=INK, parse_math=False)
        axes.text(1, place + 0.52, f"{value}, {word}", fontsize=7.5, ha="right", color=colour, fontweight=weight)


def _draw_flips(axes: Any, result: Adaptation) -> None:
    if result.task.kind != "classes":
        _draw_moves(axes, result)
        return
    comparison = result.compare()
    moves = list(comparison.moves.items())[:MOVES]
    more = f"; the {len(moves)} most frequent moves" if len(moves) < len(comparison.moves) else ""
    style.title(axes, f"{comparison.changed} of {comparison.nodes} predictions changed{more}")
    if not moves:
        axes.set_axis_off()
        return
    places = range(len(moves))
    bars = axes.barh(
        places, [number for _, number in moves], color=[class_colour(new) for (_, new), _ in moves], height=0.7
    )
    axes.bar_label(bars, padding=4, fontsize=9, color=INK)
    axes.set_yticks(places, [f"class {old} \N{RIGHTWARDS ARROW} {new}" for (old, new), _ in moves])
    axes.set_ylim(max(4, len(moves)) - 0.5, -0.5)  # from top to bottom, and a single bar is no wall
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.set(xlabel=f"{result.task.rows}, in the colour of the class after")
    axes.margins(x=0.12)


def _draw_moves(axes: Any, result: Adaptation) -> None:
    """Of labels, how often each changed; of numbers, what they were and what they are; of others, a sentence."""
    task = result.task
    if not task.predicts:
        style.title(axes, "The output is an embedding" if task.kind else "What the output is is not known; name task=")
        axes.set_axis_off()
        return
    comparison = result.compare()
    style.title(axes, f"{comparison.changed} of {comparison.nodes} {task.rows} changed")
    axes.grid(axis="y", color=FAINT, linewidth=0.7)
    if task.kind == "labels":
        counts = comparison.per_label["changed"]
        axes.bar(range(len(counts)), counts, color=COLOURS[0])
        axes.set(xlabel="label", ylabel=f"{task.rows} that changed")
        return
    old, new = (rows.detach().double().reshape(len(rows), -1).cpu().numpy() for rows in (result.before, result.logits))
    if old.size > style.DENSE:
        style.density(axes, np.stack([old.reshape(-1), new.reshape(-1)], 1))
    else:
        for column in range(min(old.shape[1], style.CLASSES)):
            axes.scatter(old[:, column], new[:, column], s=10, alpha=0.7, linewidths=0, color=class_colour(column))
    axes.axline((0, 0), slope=1, color=MUTED, linewidth=0.8, zorder=0)
    axes.set(xlabel="number before", ylabel="number after")


def _draw_embeddings(figure: Any, first: Any, second: Any, result: Adaptation) -> str:
    """Draw both panels; returns notes about them."""
    groups = groups_of(result)
    points = plane(result, sampled(len(groups.before), POINTS))
    _draw_embedding(first, "Embedding before", points, points.before, groups.before, groups)
    _draw_embedding(second, "Embedding after", points, points.after, groups.after, groups)
    both = np.concatenate([points.before, points.after])
    low, high = both.min(0), both.max(0)
    margin = 0.05 * (high - low) + 1e-9
    for axes in (first, second):
        axes.set(xlim=(low[0] - margin[0], high[0] + margin[0]), ylim=(low[1] - margin[1], high[1] + margin[1]))
    drawn, total, has_classes = len(points.nodes), len(groups.before), result.task.kind == "classes"
    some, many = groups.changed[points.nodes].any(), _many_changed(points, groups)
    present = {*groups.before[points.nodes].tolist(), *groups.after[points.nodes].tolist()}
    ring = "prediction changed" if some and not many else ""
    style.legend(figure, first, style.class_marks(present if has_classes else (), "class", ring))
    notes = [f"Embedding: {drawn:,} of {total:,} nodes, drawn at random." if drawn < total else "Embedding: all nodes."]
    notes += ["Nodes whose prediction did not change are faint."] if many else []
    if points.circle is not None:
        notes.append("Within the dashed circle distances are true; outside it they grow with the logarithm.")
    return " ".join(notes)


def _many_changed(points: Plane, groups: Groups) -> bool:
    """Whether so many predictions changed that rings around them would hide everything else."""
    return bool(groups.changed[points.nodes].mean() > RINGS)


def _draw_embedding(axes: Any, title: str, points: Plane, places: Any, classes: Any, groups: Groups) -> None:
    nodes = points.nodes
    style.title(axes, title)
    changed, many = groups.changed[nodes], _many_changed(points, groups)
    if points.circle is not None:
        axes.plot(*(points.circle * _TURN), color=MUTED, linewidth=0.7, linestyle=(0, (6, 5)), zorder=0)
    colours = [class_colour(int(number)) for number in classes[nodes]]
    style.points(axes, places, colours, ~changed if many else None)
    if not many:
        axes.scatter(*places[changed].T, s=30, facecolors="none", edgecolors=INK, linewidths=0.6)
    if len(np.unique(classes)) > 1:
        style.labels(axes, places, classes[nodes])
    axes.set(xlabel="first main direction", ylabel="second main direction")
    axes.set_xticks([])
    axes.set_yticks([])
