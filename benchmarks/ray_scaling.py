"""One and more workers of Ray on the shards of a graph folder: time, what travels, and what a dead node costs.

    python -m benchmarks.ray_scaling FOLDER --out FILE.json [--workers 1,2,4] [--models "PyG GraphSAGE,PyG GAT"]
        [--turns 2] [--kill] [--shards 8]

The folder is one of :mod:`benchmarks.large`, or is made here with ``--line``: nodes on a line, each with 25 neighbours
at most 2000 places away on either side, so that a shard has a small halo. Each number of workers is that many nodes of
one core each, beside a head that works on nothing and the process that calls; all of them are on this machine, whose
number of cores and load are stored. Every turn starts a cluster, makes a card and mends, and a first call of each kind
warms the workers up. Of every round of tasks the seconds of each (wall and processor), the bytes that were sent and
came back, and the time in which the caller worked alone before it are kept: :mod:`benchmarks.cluster_model` is fitted
to them. With ``--kill`` one node is killed while it works, and the tasks that were done are counted.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import Data

import graphmend
from benchmarks.large import CLASSES
from graphmend.files.files import write_text
from graphmend.files.provenance import provenance
from graphmend.shards import open_graph, pack
from graphmend.workers.shard_tasks import ShardTasks, on_cluster

MODELS: dict[str, Callable[[int], nn.Module]] = {
    "PyG GCN": lambda features: pyg.GCN(features, 32, 2, CLASSES),
    "PyG GraphSAGE": lambda features: pyg.GraphSAGE(features, 32, 2, CLASSES),
    "PyG GAT": lambda features: pyg.GAT(features, 32, 2, CLASSES, heads=4),
}
STORE = 2_000_000_000  # bytes of each node's object store


@dataclass(frozen=True)
class Timed:
    """A function that says how long it took, and where."""

    function: Callable[[Any], Any]

    def __call__(self, item: Any) -> tuple[float, float, int, Any]:
        """Seconds of the wall clock and of the processor, the process, and what the function gives."""
        start, cpu = time.perf_counter(), time.process_time()
        found = self.function(item)
        return time.perf_counter() - start, time.process_time() - cpu, os.getpid(), found


class Traced(ShardTasks):
    """Notes what happens in each round of tasks."""

    rounds: list[dict[str, Any]]
    last: float
    last_cpu: float

    def begin(self) -> None:
        """Forget what was noted."""
        self.rounds, self.last, self.last_cpu = [], time.perf_counter(), time.process_time()

    def _noted(self, function: Any, parts: Iterator[Any]) -> Iterator[Any]:
        start, cpu = time.perf_counter(), time.process_time()
        note: dict[str, Any] = {"kind": type(function).__name__, "alone": start - self.last}
        note |= {"alone_cpu": cpu - self.last_cpu, "seconds": [], "cpu": [], "back": 0}
        for seconds, used, _, found in parts:
            note["seconds"].append(round(seconds, 4))
            note["cpu"].append(round(used, 4))
            note["back"] += size_of(found)
            yield found
        self.last, self.last_cpu = time.perf_counter(), time.process_time()
        note |= {"wall": self.last - start, "driver_cpu": self.last_cpu - cpu, "sent": size_of(function)}
        self.rounds.append(
            {name: round(value, 4) if isinstance(value, float) else value for name, value in note.items()}
        )

    def __call__(self, function: Any, items: Iterable[Any]) -> Iterator[Any]:
        """As usual, and noted."""
        yield from self._noted(function, super().__call__(Timed(function), items))

    def merged(self, function: Any, items: Iterable[Any], merge: Any) -> Any:
        """As usual; the tasks of the tree bring their times along."""

        def both(first: Any, second: Any) -> Any:
            return [*first[:-1], *second[:-1], merge(first[-1], second[-1])]

        def one(item: Any) -> Any:
            seconds, used, process, found = Timed(function)(item)
            return [(seconds, used, process, None), found]

        def parts() -> Iterator[Any]:
            *times, found = super(Traced, self).merged(one, items, both)
            yield from times[:-1]
            yield (*times[-1][:3], found)

        return list(self._noted(function, parts()))[-1]


def size_of(value: Any) -> int:
    """Bytes of the tensors in something, without those of a graph folder."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, (tuple, list)):
        return sum(map(size_of, value))
    if hasattr(value, "__dataclass_fields__"):
        return sum(size_of(getattr(value, name)) for name in value.__dataclass_fields__)
    return 0


def steps(folder: Path, model: nn.Module, address: str, kill: bool, shards: int | None) -> dict[str, Any]:
    """A card and a mend on a cluster, each traced."""
    out: dict[str, Any] = {}
    card: Any = None
    for step in ("warm", "card", "mend"):
        data = open_graph(folder / ("graph" if step != "mend" else "clean"), verify=False, shards=shards)
        with on_cluster(data, address) as shared:
            tasks = shared.workers
            tasks.__class__ = Traced
            tasks.begin()
            start, cpu, load = time.perf_counter(), time.process_time(), os.getloadavg()[0]
            if step == "mend":
                killer = threading.Thread(target=kill_one, daemon=True)
                if kill:
                    killer.start()
                result = graphmend.mend(model, shared, card=card)
                out["decision"] = result.decision
            elif step == "card":
                card = graphmend.card(model, shared)
            else:
                list(shared.over(abs, range(64)))
            seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
            if step != "warm":
                rest = {"rest": round(time.perf_counter() - tasks.last, 4)}
                rest |= {"rest_cpu": round(time.process_time() - tasks.last_cpu, 4)}
                busy = sum(sum(each["cpu"]) for each in tasks.rounds)
                out[step] = {"seconds": round(seconds, 3), "driver_cpu": round(cpu, 3), "tasks_cpu": round(busy, 3)}
                out[step] |= {"load": load, "tasks": sum(len(each["cpu"]) for each in tasks.rounds)}
                out[step] |= {"rounds": tasks.rounds, **rest}
    return out


def line(folder: Path, nodes: int, features: int = 100) -> None:
    """A graph with neighbourhoods, packed."""
    generator = torch.Generator().manual_seed(0)
    source = torch.arange(nodes).repeat_interleave(25)
    target = source + torch.randint(1, 2000, source.shape, generator=generator)
    source, target = source[target < nodes], target[target < nodes]
    key = torch.cat([source * nodes + target, target * nodes + source]).sort().values
    y = (torch.arange(nodes) // 2000) % CLASSES
    x = torch.randn(nodes, features, generator=generator) + torch.nn.functional.one_hot(y, features)
    for name in ("graph", "clean"):
        pack(folder / name, Data(x=x, edge_index=torch.stack([key % nodes, key // nodes]), y=y))


def kill_one() -> None:
    """Kill the node of the first process of ours that is seen to work on a task."""
    while True:
        for process in psutil.Process().children(recursive=True):
            try:
                if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::_call"):
                    process.parent().kill()  # type: ignore[union-attr]
                    return
            except psutil.Error:
                continue


def turn(folder: Path, kind: str, workers: int, kill: bool, shards: int | None) -> dict[str, Any]:
    """All steps on a new cluster of so many nodes."""
    import ray
    from ray.cluster_utils import Cluster

    torch.manual_seed(0)
    features = open_graph(folder / "graph", verify=False).x.size(1)
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE}
    )
    try:
        for _ in range(workers):
            cluster.add_node(num_cpus=1, object_store_memory=STORE)
        found = steps(folder, MODELS[kind](features).eval(), cluster.address, kill, shards)
        return {"model": kind, "workers": workers, "killed": int(kill), **found}
    finally:
        ray.shutdown()
        cluster.shutdown()


def main() -> None:
    """Run what was asked for; each turn is written as soon as it is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--models", default="PyG GraphSAGE")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--line", type=int, metavar="NODES")
    parser.add_argument("--shards", type=int)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.line and not arguments.folder.exists():
        line(arguments.folder, arguments.line)
    data = open_graph(arguments.folder / "graph", verify=False)
    facts = {"nodes": data.x.size(0), "stored": data.edge_index.size(1), "features": data.x.size(1)}
    cores = len(os.sched_getaffinity(0))
    stored = provenance("cpu", graph="line" if arguments.line else "block model", cores=cores, seed=0, **facts)
    stored["turns"] = json.loads(arguments.out.read_text())["turns"] if arguments.out.exists() else []
    for _ in range(arguments.turns):
        for kind in arguments.models.split(","):
            for workers in map(int, arguments.workers.split(",")):
                one = turn(arguments.folder, kind, workers, arguments.kill, arguments.shards)
                stored["turns"].append(one)
                write_text(arguments.out, json.dumps(stored, indent=1) + "\n")
                times = {
                    step: (one[step]["seconds"], one[step]["driver_cpu"], one[step]["tasks_cpu"])
                    for step in ("card", "mend")
                }
                print(kind, workers, times, flush=True)


if __name__ == "__main__":
    main()
