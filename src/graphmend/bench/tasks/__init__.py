"""What a run can do: a function of the run and its workspace that returns plain JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphmend.bench.run import Run
from graphmend.bench.tasks.adapt import adapt
from graphmend.bench.tasks.attack import attack
from graphmend.bench.tasks.stats import stats
from graphmend.bench.tasks.train import train
from graphmend.bench.tasks.transfer import transfer_mended
from graphmend.bench.tasks.tune import tune_adapter
from graphmend.bench.workspace import Workspace

__all__ = ["TASKS"]

TASKS: dict[str, Callable[[Run, Workspace], dict[str, Any]]] = {
    "adapt": adapt,
    "attack": attack,
    "stats": stats,
    "train": train,
    "transfer": transfer_mended,
    "tune": tune_adapter,
}
