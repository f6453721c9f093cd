"""Training."""

from __future__ import annotations

from typing import Any

import torch

from graphmend.lab.bench.run import Run
from graphmend.lab.bench.workspace import Workspace
from graphmend.lab.data.splits import node_mask
from graphmend.results.scores import score

__all__ = ["train"]


@torch.no_grad()
def train(run: Run, workspace: Workspace) -> dict[str, Any]:
    """Train a model, leave it for others, and say how well it does on validation graphs."""
    settings = dict(run.settings)
    splits = workspace.splits(settings)
    with torch.enable_grad():
        model = workspace.model(settings)
    logits, y = zip(
        *((model(d.x, d.edge_index)[node_mask(d)], d.y.reshape(-1)[node_mask(d)]) for d in splits.val), strict=True
    )
    validation = 100 * score(splits.metric, torch.cat(logits), torch.cat(y))
    return {"validation": validation, "seconds": workspace.training_seconds(settings)}
