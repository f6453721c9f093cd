"""Which edges GTrans may flip: existing ones, as the paper has it, or also pairs of a random block that can be added.

The paper keeps to existing edges because a sampled block of pairs would need hundreds of steps. Measured under
distribution shift and after an attack with 20 % of the edges as budget, GCN.
"""

from __future__ import annotations

from graphmend.bench.experiment import Choice, Experiment, Measure
from graphmend.bench.gtrans_settings import attack_settings, ood_settings
from graphmend.bench.recipes import adapt_run, attack_run, setting_of, train_run
from graphmend.bench.run import Run

__all__ = ["EXPERIMENT", "attacked"]

SETS = ("photo-ood", "cora-ood", "twitch-e", "cora", "citeseer", "arxiv-size")
RATE = 0.2


def attacked(train: Run, choice: Choice) -> Run:
    """The attack whose graph is used, a short one in a smoke test."""
    short = {"epochs": 2, "block_size": 2000} if choice.smoke else {}
    return attack_run(train, RATE, **short)


def _run(space: str, dataset: str, seed: int, choice: Choice) -> Run:
    train = train_run(dataset, "gcn", seed, choice.trainer())
    is_attack = setting_of(dataset) == "robust"
    attack = attacked(train, choice) if is_attack else None
    if space == "none":
        return adapt_run(train, attack=attack)
    settings = attack_settings(space=space) if is_attack else ood_settings(dataset, space=space)
    return adapt_run(train, settings, attack=attack)


def _measures(choice: Choice) -> list[Measure]:
    measures = []
    for space in choice.methods:
        for dataset in choice.datasets:
            runs = tuple(_run(space, dataset, seed, choice) for seed in choice.seeds)
            column = f"{dataset}, attacked" if setting_of(dataset) == "robust" else dataset
            measures.append(Measure((space,), column, runs, lambda result: result["score"]))
    return measures


EXPERIMENT = Experiment.of_measures(
    "search-space",
    "GTrans on existing edges and on a random block of pairs, GCN",
    Choice(SETS, ("gcn",), ("none", "existing", "random_block")),
    "both",
    _measures,
    baseline="existing",
)
