"""Adapting test graphs, or the model to them, and scoring the predictions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch_geometric.data import Data

from graphmend.cards import SourceCard, card
from graphmend.lab.bench.methods import adapter_from
from graphmend.lab.bench.run import Run
from graphmend.lab.bench.workspace import Workspace
from graphmend.lab.data import Splits, grouped_scores
from graphmend.lab.data.splits import node_mask
from graphmend.results.adaptation import Adaptation
from graphmend.results.scores import score

__all__ = ["adapt"]


def adapt(run: Run, workspace: Workspace) -> dict[str, Any]:
    """Adapt every test graph by itself; the scores before and after, and what was done.

    A trainer with ``target = "each"`` sees the test graph, without its labels, and there is one model per test graph.
    """
    settings = dict(run.settings)
    splits, tests = workspace.splits(settings), workspace.tests(settings)
    adapter = {**settings["adapter"], **_tuned(run, workspace)}
    per_graph = settings["trainer"].get("target") == "each"
    model = None if per_graph else workspace.model(settings)
    known = card(model, splits.train) if settings.get("source") and model is not None else None
    graphs, logits = {}, []
    for index, (name, data) in enumerate(tests.items()):
        told: dict[str, Any] = {"nodes": data.num_nodes}
        if per_graph:
            own = {**settings, "trainer": {**settings["trainer"], "target": index}}
            model = workspace.model(own, replace(splits, test=[splits.test[index]]))
            told["training_seconds"] = workspace.training_seconds(own)
        assert model is not None
        result, seconds = _adapted(adapter, model, data, splits, known, settings["seed"])
        logits.append(result.logits)
        graphs[name] = {**_scores(result, data, splits.metric), "seconds": round(seconds, 4), **told, **_told(result)}
    if "groups" in splits.meta:
        grouped = [100 * value for value in grouped_scores(logits, splits)]
    else:
        grouped = [graph["score"] for graph in graphs.values()]
    return {"graphs": graphs, "score": sum(grouped) / len(grouped), "scores": grouped, "adapter": adapter}


def _tuned(run: Run, workspace: Workspace) -> dict[str, Any]:
    """Settings that another run chose."""
    if "tune" not in run.settings:
        return {}
    return dict(workspace.store.require(Run("tune", run.settings["tune"]))["settings"])


def _adapted(
    settings: dict[str, Any], model: Any, data: Data, splits: Splits, known: SourceCard | None, seed: int
) -> tuple[Adaptation, float]:
    adapter = adapter_from(settings, data, splits)
    if data.x.is_cuda:
        torch.cuda.synchronize()
    result = adapter(model, data, seed=seed, card=known)
    return result, result.seconds


def _scores(result: Adaptation, data: Data, metric: str) -> dict[str, float]:
    values = {"score": 100 * score(metric, result.logits, data.y, node_mask(data))}
    if data.get("abnormal") is not None:
        values["abnormal"] = 100 * score(metric, result.logits, data.y, data.abnormal)
    return values


def _told(result: Adaptation) -> dict[str, Any]:
    summary = result.summary()
    names = ("loss_first", "loss_last", "feature_rows_changed", "edge_entries_removed", "edge_entries_added", "reason")
    told = {name: summary[name] for name in names if summary[name] is not None}
    if result.verdict is not None:
        told["decision"] = result.verdict.decision
    return told
