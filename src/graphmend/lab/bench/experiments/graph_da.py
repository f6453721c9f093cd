"""The paper's table of graph domain adaptation: UDA-GCN, DANN and SR-GNN beside GTrans, GCN.

The three train with a test graph in view, without its labels: one model per test graph. GTrans has the one model of
plain training and never sees a training graph.
"""

from __future__ import annotations

from graphmend.lab.bench.experiment import Choice, Experiment, Measure, published
from graphmend.lab.bench.experiments.methods import shifted
from graphmend.lab.bench.presets import RELEASED_NOTE, STAND_INS, paper

__all__ = ["EXPERIMENT"]

SETS = ("photo-ood", "cora-ood", "twitch-e", "fb100", "citation", "elliptic-size", "arxiv-votes-ood")
METHODS = ("erm", "uda_gcn", "dann", "sr_gnn", "gtrans")


def _measures(choice: Choice) -> list[Measure]:
    known = {**paper("ood_accuracy")["gcn"], **paper("ood_gcn")}
    return [
        Measure(
            (method,),
            dataset,
            tuple(shifted(method, dataset, seed, choice) for seed in choice.seeds),
            lambda result: result["score"],
            published(known[method].get(STAND_INS.get(dataset, dataset)), dataset),
        )
        for method in choice.methods
        for dataset in choice.datasets
    ]


EXPERIMENT = Experiment.of_measures(
    "graph-da",
    "Graph domain adaptation beside GTrans, GCN",
    Choice(SETS, ("gcn",), METHODS),
    "ood",
    _measures,
    baseline="erm",
    tested=METHODS[1:],
    ranked=True,
    footer=[RELEASED_NOTE],
)
