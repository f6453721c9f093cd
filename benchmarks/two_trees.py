"""Does a change slow ``mend`` down? Two source trees in one process, called in turns.

    git worktree add /tmp/before COMMIT
    python -m benchmarks.two_trees /tmp/before/src src --pairs 40 --data cora photo-ood --out before_and_after.json

Both trees are imported, each under its own set of modules, and mend the same graphs for the same untrained models of
PyG; the order alternates from pair to pair. CPU time of one thread is measured, and the median of the ratios new / old
is what counts: a busy machine disturbs both alike. Its interval of 95 % is that of the order statistics. The data come
from the new tree.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GraphSAGE

Modules = dict[str, ModuleType]


def loaded() -> Modules:
    """The modules of the tree that is in use."""
    return {name: module for name, module in sys.modules.items() if name.split(".")[0] == "graphmend"}


def use(modules: Modules) -> None:
    """Let ``import graphmend`` mean this tree."""
    for name in loaded():
        del sys.modules[name]
    sys.modules.update(modules)


def imported(source: Path) -> Modules:
    """The modules of a tree."""
    use({})
    sys.path.insert(0, str(source.resolve()))
    import graphmend  # noqa: F401

    sys.path.pop(0)
    return loaded()


def calls_of(data: Data) -> dict[str, Callable[[], Any]]:
    """What is timed on a graph, with the tree that is in use."""
    import graphmend

    classes = int(data.y.max()) + 1
    broken, moved = data.clone(), data.clone()
    broken.x[::7] = torch.randn(data.x[::7].shape, generator=torch.Generator().manual_seed(0))
    moved.x = 2 * data.x + 0.02
    torch.manual_seed(0)
    models: dict[str, nn.Module] = {
        "GCN": GCN(data.num_features, 64, 2, classes).eval(),
        "GraphSAGE": GraphSAGE(data.num_features, 64, 2, classes).eval(),
    }
    calls: dict[str, Callable[[], Any]] = {}
    for name, model in models.items():
        card = graphmend.card(model, data)
        calls[f"{name}, GTrans"] = lambda m=model: graphmend.mend(m, data, graphmend.GTrans())  # type: ignore[misc]
        calls[f"{name}, card"] = lambda m=model: graphmend.card(m, data)  # type: ignore[misc]
        calls[f"{name}, gate, broken rows"] = lambda m=model, c=card: graphmend.mend(m, broken, card=c)  # type: ignore[misc]
        calls[f"{name}, gate, shifted"] = lambda m=model, c=card: graphmend.mend(m, moved, card=c)  # type: ignore[misc]
        calls[f"{name}, gate"] = lambda m=model, c=card: graphmend.mend(m, data, card=c)  # type: ignore[misc]
        calls[f"{name}, gate without a card"] = lambda m=model: graphmend.mend(m, data)  # type: ignore[misc]
    return calls


def timed(trees: list[Modules], calls: list[Callable[[], Any]], pairs: int) -> dict[str, Any]:
    """Both variants of a call in turns."""
    seconds: list[list[float]] = [[], []]
    for pair in range(-1, pairs):  # the first pair warms up
        for which in (0, 1) if pair % 2 else (1, 0):
            use(trees[which])
            start = time.process_time()
            calls[which]()
            if pair >= 0:
                seconds[which].append(time.process_time() - start)
    ratios = sorted(new / old for old, new in zip(*seconds, strict=True))
    margin = round(0.98 * len(ratios) ** 0.5)  # places around the median, by the normal approximation
    low, high = (ratios[min(max(len(ratios) // 2 + side * margin, 0), len(ratios) - 1)] for side in (-1, 1))
    return {
        "old_seconds": round(statistics.median(seconds[0]), 5),
        "new_seconds": round(statistics.median(seconds[1]), 5),
        "median_ratio": round(statistics.median(ratios), 4),
        "ratio_95": [round(low, 4), round(high, 4)],
        "pairs": pairs,
    }


def main() -> None:
    """Measure and print; what is done is written after each call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--data", nargs="+", default=["cora"], help="names of data sets with one graph")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    trees = [imported(options.old), imported(options.new)]
    from graphmend.files.provenance import provenance  # of the new tree
    from graphmend.lab.data import load

    commit = ["git", "-C", str(options.old), "rev-parse", "--short", "HEAD"]
    old = subprocess.run(commit, capture_output=True, text=True).stdout.strip()
    report: dict[str, Any] = {"provenance": provenance("cpu", old=old)}
    for name in options.data:
        data = load(name).test[0]
        calls = []
        for which, modules in enumerate(trees):
            use(modules)
            calls.append(calls_of(data))
            trees[which] = loaded()  # with what was imported on the way
        for call in calls[0]:
            found = timed(trees, [one[call] for one in calls], options.pairs)
            report.setdefault(name, {"nodes": data.x.size(0), "edges": data.edge_index.size(1)})[call] = found
            print(name, call, found, flush=True)
            if options.out is not None:
                options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
