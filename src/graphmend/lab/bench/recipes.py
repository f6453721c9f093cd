"""Runs as the paper has them: which model, trained how, harmed how, and adapted by what."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from graphmend.lab.bench.experiment import Choice
from graphmend.lab.bench.presets import preset
from graphmend.lab.bench.store import Result, Run

__all__ = [
    "BY_LABELS",
    "BY_LABELS_NOTE",
    "LABELS_NOTE",
    "NOISE",
    "RATES",
    "ROBUST_SETS",
    "abnormal_score",
    "adapt_run",
    "attack_of",
    "attack_run",
    "attacked_run",
    "noisy_run",
    "score",
    "setting_of",
    "stats_run",
    "train_run",
    "transfer_run",
    "tune_run",
]

ROBUST = ("cora", "citeseer", "pubmed", "arxiv", "arxiv-size", "digits", "wine", "breast-cancer")


def setting_of(dataset: str) -> str:
    """``"robust"`` for one graph that is harmed after training, ``"ood"`` for test graphs that differ by themselves."""
    return "robust" if dataset in ROBUST else "ood"


def train_run(dataset: str, backbone: str, seed: int, trainer: dict[str, Any] | None = None, **model: Any) -> Run:
    """Training as ``presets.toml`` has it.

    Args:
        dataset: A key of :data:`graphmend.lab.data.DATASETS`.
        backbone: A key of :data:`graphmend.lab.backbones.BACKBONES`.
        seed: The run seed, of the data as well.
        trainer: Name of a trainer and changes to its settings; ``{"name": "erm"}`` by default.
        model: Changes to the settings of the model.
    """
    recipe = _recipe(setting_of(dataset), dataset, backbone)
    common = recipe.pop("trainer")
    chosen = {"name": "erm"} if trainer is None else trainer
    settings = {
        "dataset": dataset,
        "backbone": backbone,
        "model": {**recipe, **model},
        "trainer": {**common, **chosen},
        "seed": seed,
    }
    return Run("train", settings)


def attack_run(train: Run, rate: float, **attack: Any) -> Run:
    """PR-BCD on a trained model, at its test nodes; ``nodes="all"`` attacks all nodes, as the paper does."""
    return Run("attack", {"train": dict(train.settings), "rate": rate, **attack}, needs=(train,))


def adapt_run(
    train: Run,
    adapter: dict[str, Any] | None = None,
    *,
    abnormal: float | None = None,
    attack: Run | None = None,
    tune: Run | None = None,
    source: bool = False,
) -> Run:
    """A trained model on test graphs that an adapter mends.

    Args:
        train: The training.
        adapter: Name of an adapter and its settings; ``{"name": "identity"}`` by default.
        abnormal: Share of the test nodes whose features become noise.
        attack: The attack whose graph is used.
        tune: The run that chose the other settings, from :func:`tune_run`.
        source: Whether the adapter is given a source card.
    """
    settings = _harmed(train, adapter, abnormal, attack)
    if source:
        settings["source"] = True
    if tune is not None:
        settings["tune"] = dict(tune.settings)
    is_shared = train.settings["trainer"].get("target") != "each"  # otherwise there is one model per test graph
    needs = (train if is_shared else None, attack, tune)
    return Run("adapt", settings, tuple(run for run in needs if run is not None))


def tune_run(
    train: Run,
    adapter: dict[str, Any],
    grid: dict[str, Any],
    *,
    abnormal: float | None = None,
    attack: Run | None = None,
) -> Run:
    """The choice of an adapter's settings from a grid, on validation labels; one choice may serve all seeds."""
    settings = {**_harmed(train, adapter, abnormal, attack), "grid": grid}
    return Run("tune", settings, tuple(run for run in (train, attack) if run is not None))


def stats_run(train: Run, adapter: dict[str, Any] | None = None, *, attack: Run | None = None) -> Run:
    """What a graph looks like beside the clean one: as it is, attacked, or mended after an attack."""
    return Run("stats", _harmed(train, adapter, None, attack), tuple(run for run in (train, attack) if run is not None))


def transfer_run(
    train: Run, targets: Mapping[str, Run], adapter: dict[str, Any] | None = None, *, abnormal: float | None = None
) -> Run:
    """A graph that is mended for one trained model and given to others.

    Args:
        train: The training of the model that the graph is mended for.
        targets: The trainings of those that are scored, by name.
        adapter: As for :func:`adapt_run`.
        abnormal: Share of the test nodes whose features become noise.
    """
    settings = _harmed(train, adapter, abnormal, None)
    settings["targets"] = {name: dict(run.settings) for name, run in targets.items()}
    return Run("transfer", settings, (train, *targets.values()))


def _harmed(train: Run, adapter: dict[str, Any] | None, abnormal: float | None, attack: Run | None) -> dict[str, Any]:
    settings: dict[str, Any] = {**train.settings, "adapter": adapter or {"name": "identity"}}
    if abnormal is not None:
        settings["abnormal"] = abnormal
    if attack is not None:
        settings["attack"] = dict(attack.settings)
    return settings


def _recipe(setting: str, dataset: str, backbone: str) -> dict[str, Any]:
    tables = preset("models", setting)
    recipe: dict[str, Any] = copy.deepcopy(tables["all"])
    cell = tables["cells"].get(dataset, {}).get(backbone, {})
    for changes in (tables["datasets"].get(dataset, {}), tables["backbones"].get(backbone, {}), cell):
        trainer = {**recipe["trainer"], **changes.get("trainer", {})}
        recipe = {**recipe, **changes, "trainer": trainer}
    return recipe


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
