"""What a cluster would take, simulated: shards as tasks, one copy of what all need for each machine, results to the driver.

    python -m benchmarks.cluster_model [--measured docs/results/ray_scaling_cpu.json] --out docs/results/ray_model.json

A call is a list of steps. In each, the driver first works alone; then it sends the representations of all nodes to every
machine that has not mapped them, hands out the tasks one after the other to whichever core is free, and takes their
results in. A task takes a time for each edge and each node, times that of a straggler. Machines die at random; what a
dead machine was working on is done again by others, and what it had finished is not. The costs are fitted to stored
runs of :mod:`benchmarks.ray_scaling`; a test compares what comes out with the times of those runs.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from graphmend.files.files import write_text

RESULTS = Path(__file__).parents[1] / "docs" / "results"
MEASURED = RESULTS / "ray_scaling_cpu.json"


@dataclass(frozen=True)
class Cluster:
    """Machines that are alike.

    Args:
        machines: How many work.
        cores: Of each.
        network: Bytes a second, in and out of each machine; ``inf`` for one machine whose processes share memory.
        copy: Bytes a second that a process writes into memory that others read.
        dispatch: Seconds that the driver takes for each task.
        spread: Standard deviation of the logarithm of a task's time, the same work given.
        slow: How many times as long a task takes while all cores of a machine work, which share its memory.
        lifetime: Mean seconds until a machine dies; none dies by default.
        notice: Seconds until it is noticed.
        repair: Seconds until another one takes its place.
    """

    machines: int
    cores: int = 1
    network: float = math.inf
    copy: float = math.inf
    dispatch: float = 0.0
    spread: float = 0.0
    slow: float = 1.0
    lifetime: float = math.inf
    notice: float = 5.0
    repair: float = math.inf


@dataclass(frozen=True)
class Step:
    """One round of tasks, and what the driver does before it.

    Args:
        tasks: The seconds that each task takes on an idle machine.
        alone: Seconds that the driver works by itself first.
        sent: Bytes that every machine needs, beside what it has mapped.
        back: Bytes of all results.
    """

    tasks: list[float] = field(default_factory=list)
    alone: float = 0.0
    sent: float = 0.0
    back: float = 0.0


@dataclass
class Outcome:
    """How long a call takes, and what of it was lost.

    Args:
        seconds: Until the last result is there.
        alone: Of these, the driver worked alone.
        sending: Of these, data went to the machines or came back.
        again: Tasks that were done again.
    """

    seconds: float = 0.0
    alone: float = 0.0
    sending: float = 0.0
    again: int = 0


def simulate(steps: list[Step], cluster: Cluster, seed: int = 0) -> Outcome:
    """One call on a cluster."""
    rng, out = random.Random(seed), Outcome()
    deaths = [rng.expovariate(1 / cluster.lifetime) if cluster.lifetime < math.inf else math.inf] * 0
    deaths = [_death(rng, cluster, 0.0) for _ in range(cluster.machines)]
    for step in steps:
        out.seconds, out.alone = out.seconds + step.alone, out.alone + step.alone
        if step.tasks:
            sending = _sending(step, cluster)
            out.sending += sending
            out.seconds = _round(step, cluster, rng, out.seconds + sending, deaths, out)
    return out


def _death(rng: random.Random, cluster: Cluster, now: float) -> float:
    return now + rng.expovariate(1 / cluster.lifetime) if cluster.lifetime < math.inf else math.inf


def _sending(step: Step, cluster: Cluster) -> float:
    """The driver writes once; machines pass on what they have, so it is there after about two times over the network.

    Results are as many bytes through the driver's own network, however many machines there are.
    """
    there = step.sent / cluster.copy + (2 * step.sent / cluster.network if cluster.machines > 1 else 0.0)
    return there + step.back / min(cluster.network, cluster.copy)


def _round(step: Step, cluster: Cluster, rng: random.Random, start: float, deaths: list[float], out: Outcome) -> float:
    """When the last task of a step is done."""
    free = [(start, machine, core) for machine in range(cluster.machines) for core in range(cluster.cores)]
    heapq.heapify(free)
    waiting, running = list(reversed(step.tasks)), 0
    driver, end = start, start
    full = len(step.tasks) >= cluster.machines * cluster.cores
    while waiting:
        at, machine, core = heapq.heappop(free)
        if at >= deaths[machine]:  # another one takes its place, if there is one
            back = deaths[machine] + cluster.repair
            if back < math.inf:
                heapq.heappush(free, (max(at, back), machine, core))
                if core == 0:
                    deaths[machine] = _death(rng, cluster, max(at, back))
            elif not free:
                return math.inf
            continue
        work = waiting.pop()
        driver = max(driver + cluster.dispatch, at)
        factor = math.exp(rng.gauss(0, cluster.spread) - cluster.spread**2 / 2) if cluster.spread else 1.0
        begins = max(at, driver)
        done = begins + work * factor * (cluster.slow if full else 1.0)
        if done > deaths[machine]:
            out.again += 1
            waiting.append(work)
            noticed = deaths[machine] + cluster.notice
            heapq.heappush(free, (max(noticed, at), machine, core))
            end = max(end, noticed)
            continue
        end = max(end, done)
        heapq.heappush(free, (done, machine, core))
        running += 1
    return end
