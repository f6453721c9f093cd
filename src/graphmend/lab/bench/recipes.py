"""Runs as the paper has them: which model, trained how, harmed how, and adapted by what."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from graphmend.lab.bench.experiment import Choice
from graphmend.lab.bench.presets import DRAWN, own_or_stand_in, preset
from graphmend.lab.bench.store import Result, Run

__all__ = [
    "ATTACK_NOTE",
    "BY_LABELS",
    "BY_LABELS_NOTE",
    "NOISE",
    "RATES",
    "ROBUST_SETS",
    "abnormal_score",
    "adapt_run",
    "attack_of",
    "attack_run",
    "attacked_run",
    "first_of_group",
    "noisy_run",
    "score",
    "setting_of",
    "stats_run",
    "train_run",
    "transfer_run",
    "tune_run",
    "tuned_training_run",
]

ROBUST = ("cora", "citeseer", "pubmed", "arxiv", "arxiv-votes", "arxiv-size", "digits", "wine", "breast-cancer")


def setting_of(dataset: str) -> str:
    """``"robust"`` for one graph that is harmed after training, ``"ood"`` for test graphs that differ by themselves."""
    return "robust" if dataset in ROBUST else "ood"


GROUP = 5


def first_of_group(seed: int) -> int:
    """The seed whose validation labels choose settings for its group of five seeds.

    Example:
        >>> [first_of_group(seed) for seed in (0, 4, 5, 9)]
        [0, 0, 5, 5]
    """
    return seed - seed % GROUP


def train_run(
    dataset: str,
    backbone: str,
    seed: int,
    trainer: dict[str, Any] | None = None,
    *,
    redraw: bool = False,
    **model: Any,
) -> Run:
    """Training as ``presets.toml`` has it.

    Args:
        dataset: A key of :data:`graphmend.lab.data.DATASETS`.
        backbone: A key of :data:`graphmend.lab.backbones.BACKBONES`.
        seed: The run seed.
        trainer: Name of a trainer and changes to its settings; ``{"name": "erm"}`` by default.
        redraw: Whether data under distribution shift that are drawn are drawn anew for every seed; by default there is
            one draw for all seeds, that of seed 0, as in the paper.
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
    if dataset in DRAWN and not redraw and seed != 0:
        settings["draw"] = 0
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
    tune_training: Run | None = None,
    source: bool = False,
) -> Run:
    """A trained model on test graphs that an adapter mends.

    Args:
        train: The training.
        adapter: Name of an adapter and its settings; ``{"name": "identity"}`` by default.
        abnormal: Share of the test nodes whose features become noise.
        attack: The attack whose graph is used.
        tune: The run that chose the other settings, from :func:`tune_run`.
        tune_training: The run that chose the other settings of the trainer, from :func:`tuned_training_run`.
        source: Whether the adapter is given a source card.
    """
    settings = _harmed(train, adapter, abnormal, attack)
    if source:
        settings["source"] = True
    if tune is not None:
        settings["tune"] = dict(tune.settings)
    if tune_training is not None:
        settings["tune_training"] = dict(tune_training.settings)
    is_shared = tune_training is None and train.settings["trainer"].get("target") != "each"  # or trained by this run
    needs = (train if is_shared else None, attack, tune, tune_training)
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


def tuned_training_run(train: Run, grid: dict[str, Any]) -> Run:
    """The choice of a trainer's settings from a grid, by the validation score of the trained model."""
    return Run("tune_training", {**train.settings, "grid": grid})


def stats_run(
    train: Run, adapter: dict[str, Any] | None = None, *, attack: Run | None = None, tune: Run | None = None
) -> Run:
    """What a graph looks like beside the clean one: as it is, attacked, or mended after an attack."""
    settings = _harmed(train, adapter, None, attack)
    if tune is not None:
        settings["tune"] = dict(tune.settings)
    return Run("stats", settings, tuple(run for run in (train, attack, tune) if run is not None))


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
    cell = own_or_stand_in(tables["cells"], dataset, {}).get(backbone, {})
    for changes in (own_or_stand_in(tables["datasets"], dataset, {}), tables["backbones"].get(backbone, {}), cell):
        trainer = {**recipe["trainer"], **changes.get("trainer", {})}
        recipe = {**recipe, **changes, "trainer": trainer}
    return recipe


NOISE = 0.3
"""The share of abnormal test nodes where the paper shows a single one."""
RATES = (0.05, 0.1, 0.15, 0.2, 0.25)
"""Budgets of attacks, as fractions of the edges."""
ROBUST_SETS = ("cora", "citeseer", "pubmed", "arxiv-votes", "arxiv-size")
BY_LABELS = {"validation": "val_mask"}
"""GTrans chooses as the released code does on harmed graphs."""

BY_LABELS_NOTE = (
    "On harmed graphs GTrans keeps the iterate and the discrete graph with the best validation accuracy, "
    "as the released code does."
)
ATTACK_NOTE = (
    "The official PR-BCD attacks the GCN of the same seed so that it errs at the test nodes; other models are given "
    "the same graph."
)


def attack_of(
    dataset: str, seed: int, rate: float, choice: Choice, nodes: str = "test", variant: str = "official"
) -> Run:
    """PR-BCD on the GCN of a data set and seed; models with other backbones are given the same graph.

    Args:
        dataset: The data set.
        seed: The seed of the run.
        rate: The budget as a fraction of the edges.
        choice: For the length of training and attack.
        nodes: ``"test"`` or ``"all"``: the nodes at which the GCN shall err.
        variant: A key of :data:`graphmend.lab.attacks.prbcd.VARIANTS`.
    """
    settings = {"epochs": 3, "block_size": 2000} if choice.smoke else own_or_stand_in(_attacks(), dataset, _small())
    train = train_run(dataset, "gcn", seed, choice.trainer())
    return attack_run(train, rate, variant=variant, nodes=nodes, **settings)


def attacked_run(
    choice: Choice,
    dataset: str,
    seed: int,
    rate: float,
    adapter: dict[str, Any] | None = None,
    *,
    nodes: str = "test",
    variant: str = "official",
    **options: Any,
) -> Run:
    """A model on an attacked graph; options as for :func:`noisy_run`."""
    attack = attack_of(dataset, seed, rate, choice, nodes, variant)
    return _harmed_run(choice, dataset, seed, adapter, attack=attack, **options)


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
        options: ``backbone``, a GCN by default; ``source`` for a source card; ``tune`` for the run that chose settings.
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


def _attacks() -> dict[str, Any]:
    return preset("attack")


def _small() -> dict[str, Any]:
    return preset("attack", "small")
