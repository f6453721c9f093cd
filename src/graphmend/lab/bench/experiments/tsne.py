"""The paper's t-SNE figure: embeddings of Cora's test nodes at 30 % abnormal features, before and after GTrans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from graphmend.lab.bench.experiment import Choice, Experiment, Measure
from graphmend.lab.bench.figures import legend_below, panels
from graphmend.lab.bench.presets import abnormal_settings
from graphmend.lab.bench.recipes import BY_LABELS, BY_LABELS_NOTE, NOISE, noisy_run
from graphmend.lab.bench.store import Result, Run, Store

__all__ = ["EXPERIMENT"]


def _run(dataset: str, seed: int, choice: Choice) -> Run:
    gtrans = abnormal_settings(dataset, **BY_LABELS)
    return replace(noisy_run(choice, dataset, seed, NOISE, gtrans), task="tsne")


def _silhouette(part: str, place: int) -> Callable[[Result], float]:
    return lambda result: float(result["silhouettes"][part][place])


def _measures(choice: Choice) -> list[Measure]:
    return [
        Measure((dataset, words), column, runs, _silhouette(part, place), None, 3)
        for dataset in choice.datasets
        for runs in [tuple(_run(dataset, seed, choice) for seed in choice.seeds)]
        for part, column in (("all", "all test nodes"), ("abnormal", "abnormal nodes"))
        for place, words in enumerate(("before", "after"))
    ]


def _figure(choice: Choice, store: Store) -> Any:
    figure, axes = panels(2 * len(choice.datasets), 2, (4.2, 3.9))
    from matplotlib.lines import Line2D

    classes: set[int] = set()
    for index, dataset in enumerate(choice.datasets):
        result = store.result(_run(dataset, choice.seeds[0], choice))
        if result is None:
            return None
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


ITEM = "Embeddings of Cora's test nodes, 30 % of them abnormal, before and after GTrans: silhouettes of the classes"
EXPERIMENT = replace(
    Experiment.of_measures(
        "tsne",
        ITEM,
        Choice(("cora",)),
        "robust",
        _measures,
        footer=[
            "The silhouette is that of the true classes in the second-last layer, from -1 to 1; the figure shows its "
            "t-SNE for seed 0.",
            BY_LABELS_NOTE,
        ],
        baseline="before",
        tested=(),
    ),
    figure=_figure,
)
