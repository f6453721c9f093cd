"""Workers of a Ray cluster, or of a Ray that is started on this machine (https://docs.ray.io)."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from graphmend.errors import GraphMendError, optional_module, require
from graphmend.files.files import first_line
from graphmend.graph.merging import Tree
from graphmend.workers.local import Lost

__all__ = ["LOCAL", "OutOfMemory", "Ray"]

T = TypeVar("T")
R = TypeVar("R")

LOCAL = "local"
"""The address that starts a Ray on this machine."""

WINDOW = 256
"""How many items are with Ray at once: more than most clusters work on, and few enough to be kept in memory."""

_MEMORY = ("can't allocate memory", "out of memory", "cannot allocate memory")  # the words of torch and Linux for it


class OutOfMemory(Exception):
    """A task ran out of memory; it is sent again, perhaps to another machine."""


@dataclass(frozen=True)
class Ray:
    """Tasks of Ray, each with a processor core of its own and a share of a GPU.

    An item whose process or machine is lost, or whose process has run out of memory, is sent to another one. GraphMend
    and the data sets must be installed on every machine; files in the folder of results need not be shared.

    Args:
        address: ``"local"``, ``"auto"`` for the cluster that this machine is part of, or the address of a cluster,
            such as ``"10.0.0.1:6379"`` or ``"ray://10.0.0.1:10001"``.
        jobs: How many tasks share a GPU; without GPUs, how many work at the same time if Ray is started here. One
            task per GPU or core by default.
        device: ``"cpu"`` or ``"cuda"``.
        retries: How many times an item is sent again.
        window: How many items are with Ray at once, including results that have not been fetched.
    """

    address: str = LOCAL
    jobs: int | None = None
    device: str = "cpu"
    retries: int = 3
    window: int = WINDOW
    elsewhere: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(self.jobs is None or self.jobs >= 1, f"jobs must be at least 1 with Ray (got {self.jobs})")
        known = self.device in ("cpu", "cuda")
        require(known, f"Ray chooses among the GPUs by itself; use 'cpu' or 'cuda' as the device (got {self.device!r})")

    def __call__(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R | Lost[T]]:
        """Call a function for every item."""
        ray, call = self._task(_call)
        shared = [ray.put(function)]  # in a list it is not read anew for every item
        left, waiting = iter(items), dict[Any, T]()
        try:
            while True:
                for item in itertools.islice(left, self.window - len(waiting)):
                    waiting[call.remote(shared, item)] = item
                if not waiting:
                    return
                (reference,), _ = ray.wait(list(waiting), num_returns=1)
                yield _result(ray, reference, waiting.pop(reference))
        finally:
            _cancel(ray, list(waiting))

    def merged(self, function: Callable[[T], R], items: Iterable[T], merge: Callable[[R, R], R]) -> R | Lost[None]:
        """What a function gives for all items, merged in pairs in their order, where the parts are.

        The pairs are always the same, and so is the result, to the last digit, whoever works and whoever is lost. Only
        one result is sent here.
        """
        ray, call = self._task(_call)
        _, pair = self._task(_merge)
        shared, merging = [ray.put(function)], [ray.put(merge)]
        tree, waiting = Tree[Any](functools.partial(pair.remote, merging)), list[Any]()
        try:
            for item in items:
                waiting.append(call.remote(shared, item))
                tree.add(waiting[-1])
                if len(waiting) >= self.window:
                    _, waiting = ray.wait(waiting, num_returns=1, fetch_local=False)
            whole = tree.total()
            waiting = [reference for reference in waiting if reference != whole] + [whole]
            return _result(ray, whole, None)  # type: ignore[no-any-return]
        finally:
            _cancel(ray, waiting)

    @property
    def cores(self) -> int:
        """How many tasks the cluster works on at the same time."""
        return max(1, int(self.connected().cluster_resources().get("CPU", 1)))

    def _task(self, function: Callable[..., Any]) -> tuple[Any, Any]:
        ray = self.connected()
        gpus = 1 / (self.jobs or 1) if self.device == "cuda" else 0
        again = {"max_retries": self.retries, "retry_exceptions": [OutOfMemory]}
        return ray, ray.remote(num_cpus=1, num_gpus=gpus, **again)(function)

    def connected(self) -> Any:
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


@functools.lru_cache(maxsize=2)
def _kept(reference: Any) -> Any:
    """A function that many items need, read once in a process."""
    import ray

    return ray.get(reference)


def _call(shared: list[Any], item: T) -> Any:
    try:
        return _kept(shared[0])(item)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or any(text in str(error).lower() for text in _MEMORY):
            _kept.cache_clear()
            raise OutOfMemory(first_line(error)) from error
        raise


def _merge(shared: list[Any], first: R, second: R) -> Any:
    return _kept(shared[0])(first, second)


def _cancel(ray: Any, references: list[Any]) -> None:
    """Cancel what is not done yet; cancelling what is done can end this process (seen with Ray 2.60)."""
    if references:
        for reference in ray.wait(references, num_returns=len(references), timeout=0, fetch_local=False)[1]:
            ray.cancel(reference, force=True)


def _result(ray: Any, reference: Any, item: T) -> Any:
    """The result of a task; its exception is raised here, and if the task was lost, the item comes back."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, (OutOfMemory, ray.exceptions.OutOfMemoryError)):
            return Lost(item, f"it ran out of memory: {first_line(error.cause)}", True)
        if isinstance(error.cause, ray.exceptions.RayError):  # of a task that this one waited for
            return Lost(item, first_line(error.cause))
        raise error.cause from error
    except ray.exceptions.RayError as error:
        return Lost(item, first_line(error), isinstance(error, ray.exceptions.OutOfMemoryError))
