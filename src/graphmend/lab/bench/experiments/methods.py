"""Every trainer, robust backbone and adapter beside plain training: distribution shift, and abnormal features on Cora.

Not a table of the paper as such; it shows that each method is what it claims to be. Published differences to plain
training stand beside ours where there are any.
"""

from __future__ import annotations

from typing import Any

from graphmend.lab.bench.experiment import Choice, Experiment, Measure, published
from graphmend.lab.bench.experiments.ood_accuracy import eerm_settings
from graphmend.lab.bench.presets import abnormal_settings, ood_settings, paper, preset
from graphmend.lab.bench.recipes import adapt_run, train_run, tune_run
from graphmend.lab.bench.store import Run

__all__ = ["ABNORMAL_METHODS", "METHODS"]

TRAINERS = (
    "erm",
    "drop_edge",
    "drop_edge_compounding",
    "eerm",
    "eerm_bounded",
    "sr_gnn",
    "sr_gnn_kmm",
    "dann",
    "uda_gcn",
    "erm_dual_gcn",
    "tent",
    "tent_batch",
    "fine_tune",
    "gtrans",
)
ROBUST = (
    "gcn",
    "gat",
    "appnp",
    "airgnn",
    "airgnn_tune",
    "robust_gcn",
    "simp_gcn",
    "jaccard",
    "fine_tune",
    "gtrans",
)
NOISE = 0.3


def _trainer(method: str, dataset: str, choice: Choice) -> dict[str, Any]:
    eerm = eerm_settings(dataset, "gcn")
    options: dict[str, tuple[str, dict[str, Any]]] = {
        "drop_edge": ("erm", {"drop_edge": 0.05}),
        "drop_edge_compounding": ("erm", {"drop_edge": 0.05, "drop_edge_compounds": True}),
        "eerm": ("eerm", eerm),
        "eerm_bounded": ("eerm", {**eerm, "candidates": 256}),
        "sr_gnn": ("sr_gnn", {"target": "each"}),
        "sr_gnn_kmm": ("sr_gnn", {"target": "each", "kmm": True}),
        "dann": ("dann", {"target": "each"}),
        "uda_gcn": ("uda_gcn", {"target": "each"}),
    }
    name, settings = options.get(method, ("erm", {}))
    return choice.trainer(name, **settings)


def shifted(method: str, dataset: str, seed: int, choice: Choice) -> Run:
    """A method under distribution shift, GCN; data that are drawn are drawn anew for every seed."""
    backbone = "dual_gcn" if method in ("uda_gcn", "erm_dual_gcn") else "gcn"
    train = train_run(dataset, backbone, seed, _trainer(method, dataset, choice), redraw=True)
    if method == "gtrans":
        return adapt_run(train, ood_settings(dataset))
    if method == "fine_tune":
        released = ood_settings(dataset)
        return adapt_run(train, {"name": "fine_tune", "lr": released["lr_feature"], "steps": released["steps"]})
    if method in ("tent", "tent_batch"):
        tent = {"name": "tent", "statistics": "batch" if method == "tent_batch" else "running", "nodes": 1000}
        first = train_run(dataset, backbone, choice.seeds[0], _trainer(method, dataset, choice), redraw=True)
        return adapt_run(train, tent, tune=tune_run(first, tent, preset("tent", "grid")))
    return adapt_run(train)


def noisy(method: str, dataset: str, seed: int, choice: Choice) -> Run:
    """A method on a graph of which 30 % of the test nodes have noise for features."""
    backbone = {"airgnn_tune": "airgnn"}.get(method, method)
    is_backbone = backbone in ("gat", "appnp", "airgnn", "robust_gcn", "simp_gcn")
    train = train_run(dataset, backbone if is_backbone else "gcn", seed, choice.trainer())
    abnormal = abnormal_settings(dataset)
    adapters: dict[str, dict[str, Any]] = {
        "airgnn_tune": {"name": "airgnn_tune"},
        "jaccard": {"name": "jaccard"},
        "gtrans": abnormal,
        "fine_tune": {
            "name": "fine_tune",
            **preset("fine_tune", "abnormal"),
            "surrogate_weight": abnormal["surrogate_weight"],
            "validation": "val_mask",
        },
    }
    return adapt_run(train, adapters.get(method), abnormal=NOISE)


def _shifted(choice: Choice) -> list[Measure]:
    known = {**paper("ood_accuracy")["gcn"], **paper("ood_gcn")}
    known["drop_edge_compounding"] = known.pop("drop_edge")
    measures = []
    for method in choice.methods:
        for dataset in choice.datasets:
            runs = tuple(shifted(method, dataset, seed, choice) for seed in choice.seeds)
            number = published(known.get(method, {}).get(dataset))
            measures.append(Measure((method,), dataset, runs, lambda result: result["score"], number))
    return measures


def _noisy(choice: Choice) -> list[Measure]:
    measures = []
    for method in choice.methods:
        for dataset in choice.datasets:
            runs = tuple(noisy(method, dataset, seed, choice) for seed in choice.seeds)
            own = paper("abnormal").get(dataset, {})
            row = {"gcn": "none", "gtrans": "combined"}.get(method, method)
            for column, key in (("all test nodes", "score"), ("abnormal nodes", "abnormal")):
                number = published(own.get("all" if key == "score" else "abnormal", {}).get(row))
                value = _first(key)
                measures.append(Measure((method,), f"{dataset}: {column}", runs, value, number))
    return measures


def _first(key: str) -> Any:
    return lambda result: next(iter(result["graphs"].values()))[key]


METHODS = Experiment.of_measures(
    "methods",
    "Every trainer and adapter under distribution shift, GCN",
    Choice(("cora-ood", "twitch-e"), ("gcn",), TRAINERS),
    "ood",
    _shifted,
    baseline="erm",
)
ABNORMAL_METHODS = Experiment.of_measures(
    "abnormal-methods",
    "Every robust backbone and adapter on Cora, 30 % of the test nodes abnormal",
    Choice(("cora",), ("gcn",), ROBUST),
    "robust",
    _noisy,
    baseline="gcn",
)
