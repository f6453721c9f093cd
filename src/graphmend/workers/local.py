"""Who does the work: this process or several on this machine; for a Ray cluster see ``ray_cluster``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

import joblib

from graphmend.errors import GraphMendError, require
from graphmend.files.files import first_line

__all__ = ["Local", "Lost", "Workers"]

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Lost(Generic[T]):
    """Stands in for a result where the process that worked on an item died, every time it was tried.

    Args:
        item: What was worked on.
        reason: What is known about it.
        out_of_memory: Whether the process was ended because memory ran out.
    """

    item: T
    reason: str
    out_of_memory: bool = False


class Workers(Protocol):
    """Calls a function for every item, some of them at the same time, and yields what it returns as it comes."""

    @property
    def elsewhere(self) -> bool:
        """Whether some may be on other machines, which do not see the folders of this one."""
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
        parallel = joblib.Parallel(n_jobs=self.jobs, return_as="generator_unordered", batch_size=1)
        results = parallel(joblib.delayed(function)(item) for item in items)
        try:
            yield from results
        except BrokenProcessPool as error:
            reason = f"a process was lost, perhaps because memory ran out ({first_line(error)})"
            message = f"{reason}; use fewer --jobs. What was finished is kept"
            raise GraphMendError(message) from error
        finally:
            results.close()
