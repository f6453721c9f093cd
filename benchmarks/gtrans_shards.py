"""GTrans in shards beside GTrans on the whole graph: loss, accuracy, and the budget.

    python -m benchmarks.gtrans_shards --out FILE.json [--dataset arxiv-votes-ood] [--scale 1] [--seeds 3]
        [--shards 2,4] [--epochs 60] [--data DIR]

A stock PyG GraphSAGE or GCN of two layers is trained on the training graph of a data set; GTrans then mends the last
test graph, as a whole and in shards, with the same seed and settings. Accuracy is that of the nodes the data set tests.
In shards the views are drawn within a shard and its halo, so losses are not those of the whole to the last digit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import Data

from graphmend import GTrans, mend
from graphmend.files.files import write_text
from graphmend.files.provenance import provenance
from graphmend.lab.data import load
from graphmend.shards import open_graph, pack

MODELS = {
    "PyG GraphSAGE": lambda columns, classes: pyg.GraphSAGE(columns, 32, 2, classes, norm="batch_norm"),
    "PyG GCN": lambda columns, classes: pyg.GCN(columns, 32, 2, classes, norm="batch_norm"),
}
SETTINGS = {"steps": 10, "lr_feature": 5e-3, "lr_edge": 0.1, "budget": 0.05, "num_samples": 2}


def trained(kind: str, graphs: list[Data], classes: int, epochs: int, seed: int) -> nn.Module:
    """A model, trained on all nodes of the training graphs."""
    torch.manual_seed(seed)
    model = MODELS[kind](graphs[0].x.size(1), classes)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        losses = [nn.functional.cross_entropy(model(g.x, g.edge_index), g.y.view(-1)) for g in graphs]
        torch.stack(losses).mean().backward()
        optimizer.step()
    return model.eval()


def accuracy(logits: torch.Tensor, data: Data) -> float:
    """In percent, of the marked nodes."""
    right = logits[data.mask].argmax(1) == data.y.view(-1)[data.mask]
    return round(100 * float(right.double().mean()), 3)


def measured(model: nn.Module, data: Data, marked: Data, seed: int) -> dict[str, Any]:
    """One run of GTrans."""
    start = time.process_time()
    result = mend(model, data, GTrans(**SETTINGS), seed=seed, task="classes")
    edges = int((marked.edge_index[0] != marked.edge_index[1]).sum()) // (2 if marked.both else 1)
    flipped = result.patch.num_removed // (2 if marked.both else 1)
    budget = SETTINGS["budget"] * edges
    assert flipped <= budget and all(step.flipped <= budget * (1 + 1e-6) for step in result.history)
    return {
        "accuracy": accuracy(result.logits, marked),
        "losses": [round(step.loss, 5) for step in result.history],
        "candidates": {c.name: round(c.loss, 5) for c in result.candidates},
        "edges_removed": flipped,
        "budget": int(budget),
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dataset", default="arxiv-votes-ood")
    parser.add_argument("--scale", type=float)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--shards", default="2,4")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    more = {} if given.scale is None else {"scale": given.scale}
    splits = load(given.dataset, data_dir=given.data, **more)
    train, test = splits.train, splits.test[-1]
    classes = int(max(int(g.y.max()) for g in [*train, test])) + 1
    runs: list[dict[str, Any]] = []
    for seed in range(given.seeds):
        for kind in given.models.split(","):
            model = trained(kind, list(train), classes, given.epochs, seed)
            nodes = test.x.size(0)
            source, target = test.edge_index
            test.both = torch.equal((target * nodes + source).sort().values, (source * nodes + target).sort().values)
            bare = Data(x=test.x, edge_index=test.edge_index)
            with torch.no_grad():
                before = accuracy(model(test.x, test.edge_index), test)
            run: dict[str, Any] = {"model": kind, "seed": seed, "before": before}
            run["whole"] = measured(model, bare, test, seed)
            with tempfile.TemporaryDirectory() as folder:
                path = pack(Path(folder) / "g", bare)
                for number in map(int, given.shards.split(",")):
                    run[f"{number} shards"] = measured(model, open_graph(path, shards=number), test, seed)
            runs.append(run)
            print(json.dumps(run), flush=True)
            names = [f"{number} shards" for number in given.shards.split(",")]
            differences = {n: [round(r[n]["accuracy"] - r["whole"]["accuracy"], 3) for r in runs] for n in names}
            report = {
                "data": f"{given.dataset}{'' if given.scale is None else f' x {given.scale}'}",
                "nodes": nodes,
                "stored_edges": int(test.edge_index.size(1)),
                "epochs": given.epochs,
                "settings": SETTINGS,
                "difference_of_accuracy": differences,
                "mean_difference": {n: round(statistics.mean(d), 3) for n, d in differences.items()},
                "runs": runs,
                "provenance": provenance("cpu", seeds=given.seeds),
            }
            write_text(given.out, json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
