"""Does speed cost accuracy? The PyG reference and GraphMend on the same models and graphs, several seeds.

    python -m benchmarks.same_results --data DIR --out FILE.json [--seeds 3]

A 2-layer GCN (32 hidden units) per seed; both adapt it with T = 10, K = 5, the loss without labels, on the undirected
test graphs: cora-ood, twitch-e, and Cora with Gaussian features at 30 % of the test nodes. Step sizes are the released
code's, absolute; this compares two programs, not a method with its tuning.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.utils import remove_self_loops, to_undirected

from benchmarks.reference import Reference
from graphmend import GTrans
from graphmend.files.files import write_text
from graphmend.files.provenance import provenance
from graphmend.lab.backbones import GCN
from graphmend.lab.data import load
from graphmend.lab.data.corruptions import FeatureNoise
from graphmend.lab.training import ERM
from graphmend.results.scores import score

SETS = {"cora-ood": "cora-ood", "twitch-e": "twitch-e", "cora abnormal 0.3": "cora"}


def cases(name: str, seed: int, data_dir: Path) -> tuple[nn.Module, str, Iterator[Data]]:
    """A trained model, the metric, and the test graphs."""
    splits = load(SETS[name], seed=seed, data_dir=data_dir)
    torch.manual_seed(seed)
    binary = splits.task == "binary"
    classes = 1 if binary else int(max(int(data.y.max()) for data in splits.train)) + 1
    model = GCN(splits.train[0].x.size(1), 32, classes)
    ERM(lr=0.01, weight_decay=5e-4, epochs=100, optimizer="adam", seed=seed)(model, splits)

    def graphs() -> Iterator[Data]:
        for data in splits.test:
            if "abnormal" in name:
                data = FeatureNoise(data.test_mask, ratio=0.3, seed=seed)(data)
            edge_index = to_undirected(remove_self_loops(data.edge_index)[0], num_nodes=data.num_nodes)
            yield Data(x=data.x, edge_index=edge_index, y=data.y, mask=data.get("mask"))

    return model.eval(), splits.metric, graphs()


@torch.no_grad()
def result(model: nn.Module, metric: str, data: Data, x: torch.Tensor, edge_index: torch.Tensor) -> float:
    """The metric in percent."""
    return 100 * float(score(metric, model(x, edge_index), data.y, data.get("mask")))


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--graphs", type=int, default=2, help="test graphs per seed")
    arguments = parser.parse_args()
    cells: list[dict[str, Any]] = []
    for name in SETS:
        for seed in range(arguments.seeds):
            model, metric, graphs = cases(name, seed, arguments.data)
            for number, data in zip(range(arguments.graphs), graphs, strict=False):
                found = GTrans(edge_update="sign", feature_scale="absolute")(model, data, seed=seed)
                trace = Reference(model, data.x, data.edge_index)(seed=seed)
                assert trace.x is not None and trace.edge_index is not None
                cell = {
                    "set": name,
                    "seed": seed,
                    "graph": number,
                    "metric": metric,
                    "before": result(model, metric, data, data.x, data.edge_index),
                    "graphmend": result(model, metric, data, found.data.x, found.data.edge_index),
                    "reference": result(model, metric, data, trace.x, trace.edge_index),
                    "loss_differs": max(abs(s.loss - t) for s, t in zip(found.history, trace.losses, strict=True)),
                }
                cells.append(cell)
                print(cell, flush=True)
                write_text(arguments.out, json.dumps({"about": provenance("cpu"), "cells": cells}, indent=1))
    print("| set | before | GraphMend | reference | paired difference |")
    print("|" + " --- |" * 5)
    for name in SETS:
        here = [cell for cell in cells if cell["set"] == name]
        columns = [f"{mean(c[k] for c in here):.2f}" for k in ("before", "graphmend", "reference")]
        columns.append(_gap(here, "graphmend"))
        print(f"| {name} | {' | '.join(columns)} |")


def _gap(cells: list[dict[str, Any]], what: str) -> str:
    gaps = [cell[what] - cell["reference"] for cell in cells]
    return f"{mean(gaps):+.3f} ± {stdev(gaps):.3f}"


if __name__ == "__main__":
    main()
