"""Plots of the demo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmend.errors import optional_module
from graphmend.files.files import write_atomically
from graphmend.lab import INSTALL

if TYPE_CHECKING:
    from graphmend.lab.demo.run import Demo

GREY, RED, BLUE, GREEN = "#9aa0a6", "#d1495b", "#5b8db8", "#2a9d8f"
BARS = (
    ("clean", "clean graph", GREY, ""),
    ("before", "harmed graph", RED, ""),
    ("after", "GTrans, tuned", BLUE, ""),
    ("gate", "gate with a source card, no labels", GREEN, ""),
    ("asked", "gate that may ask for a few labels", "#ffffff", "////"),
)
"""Column, label, colour and hatching of each bar."""


def _pyplot() -> Any:
    optional_module("matplotlib", "a plot", INSTALL).use("Agg")
    import matplotlib.pyplot as plt

    return plt


def accuracy_plot(demo: Demo, path: Path) -> None:
    """Accuracy per scenario: clean, harmed, mended by GTrans and by the gate, one dot per seed."""
    plt = _pyplot()
    rows = demo.table()
    figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
    for k, (key, label, colour, hatch) in enumerate(BARS):
        at = np.arange(len(rows)) + 0.17 * (k - (len(BARS) - 1) / 2)
        style = {"color": colour, "alpha": 0.75} if not hatch else {"color": colour, "edgecolor": GREEN, "hatch": hatch}
        axes.bar(at, [row[key] for row in rows], 0.155, label=label, **style)
        for x, row in zip(at, rows, strict=True):
            values = [getattr(o, key) for o in demo.outcomes if o.scenario == row["scenario"]]
            axes.plot(np.full(len(values), x), values, "o", color="black", markersize=2.5, alpha=0.6)
            axes.annotate(
                f"{row[key]:.1f}", (x, max(values)), (0, 4), textcoords="offset points", ha="center", fontsize=8
            )
    lowest = min(o.before for o in demo.outcomes)
    axes.set_ylim(max(0.0, 10 * (lowest // 10) - 10), 104)
    axes.set_xticks(np.arange(len(rows)), [_with_labels(row) for row in rows])
    axes.set_ylabel("test accuracy (%)")
    axes.set_title(f"One frozen GCN, handwritten digits, {rows[0]['seeds']} seeds (dots)", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, fontsize=8, ncols=len(BARS), loc="outside lower center", columnspacing=1.2)
    _save(figure, path)


def _with_labels(row: dict[str, Any]) -> str:
    return f"{row['scenario']}\n(hatched: {row['labels']:.0f} labels a graph)"


def embedding_plot(demo: Demo, path: Path) -> None:
    """t-SNE of the embedding Z before and after GTrans, coloured by digit, one row per scenario."""
    plt = _pyplot()
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    rows = demo.embeddings
    figure, axes = plt.subplots(len(rows), 2, figsize=(7, 3.1 * len(rows)), layout="constrained", squeeze=False)
    for (left, right), embedding in zip(axes, rows, strict=True):
        shown = slice(0, 400)  # enough nodes to see clusters, few enough to be quick
        both = np.concatenate([embedding.before[shown].numpy(), embedding.after[shown].numpy()])
        with threadpool_limits(1):  # for so few points more threads are slower
            points = TSNE(init="pca", perplexity=30, random_state=0, max_iter=500).fit_transform(both)
        middle = len(points) // 2
        for axis, part, title in (
            (left, points[:middle], f"before, {embedding.accuracy_before:.1f} % right"),
            (right, points[middle:], f"after GTrans, {embedding.accuracy_after:.1f} % right"),
        ):
            dots = axis.scatter(*part.T, c=embedding.labels[shown].numpy(), cmap="tab10", s=6, linewidths=0)
            axis.set_title(f"{embedding.scenario}: {title}", fontsize=9)
            axis.set_xticks([])
            axis.set_yticks([])
    figure.legend(
        *dots.legend_elements(), loc="outside lower center", ncols=10, frameon=False, fontsize=8, title="digit"
    )
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=130))
    figure.clear()
    _pyplot().close(figure)
