"""Processes that run inputs under limits, and are replaced when one of them is lost."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import time
from collections.abc import Iterable, Iterator, Mapping
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

import psutil
import torch

from fuzz.cases import VIOLATION, Family, Outcome, attempt

TIME_LIMIT = 20.0
MEMORY_LIMIT = 4 << 30
GRACE = 5.0  # seconds after which a process that does not hear its own timer is ended
RESERVE = 1.5  # times the limit that a process may ask for; what it only asks for and does not use is no violation

Input = tuple[str, int]


class Limits(NamedTuple):
    """What one input may take."""

    seconds: float = TIME_LIMIT
    memory: int = MEMORY_LIMIT


def _work(pipe: Connection, families: Mapping[str, Family], limits: Limits) -> None:
    """Run inputs until there are no more."""
    torch.set_num_threads(1)
    ceiling = int(RESERVE * limits.memory)
    with contextlib.suppress(ValueError, OSError):  # not every system has it; the peak is watched from outside, too
        resource.setrlimit(resource.RLIMIT_DATA, (ceiling, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), 2)  # libraries in C write warnings there
    pipe.send(None)
    while (given := pipe.recv()) is not None:
        family, seed = given
        pipe.send(attempt(family, families[family], seed, limits.seconds, limits.memory))


class _Worker:
    """One process with what it is doing."""

    def __init__(self, families: Mapping[str, Family], limits: Limits) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, families, limits), daemon=True)
        self.process.start()
        theirs.close()
        self.limits = limits
        self.task: Input | None = None
        self.since = 0.0

    def give(self, task: Input | None) -> None:
        self.task, self.since = task, time.monotonic()
        self.pipe.send(task)

    def overstepped(self) -> str:
        """Which limit the process has overstepped without noticing."""
        if self.task is None:
            return ""
        if time.monotonic() - self.since > self.limits.seconds + GRACE:
            return f"longer than {self.limits.seconds:g} s, and it could not be interrupted"
        with contextlib.suppress(psutil.Error):
            used = psutil.Process(self.process.pid).memory_info().rss
            if used > self.limits.memory:
                return f"{used / 2**30:.1f} GiB of memory"
        return ""

    def lost(self, problem: str) -> Outcome:
        """What became of the input at which this process was lost; the process is ended."""
        self.process.kill()
        self.process.join()
        assert self.task is not None
        return Outcome(*self.task, "", VIOLATION, time.monotonic() - self.since, 0, problem)

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self.pipe.send(None)
        self.process.join(GRACE)
        self.process.kill()


def run_inputs(
    inputs: Iterable[Input], families: Mapping[str, Family], processes: int = 1, limits: Limits | None = None
) -> Iterator[Outcome]:
    """Run inputs in processes of their own; outcomes come in the order in which they are done.

    Args:
        inputs: Pairs of the name of a family and a seed.
        families: The families by name, functions that another process can import.
        processes: How many at a time.
        limits: What one input may take.
    """
    limits, waiting = limits or Limits(), iter(inputs)
    workers = [_Worker(families, limits) for _ in range(processes)]
    try:
        while workers:
            ready = wait([worker.pipe for worker in workers], timeout=0.2)
            for worker in list(workers):
                outcome, problem = None, worker.overstepped()
                if problem and worker.pipe not in ready:
                    outcome = worker.lost(problem)
                elif worker.pipe in ready:
                    try:
                        outcome = worker.pipe.recv()
                    except EOFError:
                        worker.process.join()
                        problem = f"the process ended with code {worker.process.exitcode}"
                        if worker.task is None:
                            raise RuntimeError(f"a worker could not start: {problem}") from None
                        outcome = worker.lost(problem)
                else:
                    continue
                if outcome is not None:
                    yield outcome
                task = next(waiting, None)
                if task is None:
                    worker.stop()
                    workers.remove(worker)
                    continue
                if not worker.process.is_alive():
                    workers[workers.index(worker)] = worker = _Worker(families, limits)
                    worker.pipe.recv()
                worker.give(task)
    finally:
        for worker in workers:
            worker.process.kill()
