"""Tasks that train, harm, adapt and score."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from graphmend.cards import SourceCard, card
from graphmend.lab.bench.store import Run
from graphmend.lab.bench.tuning import Tuned, tune
from graphmend.lab.bench.workspace import Workspace, adapter_from
from graphmend.lab.data import Splits, grouped_scores
from graphmend.lab.data.splits import node_mask
from graphmend.lab.metrics import transfer
from graphmend.results.adaptation import Adaptation
from graphmend.results.scores import score

__all__ = ["adapt", "attack", "train", "transfer_mended", "tune_adapter", "tune_training"]


@torch.no_grad()
def train(run: Run, workspace: Workspace) -> dict[str, Any]:
    """Train a model, leave it for others, and say how well it does on validation graphs."""
    settings = dict(run.settings)
    splits = workspace.splits(settings)
    with torch.enable_grad():
        model = workspace.model(settings)
    return {"validation": _validation(model, splits), "seconds": workspace.training_seconds(settings)}


@torch.no_grad()
def _validation(model: nn.Module, splits: Splits) -> float:
    logits, y = zip(
        *((model(d.x, d.edge_index)[node_mask(d)], d.y.reshape(-1)[node_mask(d)]) for d in splits.val), strict=True
    )
    return 100 * score(splits.metric, torch.cat(logits), torch.cat(y))


def tune_training(run: Run, workspace: Workspace) -> dict[str, Any]:
    """The settings of a grid with which the trained model scores best on the validation graphs."""
    settings = {name: value for name, value in run.settings.items() if name != "grid"}
    splits = workspace.splits(settings)

    def evaluate(**changes: Any) -> float:
        return _validation(workspace.model({**settings, "trainer": {**settings["trainer"], **changes}}), splits)

    return _chosen(tune(evaluate, run.settings["grid"]))


def attack(run: Run, workspace: Workspace) -> dict[str, Any]:
    """Flip edges so that a trained model errs, and leave the flips for others; see :meth:`Workspace.flips`."""
    settings = dict(run.settings)
    train = settings["train"]
    data, model = workspace.splits(train).test[0], workspace.model(train)
    flips = workspace.flips(settings)
    harmed = workspace.harmed(data, {"attack": settings}, "test")

    def accuracy(graph: Any) -> float:
        return 100 * score("accuracy", model(graph.x, graph.edge_index).detach(), data.y, node_mask(data))

    return {"flips": flips.numel(), "clean": accuracy(data), "attacked": accuracy(harmed)}


def adapt(run: Run, workspace: Workspace) -> dict[str, Any]:
    """Adapt every test graph by itself; the scores before and after, and what was done.

    A trainer with ``target = "each"`` sees the test graph, without its labels, and there is one model per test graph.
    """
    settings = dict(run.settings)
    settings["trainer"] = {**settings["trainer"], **workspace.chosen(settings, "tune_training")}
    splits, tests = workspace.splits(settings), workspace.tests(settings)
    adapter = {**settings["adapter"], **workspace.chosen(settings)}
    per_graph = settings["trainer"].get("target") == "each"
    model = None if per_graph else workspace.model(settings)
    known = card(model, splits.train, task="classes") if settings.get("source") and model is not None else None
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


def _adapted(
    settings: dict[str, Any], model: Any, data: Data, splits: Splits, known: SourceCard | None, seed: int
) -> tuple[Adaptation, float]:
    adapter = adapter_from(settings, data, splits)
    if data.x.is_cuda:
        torch.cuda.synchronize()
    result = adapter(model, data, seed=seed, card=known, task="classes")
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


def tune_adapter(run: Run, workspace: Workspace) -> dict[str, Any]:
    """The settings of a grid with the best score on validation graphs, or on validation nodes of the harmed graph."""
    settings = dict(run.settings)
    splits, graphs, model = workspace.splits(settings), workspace.validation(settings), workspace.model(settings)

    def evaluate(**changes: Any) -> float:
        return sum(one(data, changes) for data in graphs) / len(graphs)

    def one(data: Data, changes: dict[str, Any]) -> float:
        adapter = adapter_from({**settings["adapter"], **changes}, data, splits)
        result = adapter(model, data, seed=settings["seed"], task="classes")
        return 100 * score(splits.metric, result.logits, data.y, node_mask(data))

    return _chosen(tune(evaluate, settings["grid"]))


def _chosen(tuned: Tuned) -> dict[str, Any]:
    trials = [{"settings": trial.settings, "score": trial.score, "error": trial.error} for trial in tuned.trials]
    return {"settings": tuned.settings, "score": tuned.score, "trials": trials}


def transfer_mended(run: Run, workspace: Workspace) -> dict[str, Any]:
    """Mend the test graph for one trained model; the scores of others, as they were trained, on the mended graph."""
    settings = dict(run.settings)
    splits = workspace.splits(settings)
    data = workspace.harmed(splits.test[0], settings, "test")
    adapter = adapter_from(settings["adapter"], data, splits)
    mended = adapter(workspace.model(settings), data, seed=settings["seed"]).data
    models = {name: workspace.model(target) for name, target in settings["targets"].items()}
    table = transfer(models, {"mended": mended}, metric=splits.metric, mask=node_mask(data))
    return {"scores": {name: 100 * value for name, value in table["mended"].items()}}
