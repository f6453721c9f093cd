"""Table of the paper: GTrans by the budget of edges that it may flip, in all three settings, on OGB-Arxiv."""

from __future__ import annotations

import functools
from collections.abc import Callable

from graphmend.lab.bench.experiment import Choice, Experiment, Measure, published
from graphmend.lab.bench.figures import curves
from graphmend.lab.bench.presets import STAND_INS, abnormal_settings, attack_settings, ood_settings, paper
from graphmend.lab.bench.recipes import (
    ATTACK_NOTE,
    BY_LABELS,
    BY_LABELS_NOTE,
    NOISE,
    adapt_run,
    attacked_run,
    noisy_run,
    score,
    setting_of,
    train_run,
)
from graphmend.lab.bench.store import Run

__all__ = ["EXPERIMENT"]

BUDGETS = (0.005, 0.01, 0.05, 0.1, 0.2, 0.3)
RATE = 0.2


def _shifted(choice: Choice, dataset: str, seed: int, budget: float) -> Run:
    train = train_run(dataset, "gcn", seed, choice.trainer())
    return adapt_run(train, ood_settings(dataset, budget=budget))


def _noisy(choice: Choice, dataset: str, seed: int, budget: float) -> Run:
    return noisy_run(choice, dataset, seed, NOISE, abnormal_settings(dataset, budget=budget, **BY_LABELS))


def _attacked(choice: Choice, dataset: str, seed: int, budget: float) -> Run:
    return attacked_run(choice, dataset, seed, RATE, attack_settings("paper", budget=budget, **BY_LABELS))


ROWS: dict[str, dict[str, tuple[str, Callable[[Choice, str, int, float], Run]]]] = {
    "ood": {"distribution shift": ("ood", _shifted)},
    "robust": {"abnormal features": ("abnormal", _noisy), "attack": ("attack", _attacked)},
}


def _measures(choice: Choice) -> list[Measure]:
    measures = []
    for dataset in choice.datasets:
        for words, (name, run) in ROWS[setting_of(dataset)].items():
            numbers = paper("budget")[name] if STAND_INS.get(dataset, "").startswith("arxiv") else [None] * len(BUDGETS)
            for budget, number in choice.few(list(zip(BUDGETS, numbers, strict=True))):
                runs = tuple(run(choice, dataset, seed, budget) for seed in choice.seeds)
                measures.append(
                    Measure((dataset, words, "gtrans"), f"{100 * budget:g}%", runs, score, published(number, dataset))
                )
    return measures


EXPERIMENT = Experiment.of_measures(
    "budget",
    "GTrans by its budget of flipped edges: shift, 30 % abnormal test nodes, attack of 20 %",
    Choice(("arxiv-votes-ood", "arxiv-votes", "arxiv-size-ood", "cora"), ("gcn",), ("gtrans",)),
    "both",
    _measures,
    draw=functools.partial(curves, label="edges that may flip"),
    footer=[
        BY_LABELS_NOTE,
        ATTACK_NOTE,
    ],
)
