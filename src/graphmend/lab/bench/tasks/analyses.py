"""Tasks that look at graphs and representations: statistics, distances, gradients along an optimisation, t-SNE."""

from __future__ import annotations

import copy
from dataclasses import asdict
from typing import Any

import torch
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.lab.bench.store import Run
from graphmend.lab.bench.workspace import Workspace, adapter_from, surrogate_from
from graphmend.lab.data.splits import node_mask
from graphmend.lab.metrics import cmd, gradient_correlation, graph_stats
from graphmend.model import FrozenGNN
from graphmend.outputs import cross_entropy
from graphmend.results.scores import score

__all__ = ["cmd_shift", "correlation", "embedding", "stats", "tsne"]


@torch.no_grad()
def embedding(model: nn.Module, data: Data) -> Tensor:
    """Z, the second-last layer after its activation, one row per node."""
    with FrozenGNN(model, data) as frozen, torch.no_grad():
        return frozen.embed(data.x, data.edge_index, data.get("edge_weight"))


def stats(run: Run, workspace: Workspace) -> dict[str, Any]:
    """Homophily, similarity of neighbours and changed edges of the test graph after harm and mending."""
    settings = dict(run.settings)
    splits = workspace.splits(settings)
    clean = splits.test[0]
    harmed = workspace.harmed(clean, settings, "test")
    chosen = {**settings["adapter"], **workspace.chosen(settings)}
    adapter = adapter_from(chosen, harmed, splits)
    mended = adapter(workspace.model(settings), harmed, seed=settings["seed"]).data
    return asdict(graph_stats(mended, clean, harmed))


def cmd_shift(run: Run, workspace: Workspace) -> dict[str, Any]:
    """The CMD between the representations of all training nodes and those of each test graph, or group of them."""
    settings = dict(run.settings)
    splits, model = workspace.splits(settings), workspace.model(settings)

    def distance(graphs: list[Any]) -> float:
        return cmd(source, torch.cat([embedding(model, data) for data in graphs]), settings.get("moments", 5))

    source = torch.cat([embedding(model, data) for data in splits.train])
    groups = splits.meta.get("groups") or [[index] for index in range(len(splits.test))]
    tests = [distance([splits.test[index] for index in group]) for group in groups]
    return {"validation": distance(splits.val), "tests": tests}


def correlation(run: Run, workspace: Workspace) -> dict[str, Any]:
    r"""Adam on the features of one test graph, as in GTrans without edges: before every step, and at the end, the
    surrogate loss, the test loss and the cosine :math:`\rho` of their gradients for the features.

    The settings have a ``surrogate``, ``lr``, ``steps`` and the number of the test ``graph``.
    """
    settings = dict(run.settings)
    splits, model, seed = workspace.splits(settings), workspace.model(settings), settings["seed"]
    data = list(workspace.tests(settings).values())[settings["graph"]]
    y, counted = data.y.reshape(-1), node_mask(data)
    with FrozenGNN(model, data, seed=seed) as frozen:
        surrogate = surrogate_from(settings["surrogate"], splits).prepare(frozen, data, seed)
    generator = torch.Generator(device=data.x.device).manual_seed(seed)
    x = data.x.clone().requires_grad_()
    adam = torch.optim.Adam([x], lr=settings["lr"])
    found: dict[str, list[float]] = {"surrogate": [], "test": [], "rho": []}
    for step in range(settings["steps"] + 1):
        here = _with_features(data, x)
        with FrozenGNN(model, data, seed=seed) as frozen:
            loss = surrogate(frozen, here, generator)
            (x.grad,) = torch.autograd.grad(loss, [x])
            test = cross_entropy(frozen(x.detach(), data.edge_index)[counted], y[counted])
        now = _with_features(data, x.detach())
        rho = gradient_correlation(model, now, surrogate, y, counted, seed=seed + step)
        for name, value in (("surrogate", loss.item()), ("test", test.item()), ("rho", rho)):
            found[name].append(round(value, 6))
        adam.step()
    return found


def _with_features(data: Data, x: torch.Tensor) -> Data:
    graph = copy.copy(data)
    graph.x = x
    if "edge_weight" not in graph:
        graph.edge_weight = x.new_ones(data.edge_index.size(1))
    return graph


def tsne(run: Run, workspace: Workspace) -> dict[str, Any]:
    """t-SNE coordinates of the test nodes before and after, with their labels and which of them are abnormal."""
    settings = dict(run.settings)
    splits, model = workspace.splits(settings), workspace.model(settings)
    data = next(iter(workspace.tests(settings).values()))
    result = adapter_from(settings["adapter"], data, splits)(model, data, seed=settings["seed"])
    counted = node_mask(data)
    embeddings = [embedding(model, graph)[counted].double().cpu() for graph in (data, result.data)]
    before, after = (_plane(rows, settings["seed"]) for rows in embeddings)
    abnormal = data.get("abnormal", torch.zeros_like(counted))
    labels = data.y.reshape(-1)[counted].cpu()
    parts = {"all": slice(None), "abnormal": abnormal[counted].cpu()}
    logits = [model(data.x, data.edge_index).detach(), result.logits]
    accuracies = [100 * score(splits.metric, output, data.y, counted) for output in logits]
    return {
        "before": before.tolist(),
        "after": after.tolist(),
        "labels": labels.tolist(),
        "abnormal": abnormal[counted].tolist(),
        "scores": accuracies,
        "silhouettes": {
            name: [_silhouette(rows[part], labels[part]) for rows in embeddings] for name, part in parts.items()
        },
    }


def _silhouette(rows: Tensor, labels: Tensor) -> float | None:
    """How well classes are clusters of the embeddings, from -1 to 1; ``None`` with fewer than two classes."""
    kinds = len(set(labels.tolist()))
    return float(silhouette_score(rows.numpy(), labels.numpy())) if 1 < kinds < len(labels) else None


def _plane(rows: Tensor, seed: int) -> Tensor:
    with threadpool_limits(1):  # the result does not depend on the number of cores
        points = TSNE(init="pca", random_state=seed).fit_transform(rows.numpy())
    return torch.from_numpy(points).double().round(decimals=2)
