"""Figure of the paper: accuracy when the features of some test nodes are noise, by their share."""

from __future__ import annotations

import functools
from typing import Any

from graphmend.lab.bench.experiment import Choice, Experiment, Measure, published
from graphmend.lab.bench.figures import curves
from graphmend.lab.bench.presets import STAND_INS, abnormal_settings, paper, preset
from graphmend.lab.bench.recipes import (
    BY_LABELS,
    BY_LABELS_NOTE,
    NOISE,
    ROBUST_SETS,
    abnormal_score,
    first_of_group,
    noisy_run,
    score,
    train_run,
    tune_run,
)
from graphmend.lab.bench.store import Run

__all__ = ["EXPERIMENT"]

RATIOS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)
METHODS = ("gcn", "gat", "appnp", "airgnn", "airgnn_tune", "gtrans", "gtrans_tuned", "gtrans_by_loss")
KINDS = {"all": ("all test nodes", score), "abnormal": ("abnormal nodes", abnormal_score)}


def _run(choice: Choice, method: str, dataset: str, seed: int, ratio: float) -> Run:
    released = abnormal_settings(dataset, **BY_LABELS)
    adapters: dict[str, dict[str, Any]] = {
        "airgnn_tune": {"name": "airgnn_tune"},
        "gtrans": released,
        "gtrans_tuned": released,
        "gtrans_by_loss": abnormal_settings(dataset),
    }
    backbone = {"airgnn_tune": "airgnn", **{name: name for name in METHODS[1:4]}}.get(method, "gcn")
    options: dict[str, Any] = {"backbone": backbone}
    if method == "gtrans_tuned":
        train = train_run(dataset, "gcn", first_of_group(seed), choice.trainer())
        grid = preset("gtrans", "abnormal", "grid")
        grid = {name: choice.few(values)[:1] for name, values in grid.items()} if choice.smoke else grid
        options["tune"] = tune_run(train, released, grid, abnormal=NOISE)
    return noisy_run(choice, dataset, seed, ratio, adapters.get(method), **options)


def _measures(choice: Choice) -> list[Measure]:
    measures = []
    for dataset in choice.datasets:
        for kind, (words, value) in KINDS.items():
            known = paper("abnormal").get(STAND_INS.get(dataset, dataset), {}).get(kind, {})
            numbers = {"gcn": known.get("none"), "gtrans": known.get("combined")}
            for method in choice.methods:
                for ratio in choice.few(RATIOS):
                    runs = tuple(_run(choice, method, dataset, seed, ratio) for seed in choice.seeds)
                    number = published(numbers.get(method), dataset) if ratio == NOISE else None
                    measures.append(Measure((dataset, words, method), f"{ratio:.0%}", runs, value, number))
    return measures


EXPERIMENT = Experiment.of_measures(
    "abnormal-features",
    "Accuracy under abnormal features, by their share of the test nodes",
    Choice(ROBUST_SETS, ("gcn",), METHODS, tuple(range(10))),
    "robust",
    _measures,
    draw=functools.partial(curves, label="abnormal test nodes"),
    baseline="gcn",
    tested=("gtrans",),
    footer=[
        BY_LABELS_NOTE,
        "gtrans_by_loss keeps the last iterate and the lowest loss, as the paper says.",
    ],
)
