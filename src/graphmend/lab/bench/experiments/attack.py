"""Table of the paper: accuracy under a structure attack (PR-BCD), by its budget.

The paper does not say at which nodes the attacked model shall err: ``attack`` has the test nodes, ``attack-all`` all
nodes. ``attack-variants`` has the released code's port of PR-BCD beside the official one.
"""

from __future__ import annotations

import functools
from typing import Any

from graphmend.lab.bench.experiment import Choice, Experiment, Measure, published
from graphmend.lab.bench.figures import curves
from graphmend.lab.bench.presets import STAND_INS, attack_settings, paper, preset
from graphmend.lab.bench.recipes import (
    ATTACK_NOTE,
    BY_LABELS,
    BY_LABELS_NOTE,
    RATES,
    ROBUST_SETS,
    attack_of,
    attacked_run,
    first_of_group,
    score,
    train_run,
    tune_run,
)
from graphmend.lab.bench.store import Run

__all__ = ["ALL_NODES", "TEST_NODES", "VARIANTS", "tuned_gtrans"]

BACKBONES = ("gcn", "gat", "robust_gcn", "simp_gcn")
METHODS = (*BACKBONES, "jaccard", "jaccard_released", "gtrans", "gtrans_released", "gtrans_tuned", "gtrans_by_loss")
RATE = 0.2


def _run(choice: Choice, method: str, dataset: str, seed: int, rate: float, **attack: str) -> Run:
    if method == "gtrans_tuned":
        adapter = attack_settings("paper", **BY_LABELS)
        tune = tuned_gtrans(choice, dataset, seed, rate, **attack)
        return attacked_run(choice, dataset, seed, rate, adapter, tune=tune, **attack)
    adapters: dict[str, dict[str, Any]] = {
        "jaccard": {"name": "jaccard"},
        "jaccard_released": {"name": "jaccard", "threshold": 0.8},
        "gtrans": attack_settings("paper", **BY_LABELS),
        "gtrans_released": attack_settings("released", **BY_LABELS),
        "gtrans_by_loss": attack_settings("paper"),
    }
    backbone = method if method in BACKBONES else "gcn"
    return attacked_run(choice, dataset, seed, rate, adapters.get(method), backbone=backbone, **attack)


def tuned_gtrans(choice: Choice, dataset: str, seed: int, rate: float, **attack: str) -> Run:
    """The choice of GTrans' settings by the validation accuracy on the attacked graph of the first of five seeds."""
    first = first_of_group(seed)
    train, harm = train_run(dataset, "gcn", first, choice.trainer()), attack_of(dataset, first, rate, choice, **attack)
    grid = preset("gtrans", "attack", "grid")
    grid = {name: values[:1] for name, values in grid.items()} if choice.smoke else grid
    return tune_run(train, attack_settings("paper", **BY_LABELS), grid, attack=harm)


def _measures(choice: Choice, nodes: str) -> list[Measure]:
    measures = []
    for dataset in choice.datasets:
        numbers = paper("attack") if STAND_INS.get(dataset) == "arxiv" else {}
        for method in choice.methods:
            base = method.removesuffix("_released").removesuffix("_tuned")
            known = numbers.get(base, [None] * len(RATES))
            for rate, number in choice.few(list(zip(RATES, known, strict=True))):
                runs = tuple(_run(choice, method, dataset, seed, rate, nodes=nodes) for seed in choice.seeds)
                measures.append(Measure((dataset, method), f"{rate:.0%}", runs, score, published(number, dataset)))
    return measures


NOTES = [
    BY_LABELS_NOTE,
    "gtrans takes 1 feature and 4 edge steps per cycle, as the paper says; gtrans_released takes 4 and 1; gtrans_tuned "
    "has the best of twelve settings by validation accuracy, chosen on the first of five seeds; gtrans_by_loss keeps "
    "the last iterate and the lowest loss. jaccard chooses its threshold by the labels of training and validation "
    "nodes of the attacked graph; jaccard_released has 0.8.",
]
ALL_NOTE = ATTACK_NOTE.replace("at the test nodes", "at all nodes")


def _experiment(name: str, item: str, nodes: str, note: str, seeds: int) -> Experiment:
    return Experiment.of_measures(
        name,
        item,
        Choice(ROBUST_SETS, ("gcn",), METHODS, tuple(range(seeds))),
        "robust",
        functools.partial(_measures, nodes=nodes),
        draw=functools.partial(curves, label="flipped edges"),
        baseline="gcn",
        tested=("jaccard", "gtrans", "gtrans_tuned"),
        footer=[note, *NOTES],
    )


TEST_NODES = _experiment(
    "attack", "Accuracy under a structure attack at the test nodes, by its budget", "test", ATTACK_NOTE, 10
)
ALL_NODES = _experiment(
    "attack-all", "Accuracy under a structure attack at all nodes, by its budget", "all", ALL_NOTE, 5
)

KINDS = {
    "port, all nodes": {"variant": "port", "nodes": "all"},
    "official, all nodes": {"nodes": "all"},
    "official, test nodes": {"nodes": "test"},
}


def _variants(choice: Choice) -> list[Measure]:
    return [
        Measure(
            (dataset, method),
            kind,
            tuple(_run(choice, method, dataset, seed, RATE, **attack) for seed in choice.seeds),
            score,
        )
        for dataset in choice.datasets
        for method in choice.methods
        for kind, attack in KINDS.items()
    ]


VARIANTS = Experiment.of_measures(
    "attack-variants",
    "Accuracy under attacks of 20 %, by the variant of PR-BCD and the nodes at which the model shall err",
    Choice(ROBUST_SETS[:-1], ("gcn",), ("gcn", "jaccard", "gtrans", "gtrans_tuned")),
    "robust",
    _variants,
    baseline="gcn",
    footer=["port is the attack of the released code, with signed steps.", *NOTES],
)
