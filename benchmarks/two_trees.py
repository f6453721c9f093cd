"""Does a change slow ``mend`` down? Two source trees in one process, called in turns.

    git worktree add /tmp/before COMMIT
    python -m benchmarks.two_trees /tmp/before/src src --pairs 40 --out before_and_after.json

Both trees are imported, each under its own set of modules, and mend the same graph (Planetoid Cora) for the same
untrained models; the order alternates from pair to pair. CPU time of one thread is measured, and the median of the
ratios new / old is what counts: a busy machine disturbs both alike.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch_geometric.nn import GraphSAGE

Modules = dict[str, ModuleType]


def loaded() -> Modules:
    """The modules of the tree that is in use."""
    return {name: module for name, module in sys.modules.items() if name.split(".")[0] == "graphmend"}


def use(modules: Modules) -> None:
    """Let ``import graphmend`` mean this tree."""
    for name in loaded():
        del sys.modules[name]
    sys.modules.update(modules)


def calls_of(source: Path) -> tuple[Modules, dict[str, Callable[[], Any]]]:
    """The modules of a tree, and what is timed."""
    use({})
    sys.path.insert(0, str(source.resolve()))
    import graphmend
    from graphmend.lab.backbones import GCN
    from graphmend.lab.data import load

    sys.path.pop(0)
    data = load("cora").test[0]
    broken, moved = data.clone(), data.clone()
    broken.x[::7] = torch.randn(data.x[::7].shape, generator=torch.Generator().manual_seed(0))
    moved.x = 2 * data.x + 0.02
    torch.manual_seed(0)
    models: dict[str, nn.Module] = {
        "GCN": GCN(data.num_features, 64, 7).eval(),
        "PyG GraphSAGE": GraphSAGE(data.num_features, 64, 2, 7).eval(),
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
    return loaded(), calls


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    trees = [calls_of(options.old), calls_of(options.new)]
    results = {}
    for name in trees[0][1]:
        seconds: list[list[float]] = [[], []]
        for pair in range(options.pairs):
            for which in (0, 1) if pair % 2 else (1, 0):
                modules, calls = trees[which]
                use(modules)
                start = time.process_time()
                calls[name]()
                seconds[which].append(time.process_time() - start)
        ratios = [new / old for old, new in zip(*seconds, strict=True)]
        results[name] = {
            "old_seconds": round(statistics.median(seconds[0]), 5),
            "new_seconds": round(statistics.median(seconds[1]), 5),
            "median_ratio": round(statistics.median(ratios), 4),
            "pairs": options.pairs,
        }
        print(name, results[name], flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
