"""Embeddings of test nodes before and after mending, laid out in a plane."""

from __future__ import annotations

from typing import Any

import torch
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits
from torch import Tensor

from graphmend.lab.bench.methods import adapter_from
from graphmend.lab.bench.run import Run
from graphmend.lab.bench.tasks.representations import embedding
from graphmend.lab.bench.workspace import Workspace
from graphmend.lab.data.splits import node_mask
from graphmend.results.scores import score

__all__ = ["tsne"]


def tsne(run: Run, workspace: Workspace) -> dict[str, Any]:
    """t-SNE coordinates of the test nodes before and after, with their labels and which of them are abnormal."""
    settings = dict(run.settings)
    splits, model = workspace.splits(settings), workspace.model(settings)
    data = next(iter(workspace.tests(settings).values()))
    result = adapter_from(settings["adapter"], data, splits)(model, data, seed=settings["seed"])
    counted = node_mask(data)
    before, after = (_plane(embedding(model, graph)[counted], settings["seed"]) for graph in (data, result.data))
    abnormal = data.get("abnormal", torch.zeros_like(counted))
    logits = [model(data.x, data.edge_index).detach(), result.logits]
    accuracies = [100 * score(splits.metric, output, data.y, counted) for output in logits]
    return {
        "before": before.tolist(),
        "after": after.tolist(),
        "labels": data.y.reshape(-1)[counted].tolist(),
        "abnormal": abnormal[counted].tolist(),
        "scores": accuracies,
    }


def _plane(rows: Tensor, seed: int) -> Tensor:
    with threadpool_limits(1):  # the result does not depend on the number of cores
        points = TSNE(init="pca", random_state=seed).fit_transform(rows.double().cpu().numpy())
    return torch.from_numpy(points).double().round(decimals=2)
