"""What a run can do: a function of the run and its workspace that returns plain JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphmend.lab.bench.run import Run
from graphmend.lab.bench.tasks.adapt import adapt
from graphmend.lab.bench.tasks.attack import attack
from graphmend.lab.bench.tasks.class_means import class_means
from graphmend.lab.bench.tasks.cmd_shift import cmd_shift
from graphmend.lab.bench.tasks.correlation import correlation
from graphmend.lab.bench.tasks.stats import stats
from graphmend.lab.bench.tasks.step_bound import step_bound
from graphmend.lab.bench.tasks.train import train
from graphmend.lab.bench.tasks.transfer import transfer_mended
from graphmend.lab.bench.tasks.tsne import tsne
from graphmend.lab.bench.tasks.tune import tune_adapter
from graphmend.lab.bench.tasks.worked_example import worked_example
from graphmend.lab.bench.workspace import Workspace

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
