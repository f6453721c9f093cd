"""What a run can do: a function of the run and its workspace that returns plain JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphmend.lab.bench.store import Run
from graphmend.lab.bench.tasks.analyses import cmd_shift, correlation, stats, tsne
from graphmend.lab.bench.tasks.models import adapt, attack, train, transfer_mended, tune_adapter, tune_training
from graphmend.lab.bench.tasks.theory import class_means, collapse, step_bound, worked_example
from graphmend.lab.bench.workspace import Workspace

__all__ = ["TASKS"]

TASKS: dict[str, Callable[[Run, Workspace], dict[str, Any]]] = {
    "adapt": adapt,
    "attack": attack,
    "class_means": class_means,
    "collapse": collapse,
    "cmd": cmd_shift,
    "correlation": correlation,
    "stats": stats,
    "step_bound": step_bound,
    "train": train,
    "transfer": transfer_mended,
    "tsne": tsne,
    "tune": tune_adapter,
    "tune_training": tune_training,
    "worked_example": worked_example,
}
