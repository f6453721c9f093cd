"""Workers of a Ray cluster, or of a Ray that is started on this machine (https://docs.ray.io)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from graphmend.errors import GraphMendError, optional_module, require
from graphmend.files.files import first_line
from graphmend.workers.local import Lost

__all__ = ["LOCAL", "Ray"]

T = TypeVar("T")
R = TypeVar("R")

LOCAL = "local"
"""The address that starts a Ray on this machine."""

WINDOW = 256
"""How many items are with Ray at once: more than most clusters work on, and few enough to be kept in memory."""


@dataclass(frozen=True)
class Ray:
    """Tasks of Ray, each with a processor core of its own and a share of a GPU.

    An item whose process or machine is lost is sent to another one. GraphMend and the data sets must be installed on
    every machine; files in the folder of results need not be shared.

    Args:
        address: ``"local"``, ``"auto"`` for the cluster that this machine is part of, or the address of a cluster,
            such as ``"10.0.0.1:6379"`` or ``"ray://10.0.0.1:10001"``.
        jobs: How many tasks share a GPU; without GPUs, how many work at the same time if Ray is started here. One
            task per GPU or core by default.
        device: ``"cpu"`` or ``"cuda"``.
        retries: How many times an item is sent again.
    """

    address: str = LOCAL
    jobs: int | None = None
    device: str = "cpu"
    retries: int = 3
    elsewhere: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(self.jobs is None or self.jobs >= 1, f"jobs must be at least 1 with Ray (got {self.jobs})")
        known = self.device in ("cpu", "cuda")
        require(known, f"Ray chooses among the GPUs by itself; use 'cpu' or 'cuda' as the device (got {self.device!r})")

    def __call__(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R | Lost[T]]:
        """Call a function for every item."""
        ray = self._connected()
        gpus = 1 / (self.jobs or 1) if self.device == "cuda" else 0
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=self.retries)(_call)
        shared = ray.put(function)
        left, waiting = iter(items), dict[Any, T]()
        try:
            while True:
                for item in itertools.islice(left, WINDOW - len(waiting)):
                    waiting[task.remote(shared, item)] = item
                if not waiting:
                    return
                (reference,), _ = ray.wait(list(waiting), num_returns=1)
                yield _result(ray, reference, waiting.pop(reference))
        finally:
            for reference in waiting:
                ray.cancel(reference, force=True)

    def _connected(self) -> Any:
        """The module, connected until this process ends."""
        ray = optional_module("ray", "Ray", "install it with: pip install 'graphmend[ray]'")
        if ray.is_initialized():
            return ray
        quiet = {"log_to_driver": False, "logging_level": "error"}
        if self.address == LOCAL:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports
            quiet |= {"include_dashboard": False, "num_cpus": self.jobs if self.device == "cpu" else None}
        try:
            ray.init(address=self.address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            message = f"there is no Ray at {self.address!r} ({first_line(error)}); start it with 'ray start'"
            raise GraphMendError(message) from error
        return ray


def _call(function: Callable[[T], R], item: T) -> R:
    return function(item)


def _result(ray: Any, reference: Any, item: T) -> Any:
    """What a task returned; what it raised is raised here, and if it was lost the item comes back."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        return Lost(item, first_line(error), isinstance(error, ray.exceptions.OutOfMemoryError))
