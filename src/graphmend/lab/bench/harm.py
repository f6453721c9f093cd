"""Test graphs that were harmed after training: noise for features, or flipped edges."""

from __future__ import annotations

from typing import Any

from graphmend.lab.bench.experiment import Choice
from graphmend.lab.bench.presets import preset
from graphmend.lab.bench.recipes import adapt_run, attack_run, train_run
from graphmend.lab.bench.run import Run
from graphmend.lab.bench.store import Result

__all__ = [
    "BY_LABELS",
    "BY_LABELS_NOTE",
    "LABELS_NOTE",
    "NOISE",
    "RATES",
    "ROBUST_SETS",
    "abnormal_score",
    "attack_of",
    "attacked_run",
    "noisy_run",
    "score",
]

NOISE = 0.3
"""The share of abnormal test nodes where the paper shows a single one."""
RATES = (0.05, 0.1, 0.15, 0.2, 0.25)
"""Budgets of attacks, as fractions of the edges."""
ROBUST_SETS = ("cora", "citeseer", "pubmed", "arxiv-size")
BY_LABELS = {"validation": "val_mask"}
"""GTrans chooses as the released code does on harmed graphs."""

BY_LABELS_NOTE = (
    "On harmed graphs GTrans keeps the iterate and the discrete graph with the best validation accuracy, "
    "as the released code does."
)
LABELS_NOTE = "GTrans uses the labels of training and validation nodes of the harmed graph, mend uses none."


def attack_of(dataset: str, seed: int, rate: float, choice: Choice) -> Run:
    """PR-BCD on the GCN of a data set and seed; models with other backbones are given the same graph."""
    settings = {"epochs": 3, "block_size": 2000} if choice.smoke else _attack_settings(dataset)
    return attack_run(train_run(dataset, "gcn", seed, choice.trainer()), rate, variant="port", nodes="all", **settings)


def attacked_run(
    choice: Choice, dataset: str, seed: int, rate: float, adapter: dict[str, Any] | None = None, **options: Any
) -> Run:
    """A model on an attacked graph; options as for :func:`noisy_run`."""
    return _harmed_run(choice, dataset, seed, adapter, attack=attack_of(dataset, seed, rate, choice), **options)


def noisy_run(
    choice: Choice, dataset: str, seed: int, ratio: float, adapter: dict[str, Any] | None = None, **options: Any
) -> Run:
    """A model on a graph of which some test nodes have noise for features.

    Args:
        choice: For the length of the training.
        dataset: The data set.
        seed: The seed of the run.
        ratio: Share of the test nodes.
        adapter: As for :func:`~graphmend.lab.bench.recipes.adapt_run`.
        options: ``backbone``, a GCN by default, and ``source`` for a source card.
    """
    return _harmed_run(choice, dataset, seed, adapter, abnormal=ratio, **options)


def score(result: Result) -> float:
    """The accuracy on all test nodes."""
    return float(result["score"])


def abnormal_score(result: Result) -> float:
    """The accuracy on the nodes with noise for features."""
    (graph,) = result["graphs"].values()
    return float(graph["abnormal"])


def _harmed_run(
    choice: Choice, dataset: str, seed: int, adapter: dict[str, Any] | None, backbone: str = "gcn", **harm: Any
) -> Run:
    return adapt_run(train_run(dataset, backbone, seed, choice.trainer()), adapter, **harm)


def _attack_settings(dataset: str) -> dict[str, Any]:
    tables = preset("attack")
    return dict(tables.get(dataset, tables["small"]))
