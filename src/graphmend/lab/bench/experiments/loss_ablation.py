"""Tables of the paper: GTrans on harmed graphs with the surrogate, the loss of the training nodes, or both."""

from __future__ import annotations

from typing import Any

from graphmend.lab.bench.experiments.ablations import ablation

__all__ = ["EXPERIMENT"]


def _surrogate_only(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != "surrogate_weight"}


def _train_only(settings: dict[str, Any]) -> dict[str, Any]:
    return {**settings, "surrogate_weight": 0.0}


EXPERIMENT = ablation(
    "loss-ablation",
    "The loss on harmed graphs: none, the surrogate, that of the training nodes, both",
    {"none": lambda _: None, "surrogate": _surrogate_only, "train": _train_only, "both": lambda settings: settings},
    abnormal={"none": "none", "surrogate": "surrogate", "train": "train", "both": "combined"},
    attack={"none": "gcn", "surrogate": "surrogate_only", "train": "train_only", "both": "gtrans"},
)
