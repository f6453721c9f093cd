"""Table 1 of the paper: average performance under distribution shift, four backbones and five methods.

Beside it, ``ood-redraws``: the same where the data that are drawn are drawn anew for every seed.
"""

from __future__ import annotations

from typing import Any

from graphmend.lab.bench.experiment import Choice, Experiment, Measure, published
from graphmend.lab.bench.presets import DRAWN, RELEASED_NOTE, STAND_INS, ood_settings, own_or_stand_in, paper, preset
from graphmend.lab.bench.recipes import adapt_run, first_of_group, train_run, tune_run, tuned_training_run
from graphmend.lab.bench.store import Run

__all__ = ["EXPERIMENT", "PAPER_SETS", "REDRAWS", "eerm_settings", "method_run"]

PAPER_SETS = ("photo-ood", "cora-ood", "twitch-e", "fb100", "elliptic-size", "arxiv-votes-ood")
"""The sets of the paper, or their replacements."""
SETS = ("photo-ood", "cora-ood", "twitch-e", "fb100", "citation", "arxiv-votes-ood", "elliptic-size", "arxiv-size-ood")
LARGE, BOUNDED = ("fb100", "arxiv-votes-ood", "arxiv-size-ood"), 64
"""Sets whose pairs of nodes do not all fit into a GPU, and how many pairs per node EERM's editors score there."""
METHODS = ("erm", "drop_edge", "drop_edge_released", "tent", "eerm", "gtrans")
EERM_SEEDS = 5


def method_run(method: str, dataset: str, backbone: str, seed: int, choice: Choice, *, redraw: bool = False) -> Run:
    """A method of the table as a run; with ``redraw`` on data that are drawn anew for every seed."""

    def training(name: str = "erm", at: int = seed, **settings: Any) -> Run:
        return train_run(dataset, backbone, at, choice.trainer(name, **settings), redraw=redraw)

    if method == "drop_edge":
        grid = preset("erm", "drop_edge")["grid"]
        grid = {"drop_edge": grid["drop_edge"][:2]} if choice.smoke else grid
        return adapt_run(training(), tune_training=tuned_training_run(training(at=first_of_group(seed)), grid))
    if method == "drop_edge_released":
        return adapt_run(training(drop_edge=0.05, drop_edge_compounds=True))
    if method == "eerm":
        return adapt_run(training("eerm", **eerm_settings(dataset, backbone)))
    if method == "tent":
        tent = {"name": "tent", **preset("tent", "common")}
        return adapt_run(
            training(), tent, tune=tune_run(training(at=first_of_group(seed)), tent, preset("tent", "grid"))
        )
    adapter = {"name": "identity"} if method == "erm" else ood_settings(dataset, backbone)
    return adapt_run(training(), adapter)


def eerm_settings(dataset: str, backbone: str) -> dict[str, Any]:
    """The released settings of EERM; where a cell has none, those of its data set or of Twitch."""
    tables = preset("eerm")
    own = own_or_stand_in(tables, dataset, tables["twitch-e"])
    settings: dict[str, Any] = own.get(backbone) or own.get("gcn") or next(iter(own.values()))
    return {**settings, "candidates": BOUNDED} if dataset in LARGE else settings


def _measures(choice: Choice, redraw: bool = False) -> list[Measure]:
    numbers = paper("ood_accuracy")
    measures = []
    for backbone in choice.backbones:
        for method in choice.methods:
            if method == "tent" and backbone == "gpr":
                continue  # it has no batch normalisation
            for dataset in choice.datasets:
                seeds = choice.seeds[:EERM_SEEDS] if method == "eerm" else choice.seeds
                runs = tuple(method_run(method, dataset, backbone, seed, choice, redraw=redraw) for seed in seeds)
                row = "drop_edge" if method == "drop_edge_released" else method
                known = numbers.get(backbone, {}).get(row, {}).get(STAND_INS.get(dataset, dataset))
                measures.append(
                    Measure(
                        (backbone, method), dataset, runs, lambda result: result["score"], published(known, dataset)
                    )
                )
    return measures


NOTES = [
    RELEASED_NOTE,
    "drop_edge drops edges anew in every epoch, with the best of eight ratios on validation graphs, chosen on the "
    "first of five seeds; drop_edge_released drops 5 % for good, as the released code does. Tent's steps and rate are "
    "chosen likewise. EERM is planned with five seeds.",
]
EXPERIMENT = Experiment.of_measures(
    "ood-accuracy",
    "Table 1: average performance on test graphs under distribution shift",
    Choice(SETS, ("gcn", "sage", "gat", "gpr"), METHODS, tuple(range(10))),
    "ood",
    _measures,
    baseline="erm",
    tested=("gtrans",),
    footer=[*NOTES, "Data that are drawn have one draw for all seeds, as in the paper."],
)
REDRAWS = Experiment.of_measures(
    "ood-redraws",
    "Distribution shift with data that are drawn anew for every seed",
    Choice(DRAWN[:2], ("gcn", "sage", "gat", "gpr"), ("erm", "tent", "gtrans")),
    "ood",
    lambda choice: _measures(choice, redraw=True),
    baseline="erm",
    tested=("gtrans",),
    footer=NOTES,
)
