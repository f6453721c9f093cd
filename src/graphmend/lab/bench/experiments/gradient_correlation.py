r"""Two figures of the paper on Theorem 1: :math:`\rho(G)` and the test loss along the optimisation, four surrogates.

GCN, one test graph of Cora, steps on the features alone. :math:`\rho` is the cosine of the gradients of the test loss
and of the surrogate; where it is positive a small step lowers the test loss.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphmend.lab.bench.experiment import Choice, Experiment
from graphmend.lab.bench.experiments.ood_variants import SURROGATES
from graphmend.lab.bench.figures import BLUE, GREY, RED, legend_below, panels
from graphmend.lab.bench.presets import ood_settings
from graphmend.lab.bench.recipes import train_run
from graphmend.lab.bench.store import Run, Store

__all__ = ["EXPERIMENT"]

LOSSES = {"contrastive": "drop_edge_05", "reconstruction": "reconstruction", "entropy": "entropy", "slaps": "slaps"}
"""Rows with the names of their surrogates in the tables."""
STEPS, GRAPH = 50, 0


def _run(method: str, choice: Choice) -> Run:
    """One data set and one seed are drawn."""
    dataset = choice.datasets[0]
    train = train_run(dataset, "gcn", choice.seeds[0], choice.trainer())
    own = {
        "surrogate": SURROGATES[LOSSES[method]],
        "lr": ood_settings(dataset)["lr_feature"],
        "steps": 5 if choice.smoke else STEPS,
        "graph": GRAPH,
    }
    return Run("correlation", {**train.settings, **own}, (train,))


def _runs(choice: Choice) -> list[Run]:
    return [_run(method, choice) for method in choice.methods]


def _figure(choice: Choice, store: Store) -> Any:
    figure, axes = panels(len(choice.methods), 2, (4.2, 2.6), sharex=True)
    for axis, method in zip(axes, choice.methods, strict=True):
        result = store.result(_run(method, choice))
        if result is None:
            return None
        steps = np.arange(len(result["rho"]))
        axis.axhline(0.0, color=GREY, linewidth=0.8)
        (rho,) = axis.plot(steps, result["rho"], color=BLUE, linewidth=1.6)
        axis.set_title(f"{method} loss", fontsize=10)
        axis.set_ylabel(r"$\rho(G)$", color=BLUE, fontsize=9)
        other = axis.twinx()
        other.spines["top"].set_visible(False)
        other.tick_params(labelsize=8)
        (test,) = other.plot(steps, result["test"], color=RED, linewidth=1.6, linestyle="--")
        other.set_ylabel("test loss", color=RED, fontsize=9)
        other.ticklabel_format(useOffset=False)
    for axis in axes[-2:]:
        axis.set_xlabel("step", fontsize=9)
    legend_below(figure, [rho, test], [r"$\rho(G)$ (left)", "test loss (right)"])
    figure.suptitle(f"Gradient correlation and test loss, {choice.datasets[0]}, test graph {GRAPH}", fontsize=11)
    return figure


EXPERIMENT = Experiment(
    "gradient-correlation",
    "Correlation of the gradients of surrogate and test loss along the optimisation (Theorem 1)",
    Choice(("cora-ood",), ("gcn",), tuple(LOSSES), (0,)),
    "ood",
    _runs,
    figure=_figure,
)
