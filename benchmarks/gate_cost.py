"""What the call that everybody makes costs: the gate and the source card beside forward passes and GTrans.

    python -m benchmarks.gate_cost --out FILE.json [--names cora,arxiv-size] [--kinds "PyG GCN,PyG GraphSAGE"]
        [--device cuda] [--turns 3] [--threads 1] [--data DIR] [--leave-out plain,GTrans]

Stock PyG models of three layers of 64 units with random weights, on graphs of :mod:`benchmarks.graphs`. The gate is
given the graph of the card, the same graph with a tenth of its rows broken, with a tenth more edges, and with shifted
features, so that it leaves the graph alone, imputes, purifies and aligns; ``blind`` is the gate without a card on
broken rows. With random weights the gate may find in the end that a change would not help; its work is the same, and
the decision is stored.

``forward`` is the first forward pass of the engine on a new graph, as the gate needs it, ``plain`` that of PyG. All are
timed in turns, in one process (CPU: time of the process, one thread; GPU and several threads: wall time); the median
counts. The memory is the peak above what the process held before.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import Data

import graphmend
from benchmarks import graphs
from benchmarks.adapt import peak_memory, reset_memory, wait
from graphmend.files.files import write_text
from graphmend.files.provenance import provenance
from graphmend.model import FrozenGNN
from graphmend.progress import track

MODELS: dict[str, Callable[[int], nn.Module]] = {
    "PyG GCN": lambda features: pyg.GCN(features, 64, 3, 40),
    "PyG GraphSAGE": lambda features: pyg.GraphSAGE(features, 64, 3, 40),
}
FAULTS = ("clean", "broken rows", "added edges", "shifted features")
SHARE = 0.1


def target(data: Data, fault: str) -> Data:
    """The graph as it is, or a copy with a fault."""
    generator, out = torch.Generator().manual_seed(0), copy.copy(data)
    if fault == "broken rows":
        rows = torch.randperm(data.num_nodes, generator=generator)[: int(SHARE * data.num_nodes)]
        out.x = data.x.clone()
        out.x[rows] = 20 * torch.randn(rows.numel(), data.x.size(1), generator=generator).to(data.x)
    elif fault == "added edges":
        size = (2, int(SHARE * data.num_edges) // 2)
        ends = torch.randint(data.num_nodes, size, generator=generator).to(data.edge_index)
        out.edge_index = torch.cat([data.edge_index, ends, ends.flip(0)], dim=1)
    elif fault == "shifted features":
        out.x = data.x + 0.5
    return out


def measure(
    model: nn.Module, data: Data, device: str, turns: int, left_out: list[str], progress: str
) -> dict[str, Any]:
    """Seconds and memory of all calls on one graph."""
    model = model.to(device).eval()
    train = copy.copy(data).to(device)  # to() works in place
    card = graphmend.card(model, train, task="classes")
    decisions: dict[str, str] = {}

    def forward() -> None:
        with FrozenGNN(model, train) as frozen, torch.no_grad():
            frozen(train.x, train.edge_index.clone())

    def plain() -> None:
        with torch.no_grad():
            model(train.x, train.edge_index)

    def gate(fault: str, **options: Any) -> Callable[[], Callable[[], None]]:
        def prepared() -> Callable[[], None]:
            graph = target(train, fault)  # made when it is needed, so that only one is held

            def run() -> None:
                decisions[fault if options else "blind"] = str(graphmend.mend(model, graph, **options).verdict)

            return run

        return prepared

    runs: dict[str, Callable[[], Callable[[], Any]]] = {
        "forward": lambda: forward,
        "card": lambda: lambda: graphmend.card(model, train, task="classes"),
    }
    runs |= {f"gate, {fault}": gate(fault, card=card) for fault in FAULTS}
    runs["blind"] = gate("broken rows")
    runs["GTrans"] = lambda: lambda: graphmend.GTrans()(model, train)
    runs["plain"] = lambda: plain
    runs = {name: run for name, run in runs.items() if name not in left_out}
    clock = time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    memory: dict[str, int] = {}
    held: dict[str, int] = {}
    for turn, name in track([(turn, name) for turn in range(turns + 1) for name in runs], progress, True):
        run = runs[name]()
        gc.collect()
        before = reset_memory(device) + (torch.cuda.memory_allocated() if device == "cuda" else 0)
        start = clock()
        run()
        wait(device)
        del run
        if turn > 0 or turns == 0:  # the first one tries things out
            seconds[name].append(clock() - start)
            memory[name] = max(memory.get(name, 0), peak_memory(device) - before)
            held[name] = max(held.get(name, 0), before)
    best = {name: statistics.median(times) for name, times in seconds.items()}
    ratios = {name: round(value / best["forward"], 2) for name, value in best.items()}
    return {
        "nodes": train.num_nodes,
        "entries": train.num_edges,
        "features": train.num_features,
        "seconds": {name: round(value, 4) for name, value in best.items()},
        "forwards": ratios,
        "memory": memory,
        "held before": held,
        "decisions": decisions,
    }


def main() -> None:
    """Parse, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--names", default="cora,arxiv-size")
    parser.add_argument("--kinds", default=",".join(MODELS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--turns", type=int, default=3, help="after a first one; 0 counts the first one, for large graphs"
    )
    parser.add_argument("--threads", type=int, default=1, help="of a CPU")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--leave-out", default="", help="calls that are too large for the machine, with commas")
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        torch.set_num_threads(arguments.threads)
    rows, left_out = {}, arguments.leave_out.split(",")
    for name in arguments.names.split(","):
        data, is_real = graphs.graph(name, arguments.data)
        data = Data(x=data.x, edge_index=data.edge_index)
        for kind in arguments.kinds.split(","):
            torch.manual_seed(0)
            model, label = MODELS[kind](data.num_features), f"{name}, {kind}"
            row = measure(model, data, arguments.device, arguments.turns, left_out, label)
            rows[label] = {"real": is_real, **row}
            print(label, json.dumps(row, indent=1), flush=True)
            about = {"provenance": provenance(arguments.device), "rows": rows}
            write_text(arguments.out, json.dumps(about, indent=2) + "\n")


if __name__ == "__main__":
    main()
