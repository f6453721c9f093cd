"""Figure of the paper: adapting the model by the same loss or the data, under shift and abnormal features.

The paper's numbers are those of its other tables; it shows fine-tuning in a figure only.
"""

from __future__ import annotations

from typing import Any

from graphmend.lab.bench.experiment import Choice, Experiment, Measure, published
from graphmend.lab.bench.figures import bars
from graphmend.lab.bench.presets import STAND_INS, abnormal_settings, ood_settings, paper, preset
from graphmend.lab.bench.recipes import (
    BY_LABELS,
    BY_LABELS_NOTE,
    NOISE,
    ROBUST_SETS,
    abnormal_score,
    adapt_run,
    noisy_run,
    score,
    setting_of,
    train_run,
)

__all__ = ["EXPERIMENT"]

SHIFTED = ("photo-ood", "cora-ood", "twitch-e", "fb100", "arxiv-votes-ood", "elliptic-size")
METHODS = ("none", "fine_tune", "gtrans")


def _shifted(choice: Choice, method: str, dataset: str) -> list[Measure]:
    released = ood_settings(dataset)
    adapters: dict[str, dict[str, Any]] = {
        "fine_tune": {"name": "fine_tune", "lr": released["lr_feature"], "steps": released["steps"]},
        "gtrans": released,
    }
    runs = tuple(
        adapt_run(train_run(dataset, "gcn", seed, choice.trainer()), adapters.get(method)) for seed in choice.seeds
    )
    known = paper("ood_accuracy")["gcn"].get("erm" if method == "none" else method, {})
    number = published(known.get(STAND_INS.get(dataset, dataset)), dataset)
    return [Measure((dataset, method), "all test nodes", runs, score, number)]


def _noisy(choice: Choice, method: str, dataset: str) -> list[Measure]:
    released = abnormal_settings(dataset, **BY_LABELS)
    weight = {"surrogate_weight": released["surrogate_weight"]}
    adapters: dict[str, dict[str, Any]] = {
        "fine_tune": {"name": "fine_tune", **preset("fine_tune", "abnormal"), **weight, **BY_LABELS},
        "gtrans": released,
    }
    runs = tuple(noisy_run(choice, dataset, seed, NOISE, adapters.get(method)) for seed in choice.seeds)
    known = paper("abnormal").get(STAND_INS.get(dataset, dataset), {"all": {}, "abnormal": {}})
    row = {"gtrans": "combined"}.get(method, method)
    return [
        Measure((dataset, method), "all test nodes", runs, score, published(known["all"].get(row), dataset)),
        Measure(
            (dataset, method), "abnormal nodes", runs, abnormal_score, published(known["abnormal"].get(row), dataset)
        ),
    ]


def _measures(choice: Choice) -> list[Measure]:
    return [
        measure
        for dataset in choice.datasets
        for method in choice.methods
        for measure in (_shifted if setting_of(dataset) == "ood" else _noisy)(choice, method, dataset)
    ]


EXPERIMENT = Experiment.of_measures(
    "model-vs-data",
    "Adapting the model or the data, under distribution shift and with 30 % abnormal test nodes",
    Choice((*SHIFTED, *ROBUST_SETS), ("gcn",), METHODS),
    "both",
    _measures,
    draw=bars,
    baseline="none",
    tested=METHODS[1:],
    footer=[
        BY_LABELS_NOTE,
        "Fine-tuning keeps the weights with the best validation accuracy there.",
    ],
)
