"""Box plots of the paper under distribution shift: the scores of every test graph over seeds, GCN.

The runs are those of the table ``ood-accuracy``. The test graphs of Elliptic are scored in groups.
"""

from __future__ import annotations

from typing import Any

from graphmend.lab.bench.experiment import Choice, Experiment
from graphmend.lab.bench.experiments.ood_accuracy import EERM_SEEDS, method_run
from graphmend.lab.bench.experiments.ood_accuracy import EXPERIMENT as TABLE
from graphmend.lab.bench.figures import colours, legend_below, panels
from graphmend.lab.bench.store import Result, Run, Store

__all__ = ["EXPERIMENT"]

METHODS = ("erm", "tent", "eerm", "gtrans")
FILLED = 0.8  # share of the room of one test graph that its boxes take


def _runs(choice: Choice) -> list[Run]:
    return [run for dataset in choice.datasets for runs in _of(dataset, choice).values() for run in runs]


def _of(dataset: str, choice: Choice) -> dict[str, list[Run]]:
    return {
        method: [method_run(method, dataset, "gcn", s, choice) for s in _seeds(method, choice)]
        for method in choice.methods
    }


def _seeds(method: str, choice: Choice) -> tuple[int, ...]:
    return choice.seeds[:EERM_SEEDS] if method == "eerm" else choice.seeds


def _figure(choice: Choice, store: Store) -> Any:
    figure, axes = panels(len(choice.datasets), 2, (5.5, 2.6))
    from matplotlib.patches import Patch

    colour = colours(choice.methods)
    for axis, dataset in zip(axes, choice.datasets, strict=True):
        axis.set_title(dataset, fontsize=10)
        axis.set_ylabel("score (%)", fontsize=8)
        names: list[str] = []
        for place, (method, runs) in enumerate(_of(dataset, choice).items()):
            scores = [_scores(result) for run in runs if (result := store.result(run)) is not None]
            if scores:
                names = list(scores[0])
                _draw(axis, scores, (place + 0.5) / len(choice.methods) - 0.5, len(choice.methods), colour[method])
        axis.set_xticks(range(len(names)), names)
        for between in range(len(names) - 1):
            axis.axvline(between + 0.5, color="#dddddd", linewidth=0.6, zorder=0)
        axis.set_xlim(-0.5, max(len(names), 1) - 0.5)
        if not names:
            axis.text(0.5, 0.5, "not run", transform=axis.transAxes, ha="center", color="#777777")
    patches = [Patch(facecolor=colour[method], edgecolor="black", linewidth=0.6) for method in choice.methods]
    legend_below(figure, patches, list(choice.methods))
    figure.suptitle(f"Scores of every test graph, GCN, {choice.seeds_in_words}", fontsize=11)
    return figure


def _draw(axis: Any, scores: list[dict[str, float]], shift: float, methods: int, colour: str) -> None:
    """The boxes of one method, one per test graph, and a dot per seed."""
    values = [[seed[name] for seed in scores] for name in scores[0]]
    at = [graph + FILLED * shift for graph in range(len(values))]
    axis.boxplot(
        values,
        positions=at,
        widths=0.85 * FILLED / methods,
        patch_artist=True,
        manage_ticks=False,
        boxprops={"facecolor": colour, "linewidth": 0.6},
        medianprops={"color": "black", "linewidth": 1.0},
        whiskerprops={"linewidth": 0.6},
        capprops={"linewidth": 0.6},
        showfliers=False,
        zorder=2,
    )
    dot = {"marker": "o", "linestyle": "", "markersize": 3, "markeredgecolor": "black", "markeredgewidth": 0.4}
    for x, seeds in zip(at, values, strict=True):
        axis.plot([x] * len(seeds), seeds, color=colour, **dot)


def _scores(result: Result) -> dict[str, float]:
    """Scores by the short name of a test graph, or by group where graphs are scored together."""
    if len(result["graphs"]) == len(result["scores"]):
        return {name.split()[-1]: graph["score"] for name, graph in result["graphs"].items()}
    return {f"G{group}": score for group, score in enumerate(result["scores"])}


EXPERIMENT = Experiment(
    "ood-boxplots",
    "Box plots: scores of every test graph under distribution shift, GCN",
    Choice(TABLE.choice.datasets, ("gcn",), METHODS, TABLE.choice.seeds),
    "ood",
    _runs,
    figure=_figure,
)
