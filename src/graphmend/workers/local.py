"""Who does the work: this process or several on this machine; for a Ray cluster see ``ray_cluster``."""

from __future__ import annotations

import functools
import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

import torch

from graphmend.errors import GraphMendError, require
from graphmend.files.files import first_line

__all__ = ["Local", "Lost", "Workers", "processes"]

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Lost(Generic[T]):
    """Takes the place of a result if the process that worked on an item died in every attempt.

    Args:
        item: What was worked on.
        reason: What is known about it.
        out_of_memory: Whether the process was ended because memory ran out.
    """

    item: T
    reason: str
    out_of_memory: bool = False


class Workers(Protocol):
    """Calls a function for every item, for some at the same time, and yields the results as they come."""

    @property
    def elsewhere(self) -> bool:
        """Whether some workers may be on other machines, which do not see the folders of this one."""
        ...

    def __call__(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterator[R | Lost[T]]:
        """The results, in any order."""
        ...


@dataclass(frozen=True)
class Local:
    """Processes on this machine.

    Args:
        jobs: How many work at the same time; 1 for this process alone, -1 for as many as there are cores.

    Example:
        >>> list(Local()(abs, [-1, 2]))
        [1, 2]
    """

    jobs: int = 1
    elsewhere: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require(self.jobs == -1 or self.jobs >= 1, f"jobs must be at least 1, or -1 for all cores (got {self.jobs})")

    def __call__(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R | Lost[T]]:
        """Call a function for every item."""
        if self.jobs == 1:
            yield from map(function, items)
            return
        import joblib  # when needed: on import it changes the environment

        parallel = joblib.Parallel(n_jobs=self.jobs, return_as="generator_unordered", batch_size=1)
        results = parallel(joblib.delayed(_attached)(os.getpid(), function, item) for item in items)
        try:
            yield from results
        except BrokenProcessPool as error:
            reason = f"a process was lost, perhaps because memory ran out ({first_line(error)})"
            message = f"{reason}; use fewer --jobs. What was finished is kept"
            raise GraphMendError(message) from error
        finally:
            results.close()

    def growing(
        self,
        function: Callable[[T], R],
        items: Iterable[T],
        then: Callable[[T], Iterable[T]],
        taken: Callable[[T], None],
    ) -> Iterator[R]:
        """Call a function for every item, and for the items that this makes possible, the newest first.

        Args:
            function: What is called.
            items: What it is called for at first.
            then: The items that may follow, once one is finished.
            taken: Told of each item when it begins, or is about to.
        """
        open_items = deque(items)
        if self.jobs == 1:
            while open_items:
                item = open_items.popleft()
                taken(item)
                yield function(item)
                open_items.extendleft(reversed(list(then(item))))
            return
        import joblib  # when needed: on import it changes the environment
        from joblib.externals.loky import get_reusable_executor

        jobs = joblib.effective_n_jobs(self.jobs)
        threads = max(1, joblib.cpu_count() // jobs)
        pool = get_reusable_executor(jobs, initializer=_begin, initargs=(os.getpid(), threads), env={})
        working: dict[Future[R], T] = {}
        try:
            while open_items or working:
                while open_items and len(working) < jobs:
                    item = open_items.popleft()
                    taken(item)
                    working[pool.submit(function, item)] = item
                for future in wait(working, return_when=FIRST_COMPLETED).done:
                    item = working.pop(future)
                    result = future.result()
                    open_items.extendleft(reversed(list(then(item))))
                    yield result
        except BrokenProcessPool as error:
            reason = f"a process was lost, perhaps because memory ran out ({first_line(error)})"
            message = f"{reason}; use fewer --jobs. What was finished is kept"
            raise GraphMendError(message) from error
        finally:
            pool.shutdown(wait=True, kill_workers=bool(working))


def processes(jobs: int, threads: int) -> ProcessPoolExecutor:
    """Processes on this machine, with a number of threads each, that end when this one does, even if it is killed."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=(os.getpid(), threads))


def _begin(parent: int, threads: int) -> None:
    _end_with(parent)
    torch.set_num_threads(threads)


def _attached(parent: int, function: Callable[[T], R], item: T) -> R:
    _end_with(parent)
    return function(item)


@functools.cache
def _end_with(parent: int) -> None:
    """Let this process end soon after its parent, whose results nobody would read any more.

    A killed parent cannot tell its workers, which would continue to work and write files.
    """

    if parent == os.getpid():  # with one core, joblib does the work in this process
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PAUSE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


_PAUSE = 0.2  # seconds between two checks of the parent
