"""What the ablations of GTrans share: 30 % abnormal test nodes and attacks, one row per variant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphmend.lab.bench.experiment import Choice, Experiment, Measure, published
from graphmend.lab.bench.presets import STAND_INS, abnormal_settings, attack_settings, paper
from graphmend.lab.bench.recipes import (
    ATTACK_NOTE,
    BY_LABELS,
    BY_LABELS_NOTE,
    NOISE,
    RATES,
    ROBUST_SETS,
    abnormal_score,
    attacked_run,
    noisy_run,
    score,
)

__all__ = ["ablation"]

Variant = Callable[[dict[str, Any]], dict[str, Any] | None]
"""From the settings of GTrans to those of a variant, or to ``None`` for no mending."""


def ablation(
    name: str, item: str, variants: Mapping[str, Variant], abnormal: Mapping[str, str], attack: Mapping[str, str]
) -> Experiment:
    """A table of variants.

    Args:
        name: As it is typed.
        item: What it is in the paper.
        variants: By name; the first one is what the others are compared with.
        abnormal: Their names among the paper's numbers for abnormal features.
        attack: Their names among the paper's numbers for attacks.
    """

    def measures(choice: Choice) -> list[Measure]:
        return [measure for dataset in choice.datasets for measure in _of_set(choice, dataset, variants, numbers)]

    numbers = (abnormal, attack)
    choice = Choice(ROBUST_SETS, ("gcn",), tuple(variants))
    footer = [BY_LABELS_NOTE, ATTACK_NOTE]
    return Experiment.of_measures(name, item, choice, "robust", measures, baseline=next(iter(variants)), footer=footer)


def _of_set(
    choice: Choice, dataset: str, variants: Mapping[str, Variant], names: tuple[Mapping[str, str], Mapping[str, str]]
) -> list[Measure]:
    real = STAND_INS.get(dataset, dataset)
    abnormal, attack = paper("abnormal").get(real, {}), paper("attack") if real == "arxiv" else {}
    measures = []
    for method in choice.methods:
        row, change = (dataset, method), variants[method]
        adapter = change(abnormal_settings(dataset, **BY_LABELS))
        runs = tuple(noisy_run(choice, dataset, seed, NOISE, adapter) for seed in choice.seeds)
        for kind, words, value in (("all", "all test nodes", score), ("abnormal", "abnormal nodes", abnormal_score)):
            number = published(abnormal.get(kind, {}).get(names[0][method]), dataset)
            measures.append(Measure(row, f"noise: {words}", runs, value, number))
        adapter = change(attack_settings("paper", **BY_LABELS))
        known = attack.get(names[1][method], [None] * len(RATES))
        for rate, number in choice.few(list(zip(RATES, known, strict=True))):
            runs = tuple(attacked_run(choice, dataset, seed, rate, adapter) for seed in choice.seeds)
            measures.append(Measure(row, f"attack {rate:.0%}", runs, score, published(number, dataset)))
    return measures
