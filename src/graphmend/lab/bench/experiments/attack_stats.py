"""Table of the paper: what a graph looks like before and after an attack of 20 %, and after it was mended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphmend.lab.bench.experiment import Choice, Experiment, Measure, published
from graphmend.lab.bench.presets import STAND_INS, attack_settings, paper
from graphmend.lab.bench.recipes import BY_LABELS, BY_LABELS_NOTE, ROBUST_SETS, attack_of, stats_run, train_run
from graphmend.lab.bench.store import Result, Run

__all__ = ["EXPERIMENT"]

RATE = 0.2
COLUMNS = {  # by their names in paper.toml: name here, name in the result, divisor, decimals
    "homophily": ("homophily", "homophily", 1, 3),
    "similarity": ("feature similarity", "feature_similarity", 1, 3),
    "edges": ("edges (thousands)", "edges", 1000, 1),
    "added": ("added (thousands)", "edges_added", 1000, 1),
    "removed": ("removed (thousands)", "edges_removed", 1000, 1),
}


def _run(choice: Choice, method: str, dataset: str, seed: int) -> Run:
    train = train_run(dataset, "gcn", seed, choice.trainer())
    adapters: dict[str, dict[str, Any]] = {
        "jaccard": {"name": "jaccard"},
        "gtrans": attack_settings("paper", **BY_LABELS),
    }
    attack = None if method == "clean" else attack_of(dataset, seed, RATE, choice)
    return stats_run(train, adapters.get(method), attack=attack)


def _value(name: str, divisor: int) -> Callable[[Result], float]:
    return lambda result: float(result[name]) / divisor


def _measures(choice: Choice) -> list[Measure]:
    measures = []
    for dataset in choice.datasets:
        numbers = paper("attack_stats") if STAND_INS.get(dataset) == "arxiv" else {}
        for method in choice.methods:
            runs = tuple(_run(choice, method, dataset, seed) for seed in choice.seeds)
            for key, (column, name, divisor, digits) in COLUMNS.items():
                number = published(numbers.get(key, {}).get(method), dataset)
                measures.append(Measure((dataset, method), column, runs, _value(name, divisor), number, digits))
    return measures


EXPERIMENT = Experiment.of_measures(
    "attack-stats",
    "Graphs under an attack of 20 %, beside the clean graph",
    Choice(ROBUST_SETS, ("gcn",), ("clean", "attacked", "jaccard", "gtrans")),
    "robust",
    _measures,
    footer=["An undirected edge counts twice.", BY_LABELS_NOTE],
)
