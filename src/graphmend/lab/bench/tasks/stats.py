"""Statistics of a graph beside the clean one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from graphmend.lab.bench.methods import adapter_from
from graphmend.lab.bench.run import Run
from graphmend.lab.bench.workspace import Workspace
from graphmend.lab.metrics import graph_stats

__all__ = ["stats"]


def stats(run: Run, workspace: Workspace) -> dict[str, Any]:
    """Homophily, similarity of neighbours and changed edges of the test graph after harm and mending."""
    settings = dict(run.settings)
    splits = workspace.splits(settings)
    clean = splits.test[0]
    harmed = workspace.harmed(clean, settings, "test")
    adapter = adapter_from(settings["adapter"], harmed, splits)
    mended = adapter(workspace.model(settings), harmed, seed=settings["seed"]).data
    return asdict(graph_stats(mended, clean, harmed))
