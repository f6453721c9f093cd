"""What do relative feature steps cost? Absolute and relative ones in turns, alone and within a whole adaptation.

    python -m benchmarks.feature_steps --out FILE.json [--device cuda] [--data DIR] [--threads 1]

Alone: steps of matrices of the size of Cora (2708 x 1433) and ogbn-arxiv (169343 x 128) along a gradient that comes
through 32 hidden units, and the standard deviations of the columns, which are computed once per graph. Whole: GTrans
with its defaults and a GCN on Cora (a random graph of its size without ``--data``) and on the generated arxiv-size.
Absolute and relative take turns in going first. On a CPU the time is that of the processor, which a busy machine
changes little.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks import graphs
from graphmend import GTrans
from graphmend.engine.columns import column_deviations
from graphmend.engine.linear_maps import RowGradient
from graphmend.engine.optimizers import FeatureStep
from graphmend.files.files import write_text
from graphmend.files.provenance import provenance

SHAPES, HIDDEN = {"cora": (2708, 1433), "arxiv-size": (169_343, 128)}, 32


def seconds(device: str, function: Callable[[], object]) -> float:
    """How long a call takes."""
    if device == "cpu":
        start = time.process_time()
        function()
        return time.process_time() - start
    torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def in_turns(device: str, turns: int, functions: dict[str, Callable[[], object]]) -> dict[str, Any]:
    """Medians of both, and of the differences within a turn, in milliseconds; the first two turns only warm up."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(turns + 2):
        for name in sorted(functions, reverse=turn % 2 == 1):
            times[name].append(1000 * seconds(device, functions[name]))
    absolute, relative = times["absolute"][2:], times["relative"][2:]
    difference = median(b - a for a, b in zip(absolute, relative, strict=True))
    found = {"absolute_ms": median(absolute), "relative_ms": median(relative), "difference_ms": difference}
    return {"turns": turns, **{name: round(value, 3) for name, value in found.items()}}


def alone(name: str, device: str) -> dict[str, Any]:
    """Steps of one matrix."""
    nodes, columns = SHAPES[name]
    x = torch.rand(nodes, columns, device=device)
    narrow, weights = torch.randn(nodes, HIDDEN, device=device), torch.randn(HIDDEN, columns, device=device)
    gradient, scale = RowGradient(None, narrow, weights), column_deviations(x)
    steps = {"absolute": FeatureStep(x.clone(), 1e-3), "relative": FeatureStep(x.clone(), 1e-3, scale=scale)}
    functions: dict[str, Callable[[], object]] = {k: lambda s=s: s.take(gradient) for k, s in steps.items()}
    once = median(seconds(device, lambda: column_deviations(x)) for _ in range(11))
    return {"what": "step", "name": name, **in_turns(device, 40, functions), "deviations_ms": round(1000 * once, 3)}


def whole(name: str, device: str, data_dir: Path | None) -> dict[str, Any]:
    """Adaptations of one graph, a fresh copy every time."""
    data, is_real = graphs.graph(name, data_dir)
    model, data = graphs.model("GCN", data, name).to(device), data.to(device)
    kinds = ("absolute", "relative")
    functions: dict[str, Callable[[], object]] = {
        kind: lambda kind=kind: GTrans(feature_scale=kind)(model, data.clone()) for kind in kinds
    }
    turns = 20 if name == "cora" or device == "cuda" else 5
    return {"what": "adaptation", "name": name, "real": is_real, **in_turns(device, turns, functions)}


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="folder with the real data")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    cells = [alone(name, arguments.device) for name in SHAPES]
    cells += [whole(name, arguments.device, arguments.data) for name in SHAPES]
    write_text(arguments.out, json.dumps({"about": provenance(arguments.device), "cells": cells}, indent=1))
    for cell in cells:
        print(cell)


if __name__ == "__main__":
    main()
