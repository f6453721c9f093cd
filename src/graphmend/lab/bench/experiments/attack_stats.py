"""Table of the paper: what a graph looks like before and after an attack of 20 %, and after it was mended."""

from __future__ import annotations

from collections.abc import Callable

from graphmend.lab.bench.experiment import Choice, Experiment, Measure, published
from graphmend.lab.bench.experiments.attack import tuned_gtrans
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


ROWS = ("clean", "attacked", "jaccard", "gtrans", "gtrans_tuned")
NODES = ("test", "all")


def _run(choice: Choice, method: str, dataset: str, seed: int, nodes: str) -> Run:
    train = train_run(dataset, "gcn", seed, choice.trainer())
    if method == "clean":
        return stats_run(train)
    attack = attack_of(dataset, seed, RATE, choice, nodes)
    if method == "attacked":
        return stats_run(train, attack=attack)
    adapter = {"name": "jaccard"} if method == "jaccard" else attack_settings("paper", **BY_LABELS)
    tune = tuned_gtrans(choice, dataset, seed, RATE, nodes=nodes) if method == "gtrans_tuned" else None
    return stats_run(train, adapter, attack=attack, tune=tune)


def _value(name: str, divisor: int) -> Callable[[Result], float]:
    return lambda result: float(result[name]) / divisor


def _measures(choice: Choice) -> list[Measure]:
    measures = []
    for dataset in choice.datasets:
        numbers = paper("attack_stats") if STAND_INS.get(dataset) == "arxiv" else {}
        rows = [("clean", "test", "clean")] if "clean" in choice.methods else []
        rows += [(m, nodes, f"{nodes} nodes: {m}") for nodes in NODES for m in choice.methods if m != "clean"]
        for method, nodes, words in rows:
            runs = tuple(_run(choice, method, dataset, seed, nodes) for seed in choice.seeds)
            for key, (column, name, divisor, digits) in COLUMNS.items():
                number = published(numbers.get(key, {}).get(method), dataset, edges=key != "similarity")
                measures.append(Measure((dataset, words), column, runs, _value(name, divisor), number, digits))
    return measures


EXPERIMENT = Experiment.of_measures(
    "attack-stats",
    "Graphs under an attack of 20 %, beside the clean graph",
    Choice(ROBUST_SETS[:-1], ("gcn",), ROWS),
    "robust",
    _measures,
    footer=[
        "An undirected edge counts twice. test nodes, all nodes: where the attacked GCN shall err.",
        BY_LABELS_NOTE,
    ],
)
