"""One figure of a result: the loss, the predictions that changed, and the embedding before and after."""

from __future__ import annotations

import textwrap
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graphmend.errors import listed, optional_module, require
from graphmend.files.files import write_atomically
from graphmend.outputs import changed_rows, predicted

if TYPE_CHECKING:
    from graphmend.results.adaptation import Adaptation

__all__ = ["plot"]

Array = np.ndarray[Any, np.dtype[Any]]

POINTS = 4000  # nodes in the pictures of the embedding; more would only cover each other
MOVES = 8  # bars
CLASSES = 10  # with a colour and an entry in the legend of their own
INSTALL = "install it with: pip install 'graphmend[plot]'"
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee8866", "#44bb99", "#994455", "#222255")
OTHERS = "#bbbbbb"
KINDS = (("#333333", "o"), ("#dd7700", "s"), ("#7755aa", "^"), ("#009999", "D"))  # of steps; not the colours of classes


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
    figure = optional_module("matplotlib.figure", "a plot", INSTALL).Figure(
        figsize=(11, 8), dpi=110, layout="constrained"
    )
    form, forms = "" if path is None else Path(path).suffix[1:].lower(), figure.canvas.get_supported_filetypes()
    is_possible = path is None or form in forms
    require(is_possible, f"a figure cannot be saved as {str(path)!r}; end the name with one of {listed(forms)}")
    loss, flips, first, second = figure.subplots(2, 2).flat
    figure.suptitle(_title(result), fontsize=11, parse_math=False)
    _draw_loss(loss, result)
    _draw_flips(flips, result)
    _draw_embeddings(figure, first, second, result)
    if path is not None:
        write_atomically(path, lambda temporary: figure.savefig(temporary, format=form))
    return figure


def _title(result: Adaptation) -> str:
    why = str(result.verdict) if result.verdict is not None else f"left alone: {result.reason}" if result.reason else ""
    lines = [*textwrap.wrap(why, 120, max_lines=3), result.patch.summary()]
    return "\n".join(lines)


def _draw_loss(axes: Any, result: Adaptation) -> None:
    if not result.history:
        _draw_evidence(axes, result)
        return
    axes.set(title="Loss", xlabel="step", ylabel="surrogate loss")
    axes.plot([s.index for s in result.history], [s.loss for s in result.history], color=OTHERS, linewidth=1, zorder=1)
    for (colour, marker), kind in zip(cycle(KINDS), dict.fromkeys(step.kind for step in result.history), strict=False):
        steps = [step for step in result.history if step.kind == kind]
        places, losses = [step.index for step in steps], [step.loss for step in steps]
        axes.scatter(places, losses, s=22, color=colour, marker=marker, label=f"{kind} step")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)


def _draw_evidence(axes: Any, result: Adaptation) -> None:
    axes.set_axis_off()
    evidence = () if result.verdict is None else result.verdict.evidence
    axes.set_title("Evidence" if evidence else "No steps were taken", loc="left")
    height = 1 / max(12, len(evidence))
    for place, item in enumerate(evidence):
        look = {"color": "#333333"} if item.holds else {"color": "#bb2200", "fontweight": "bold"}
        axes.text(
            0, 1 - (place + 0.7) * height, str(item), fontsize=8, transform=axes.transAxes, parse_math=False, **look
        )


def _draw_flips(axes: Any, result: Adaptation) -> None:
    if result.task.kind != "classes":
        _draw_moves(axes, result)
        return
    comparison = result.compare()
    moves = list(comparison.moves.items())[:MOVES]
    more = f"; the {len(moves)} most frequent moves" if len(moves) < len(comparison.moves) else ""
    axes.set(title=f"{comparison.changed} of {comparison.nodes} predictions changed{more}")
    if not moves:
        axes.set_axis_off()
        return
    places = range(len(moves))
    bars = axes.barh(places, [number for _, number in moves], color=[_colour(new) for (_, new), _ in moves])
    axes.bar_label(bars, padding=3)
    axes.set_yticks(places, [f"class {old} \N{RIGHTWARDS ARROW} {new}" for (old, new), _ in moves])
    axes.set_ylim(max(4, len(moves)) - 0.5, -0.5)  # from top to bottom, and a single bar is no wall
    axes.set(xlabel="nodes, in the colour of the class after")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_moves(axes: Any, result: Adaptation) -> None:
    """Of labels, how often each changed; of numbers, what they were and what they are; of others, a sentence."""
    task = result.task
    if not task.predicts:
        axes.set_title("The output is an embedding" if task.kind else "What the output is is not known; name task=")
        axes.set_axis_off()
        return
    comparison = result.compare()
    axes.set(title=f"{comparison.changed} of {comparison.nodes} {task.rows} changed")
    axes.grid(alpha=0.25)
    if task.kind == "labels":
        counts = comparison.per_label["changed"]
        axes.bar(range(len(counts)), counts, color=COLOURS[0])
        axes.set(xlabel="label", ylabel=f"{task.rows} that changed")
        return
    old, new = (rows.detach().double().reshape(len(rows), -1).cpu().numpy() for rows in (result.before, result.logits))
    chosen = _sampled(len(old))
    for column in range(min(old.shape[1], CLASSES)):
        axes.scatter(old[chosen, column], new[chosen, column], s=8, alpha=0.6, color=_colour(column))
    axes.set(xlabel="number before", ylabel="number after")


def _classes_of_nodes(result: Adaptation) -> tuple[Array, Array, Array]:
    """A colour number for each node before and after, and whether its prediction changed."""
    task, nodes = result.task, result.data.x.size(0)
    if task.kind == "classes":
        old, new = predicted(task, result.before), result.predictions
    else:
        old = new = torch.zeros(result.logits.size(0), dtype=torch.long)
    changed = (
        changed_rows(task, result.before, result.logits) if task.predicts else torch.zeros(len(new), dtype=torch.bool)
    )
    columns = [values.cpu() for values in (old, new, changed)]
    if len(columns[0]) != nodes:
        graph = result.graph_of_nodes().cpu()
        columns = [values[graph] for values in columns]
    return columns[0].numpy(), columns[1].numpy(), columns[2].numpy()


def _draw_embeddings(figure: Any, first: Any, second: Any, result: Adaptation) -> None:
    old, new, flipped = _classes_of_nodes(result)
    nodes = _sampled(len(old))
    points = _planes(result, nodes)
    changed = flipped[nodes]
    for axes, name, places, classes in ((first, "before", points[0], old), (second, "after", points[1], new)):
        colours = [_colour(int(number)) for number in classes[nodes]]
        axes.scatter(*places.T, s=12, c=colours, linewidths=0, alpha=0.8)
        axes.scatter(*places[changed].T, s=30, facecolors="none", edgecolors="black", linewidths=0.6)
        axes.set(title=f"Embedding {name}", xlabel="first main direction", ylabel="second main direction")
        axes.grid(alpha=0.25)
    both = np.concatenate(points)
    low, high = both.min(0), both.max(0)
    margin = 0.05 * (high - low) + 1e-9
    for axes in (first, second):
        axes.set(xlim=(low[0] - margin[0], high[0] + margin[0]), ylim=(low[1] - margin[1], high[1] + margin[1]))
    present = sorted({*old[nodes].tolist(), *new[nodes].tolist()})
    marks = [first.scatter([], [], s=22, color=_colour(number)) for number in present if number < CLASSES]
    named = "predicted class {}" if result.task.kind == "classes" else "node"
    names = [named.format(number) for number in present if number < CLASSES]
    if len(names) < len(present):
        marks.append(first.scatter([], [], s=22, color=OTHERS))
        names.append("other classes")
    if changed.any():
        marks.append(first.scatter([], [], s=40, facecolors="none", edgecolors="black"))
        names.append("prediction changed")
    figure.legend(marks, names, loc="outside lower center", ncols=4, frameon=False)


def _sampled(nodes: int) -> Array:
    chosen = torch.randperm(nodes, generator=torch.Generator().manual_seed(0))[:POINTS]
    return chosen.sort().values.numpy()


def _planes(result: Adaptation, nodes: Array) -> tuple[Array, Array]:
    """The embeddings of some nodes before and after in one plane."""
    rerun, patch = result.require_rerun(), result.patch
    weights_count = patch.weight_bits is not None or patch.new_weights is not None
    graphs = [
        rerun.embedding_of(result.graph_before(), rerun.model),
        rerun.embedding_of(result.data, result.model, weights_count=weights_count),
    ]
    z = np.concatenate([graph.flatten(1)[torch.from_numpy(nodes).to(graph.device)].double().cpu() for graph in graphs])
    z = z - z.mean(0)
    _, _, directions = np.linalg.svd(z.T @ z)  # the covariance is as small as Z is wide
    plane = z @ directions[:2].T
    plane = np.pad(plane, ((0, 0), (0, 2 - plane.shape[1])))
    return plane[: len(nodes)], plane[len(nodes) :]


def _colour(number: int) -> str:
    return COLOURS[number] if number < CLASSES else OTHERS
