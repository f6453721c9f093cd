"""The paper's t-SNE figure: embeddings of Cora's test nodes at 30 % abnormal features, before and after GTrans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphmend.lab.bench.experiment import Choice, Experiment
from graphmend.lab.bench.figures import legend_below, panels
from graphmend.lab.bench.presets import abnormal_settings
from graphmend.lab.bench.recipes import BY_LABELS, NOISE, noisy_run
from graphmend.lab.bench.store import Run, Store

__all__ = ["EXPERIMENT"]


def _runs(choice: Choice) -> list[Run]:
    """One seed is drawn."""
    return [_run(dataset, choice) for dataset in choice.datasets]


def _run(dataset: str, choice: Choice) -> Run:
    gtrans = abnormal_settings(dataset, **BY_LABELS)
    return replace(noisy_run(choice, dataset, choice.seeds[0], NOISE, gtrans), task="tsne")


def _figure(choice: Choice, store: Store) -> Any:
    figure, axes = panels(2 * len(choice.datasets), 2, (4.2, 3.9))
    from matplotlib.lines import Line2D

    classes: set[int] = set()
    for index, dataset in enumerate(choice.datasets):
        result = store.require(_run(dataset, choice))
        classes |= set(result["labels"])
        for axis, part, score, word in zip(
            axes[2 * index :], ("before", "after"), result["scores"], ("before", "after GTrans"), strict=False
        ):
            _draw(axis, np.array(result[part]), np.array(result["labels"]), np.array(result["abnormal"]))
            axis.set_title(f"{dataset}, {word}: {score:.1f} % accuracy", fontsize=9)
    style: dict[str, Any] = {"linestyle": "", "markersize": 5}
    handles = [Line2D([], [], marker="o", color=f"C{label}", **style) for label in sorted(classes)]
    handles.append(Line2D([], [], marker="o", markerfacecolor="none", color="black", **style))
    labels = [f"class {label}" for label in sorted(classes)] + ["abnormal"]
    legend_below(figure, handles, labels, columnspacing=1.0, handletextpad=0.1)
    return figure


def _draw(axis: Any, points: Any, labels: Any, abnormal: Any) -> None:
    colours = [f"C{label}" for label in labels]
    axis.scatter(*points.T, c=colours, s=7, linewidths=0, alpha=0.85)
    axis.scatter(*points[abnormal].T, s=16, facecolors="none", edgecolors="black", linewidths=0.5)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[["top", "right"]].set_visible(True)


EXPERIMENT = Experiment(
    "tsne",
    "Embeddings of Cora's test nodes, 30 % of them abnormal, before and after GTrans (t-SNE)",
    Choice(("cora",), ("gcn",), (), (0,)),
    "robust",
    _runs,
    figure=_figure,
)
