"""Choosing an adapter's settings on validation labels."""

from __future__ import annotations

from typing import Any

from torch_geometric.data import Data

from graphmend.lab.bench.methods import adapter_from
from graphmend.lab.bench.run import Run
from graphmend.lab.bench.tuning import tune
from graphmend.lab.bench.workspace import Workspace
from graphmend.lab.data.splits import node_mask
from graphmend.results.scores import score

__all__ = ["tune_adapter"]


def tune_adapter(run: Run, workspace: Workspace) -> dict[str, Any]:
    """The settings of a grid with the best score on validation graphs, or on validation nodes of the harmed graph."""
    settings = dict(run.settings)
    splits, graphs, model = workspace.splits(settings), workspace.validation(settings), workspace.model(settings)

    def evaluate(**changes: Any) -> float:
        return sum(one(data, changes) for data in graphs) / len(graphs)

    def one(data: Data, changes: dict[str, Any]) -> float:
        adapter = adapter_from({**settings["adapter"], **changes}, data, splits)
        result = adapter(model, data, seed=settings["seed"])
        return 100 * score(splits.metric, result.logits, data.y, node_mask(data))

    tuned = tune(evaluate, settings["grid"])
    trials = [{"settings": trial.settings, "score": trial.score, "error": trial.error} for trial in tuned.trials]
    return {"settings": tuned.settings, "score": tuned.score, "trials": trials}
