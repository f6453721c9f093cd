"""How far the test graphs are from the training graphs, by the model's own representations."""

from __future__ import annotations

from typing import Any

import torch

from graphmend.lab.bench.run import Run
from graphmend.lab.bench.tasks.representations import embedding
from graphmend.lab.bench.workspace import Workspace
from graphmend.lab.metrics import cmd

__all__ = ["cmd_shift"]


def cmd_shift(run: Run, workspace: Workspace) -> dict[str, Any]:
    """The CMD between the representations of all training nodes and those of each test graph, or group of them."""
    settings = dict(run.settings)
    splits, model = workspace.splits(settings), workspace.model(settings)

    def distance(graphs: list[Any]) -> float:
        return cmd(source, torch.cat([embedding(model, data) for data in graphs]))

    source = torch.cat([embedding(model, data) for data in splits.train])
    groups = splits.meta.get("groups") or [[index] for index in range(len(splits.test))]
    tests = [distance([splits.test[index] for index in group]) for group in groups]
    return {"validation": distance(splits.val), "tests": tests}
