"""What a run can do: a function of the run and its workspace that returns plain JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphmend.bench.run import Run
from graphmend.bench.tasks.adapt import adapt
from graphmend.bench.tasks.attack import attack
from graphmend.bench.tasks.class_means import class_means
from graphmend.bench.tasks.cmd_shift import cmd_shift
from graphmend.bench.tasks.correlation import correlation
from graphmend.bench.tasks.stats import stats
from graphmend.bench.tasks.step_bound import step_bound
from graphmend.bench.tasks.train import train
from graphmend.bench.tasks.transfer import transfer_mended
from graphmend.bench.tasks.tsne import tsne
from graphmend.bench.tasks.tune import tune_adapter
from graphmend.bench.tasks.worked_example import worked_example
from graphmend.bench.workspace import Workspace

__all__ = ["TASKS"]

TASKS: dict[str, Callable[[Run, Workspace], dict[str, Any]]] = {
    "adapt": adapt,
    "attack": attack,
    "class_means": class_means,
    "cmd": cmd_shift,
    "correlation": correlation,
    "stats": stats,
    "step_bound": step_bound,
    "train": train,
    "transfer": transfer_mended,
    "tsne": tsne,
    "tune": tune_adapter,
    "worked_example": worked_example,
}
