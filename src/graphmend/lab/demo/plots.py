"""Plots of the demo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmend.results import style

if TYPE_CHECKING:
    from graphmend.lab.demo.run import Demo

GATE = style.COLOURS[0]
BARS = (
    ("clean", "clean graph", style.COLOURS[3], ""),
    ("before", "harmed graph", style.COLOURS[2], ""),
    ("after", "GTrans, tuned", style.COLOURS[1], ""),
    ("gate", "gate with a source card, no labels", GATE, ""),
    ("asked", "gate that may ask for a few labels", "#ffffff", "////"),
)
"""Column, label, colour and hatching of each bar."""


def accuracy_plot(demo: Demo, path: Path) -> None:
    """Accuracy per scenario: clean, harmed, mended by GTrans and by the gate, one dot per seed."""
    rows = demo.table()
    figure = style.figure(10, 5)
    axes = figure.subplots()
    bars = {}
    for k, (key, label, colour, hatch) in enumerate(BARS):
        at = np.arange(len(rows)) + 0.17 * (k - (len(BARS) - 1) / 2)
        lines = {"edgecolor": GATE, "hatch": hatch} if hatch else {"alpha": 0.85}
        bars[label] = axes.bar(at, [row[key] for row in rows], 0.155, color=colour, **lines)
        for x, row in zip(at, rows, strict=True):
            values = [getattr(o, key) for o in demo.outcomes if o.scenario == row["scenario"]]
            axes.plot(np.full(len(values), x), values, "o", color=style.INK, markersize=2.5, alpha=0.6)
            axes.annotate(
                f"{row[key]:.1f}",
                (x, max(values)),
                (0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=style.INK,
            )
    lowest = min(o.before for o in demo.outcomes)
    axes.set_ylim(max(0.0, 10 * (lowest // 10) - 10), 104)
    axes.set_xticks(np.arange(len(rows)), [_with_labels(row) for row in rows])
    axes.set_ylabel("test accuracy (%)")
    axes.grid(axis="y", linewidth=0.5, color=style.FAINT)
    style.legend(figure, axes, bars, 3.2)
    style.heading(
        figure,
        "What mending does for one frozen GCN",
        f"Handwritten digits; a dot is one of {rows[0]['seeds']} seeds, a bar their mean.",
    )
    style.dress(figure)
    style.save(figure, path)


def _with_labels(row: dict[str, Any]) -> str:
    return f"{row['scenario']}\n(hatched: {row['labels']:.0f} labels a graph)"


def embedding_plot(demo: Demo, path: Path) -> None:
    """t-SNE of the embedding Z before and after GTrans, coloured by digit, one row per scenario."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    rows = demo.embeddings
    figure = style.figure(8, 3.4 * len(rows) + 0.8)
    axes = figure.subplots(len(rows), 2, squeeze=False)
    for (left, right), embedding in zip(axes, rows, strict=True):
        shown = slice(0, 400)  # enough nodes to see clusters, few enough to be quick
        both = np.concatenate([embedding.before[shown].numpy(), embedding.after[shown].numpy()])
        with threadpool_limits(1):  # for so few points more threads are slower
            points = TSNE(init="pca", perplexity=30, random_state=0, max_iter=500).fit_transform(both)
        middle, labels = len(points) // 2, embedding.labels[shown].numpy()
        for axis, part, title in (
            (left, points[:middle], f"before, {embedding.accuracy_before:.1f} % right"),
            (right, points[middle:], f"after GTrans, {embedding.accuracy_after:.1f} % right"),
        ):
            style.points(axis, part, [style.class_colour(int(label)) for label in labels])
            style.labels(axis, part, labels)
            style.title(axis, f"{embedding.scenario}: {title}")
            axis.set(xticks=[], yticks=[])
    style.legend(figure, axes[0][0], style.class_marks(range(10), ""), 0.7)
    style.heading(figure, "Embeddings of digits before and after GTrans", "t-SNE of 400 nodes.")
    style.dress(figure)
    style.save(figure, path)
