"""A graph that was mended for one model, and other models on it."""

from __future__ import annotations

from typing import Any

from graphmend.lab.bench.methods import adapter_from
from graphmend.lab.bench.run import Run
from graphmend.lab.bench.workspace import Workspace
from graphmend.lab.data.splits import node_mask
from graphmend.lab.metrics import transfer

__all__ = ["transfer_mended"]


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
