"""What a cluster would take, simulated: shards as tasks, one copy of what all need for each machine.

    python -m benchmarks.cluster_model --out docs/results/ray_model.json

A call is a list of steps. In each, the driver first works alone; then it sends the representations of all nodes to
every machine that has not mapped them, hands out the tasks one after the other to whichever core is free, and takes
their results in. A task takes a time for each edge and each node, times that of a straggler. Machines die at random;
what a dead machine was working on is done again by others, and what it had finished is not. The costs are fitted to
stored runs of :mod:`benchmarks.ray_scaling`; a test compares what comes out with the times of those runs.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
import statistics
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from graphmend.files.files import write_text
from graphmend.files.provenance import provenance

RESULTS = Path(__file__).parents[1] / "docs" / "results"
SHARDS, SUMS = RESULTS / "ray_line_cpu.json", RESULTS / "ray_block_cpu.json"
TOLERANCE = 0.3  # of the measured time, by which the simulated one may differ
RANGE = 4e6  # edges of a task
NETWORK = 25e9 / 8  # bytes a second of a machine that is planned with
COPY = 4e9  # bytes a second that a process writes into memory that others read
CORES = 16  # of such a machine
LIFETIME = 86400.0  # seconds until one of them dies: a day, far less than machines live
WIDTH, OUTPUTS, FEATURES = 32, 10, 100  # of the model and the graph that were measured


@dataclass(frozen=True)
class Cluster:
    """Machines that are alike.

    Args:
        machines: How many work.
        cores: Of each.
        network: Bytes a second, in and out of each machine; ``inf`` for machines that share memory.
        copy: Bytes a second that a process writes into memory that others read.
        dispatch: Seconds that the driver takes for each task.
        spread: Standard deviation of the logarithm of a task's time, the same work given.
        lifetime: Mean seconds until a machine dies; none dies by default.
        notice: Seconds until it is noticed; another machine then takes its place.
    """

    machines: int
    cores: int = 1
    network: float = math.inf
    copy: float = math.inf
    dispatch: float = 0.0
    spread: float = 0.0
    lifetime: float = math.inf
    notice: float = 5.0


@dataclass(frozen=True)
class Step:
    """One round of tasks, and what the driver does before it.

    Args:
        tasks: The seconds that each task takes.
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
    deaths = [_death(rng, cluster, 0.0) for _ in range(cluster.machines)]
    for step in steps:
        sending = _sending(step, cluster)
        out.alone, out.sending = out.alone + step.alone, out.sending + sending
        out.seconds = _round(step, cluster, rng, out.seconds + step.alone + sending, deaths, out)
    return out


def _death(rng: random.Random, cluster: Cluster, now: float) -> float:
    return now + rng.expovariate(1 / cluster.lifetime) if cluster.lifetime < math.inf else math.inf


def _sending(step: Step, cluster: Cluster) -> float:
    """The driver writes once; machines pass on what they have, so it is everywhere after twice over the network.

    Results are as many bytes through the driver's own network, however many machines there are.
    """
    there = step.sent / cluster.copy + (2 * step.sent / cluster.network if cluster.machines > 1 else 0.0)
    return there + step.back / min(cluster.network, cluster.copy)


def _round(step: Step, cluster: Cluster, rng: random.Random, start: float, deaths: list[float], out: Outcome) -> float:
    """When the last task of a step is done."""
    free = [(start, machine, core) for machine in range(cluster.machines) for core in range(cluster.cores)]
    waiting, driver, end = list(reversed(step.tasks)), start, start
    while waiting:
        at, machine, core = heapq.heappop(free)
        work = waiting.pop()
        driver = max(driver + cluster.dispatch, at)
        factor = math.exp(rng.gauss(0, cluster.spread) - cluster.spread**2 / 2) if cluster.spread else 1.0
        done = driver + work * factor
        if done > deaths[machine]:  # another machine takes its place, and somebody does the work again
            out.again += 1
            waiting.append(work)
            noticed = max(deaths[machine], at) + cluster.notice
            others = [entry for entry in free if entry[1] != machine]
            same = [(noticed, machine, number) for number in range(cluster.cores)]
            running = [entry for entry in free if entry[1] == machine and entry[0] > deaths[machine]]
            out.again += len(running)  # what its other cores were working on
            waiting += [work for _ in running]
            free = others + same
            heapq.heapify(free)
            deaths[machine] = _death(rng, cluster, noticed)
            continue
        end = max(end, done)
        heapq.heappush(free, (done, machine, core))
    return end


def measured_steps(call: dict[str, Any]) -> list[Step]:
    """A call that was traced, as steps; what the driver did while tasks ran is in the time of the round."""
    steps = [Step([float(seconds) for seconds in each["seconds"]], max(0.0, each["alone"])) for each in call["rounds"]]
    return [*steps, Step(alone=max(0.0, call["rest"]))]


def overhead(call: dict[str, Any]) -> float:
    """Seconds that a task takes beside its own time, with one worker."""
    rounds = call["rounds"]
    beside = sum(each["wall"] - sum(each["seconds"]) for each in rounds)
    return max(0.0, float(beside)) / max(1, sum(len(each["seconds"]) for each in rounds))


def compared(stored: dict[str, Any], step: str) -> list[dict[str, Any]]:
    """The seconds of each number of workers, measured, and simulated from the runs with one; medians of all turns."""
    by: dict[int, list[dict[str, Any]]] = {}
    for turn in stored["turns"]:
        by.setdefault(turn["workers"], []).append(turn[step])
    out = []
    for workers, calls in sorted(by.items()):
        times = [simulate(measured_steps(one), Cluster(workers, dispatch=overhead(one))).seconds for one in by[1]]
        row = {"graph": stored["graph"], "model": stored["turns"][0]["model"], "step": step, "workers": workers}
        row |= {"turns": len(calls), "measured": round(statistics.median(call["seconds"] for call in calls), 2)}
        row |= {"simulated": round(statistics.median(times), 2)}
        out.append({**row, "load": round(statistics.median(call["load"] for call in calls), 1)})
    return out


@dataclass(frozen=True)
class Costs:
    """Processor seconds of a call for a stored edge of a graph, measured; and the tasks of a round.

    Args:
        driver: That the driver takes alone.
        tasks: That tasks take.
        hops: Rounds in which the representations of all nodes are sent.
        dispatch: Seconds for each task beside its own time, on the machine as busy as it was.
    """

    driver: float
    tasks: float
    hops: int
    dispatch: float

    @classmethod
    def of(cls, stored: dict[str, Any], step: str) -> Costs:
        """From a stored run with one worker."""
        call = next(turn for turn in stored["turns"] if turn["workers"] == 1)[step]
        hops = sum(each["kind"] == "HopOnRange" for each in call["rounds"])
        edges = stored["stored"]
        return cls(call["driver_cpu"] / edges, call["tasks_cpu"] / edges, hops, overhead(call))


def predicted(costs: Costs, nodes: float, edges: float, machines: int, *, spread: float = 0.2) -> dict[str, Any]:
    """A call on a graph of any size on machines of 16 cores, some edges at a time, and the memory that it takes."""
    rows, rounds = nodes * WIDTH * 4, max(1, costs.hops)
    number = math.ceil(edges / RANGE)
    tasks = [costs.tasks * edges / rounds / number] * number
    steps = [Step(tasks, costs.driver * edges / rounds, rows, rows) for _ in range(rounds)]
    kind = Cluster(machines, CORES, NETWORK, COPY, costs.dispatch, spread)
    whole, failing = simulate(steps, kind), simulate(steps, replace(kind, lifetime=LIFETIME, notice=30))
    return {
        "nodes": nodes,
        "edges": edges,
        "machines": machines,
        "seconds": round(whole.seconds),
        "of these the caller alone": round(whole.alone),
        "of these sending": round(whole.sending),
        "with failures": round(failing.seconds),
        "tasks done again": failing.again,
        "caller, GB of rows": round(nodes * (2 * WIDTH + OUTPUTS) * 4 / 1e9),
        "each machine, GB of rows": round(rows / 1e9),
        "folder, GB": round((16 * edges + 8 * nodes + 4 * FEATURES * nodes) / 1e9),
    }


GRAPHS = {
    "products": (2.4e6, 124e6, (1, 2)),
    "papers100M": (111e6, 3.2e9, (1, 10, 100)),
    "1e11 edges": (2e9, 1e11, (100,)),
}


def _as_tasks(costs: Costs) -> Costs:
    return replace(costs, driver=0.0, tasks=costs.driver + costs.tasks)


def main() -> None:
    """Compare with what was measured, and predict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    shards, sums = (json.loads(file.read_text()) for file in (SHARDS, SUMS))
    out: dict[str, Any] = provenance("cpu", measured=[SHARDS.name, SUMS.name], seed=0)
    out["compared"] = [row for stored in (shards, sums) for step in ("card", "mend") for row in compared(stored, step)]
    out["costs"] = {step: asdict(Costs.of(sums, step)) for step in ("card", "mend")}
    out["predicted"] = [
        {"graph": name, "step": step, **predicted(Costs.of(sums, step), nodes, edges, machines)}
        for name, (nodes, edges, all_machines) in GRAPHS.items()
        for step in ("card", "mend")
        for machines in all_machines
    ]
    out["if the caller's work were tasks"] = [
        {"graph": name, "step": step, **predicted(_as_tasks(Costs.of(sums, step)), nodes, edges, all_machines[-1])}
        for name, (nodes, edges, all_machines) in GRAPHS.items()
        for step in ("card", "mend")
    ]
    write_text(arguments.out, json.dumps(out, indent=1) + "\n")
    for row in [*out["compared"], out["costs"], *out["predicted"], *out["if the caller's work were tasks"]]:
        print(row)


if __name__ == "__main__":
    main()
