"""Models, graphs and harms that were not used while the gate's rule was made, and were run once it was final.

    python -m graphmend.lab.beyond.held_out --out FILE.jsonl [--seeds 3]

Stock PyG models (GIN, GraphConv, GATv2, a GCN of three layers without normalisation, GraphSAGE with batch norm) on
three graphs: breast cancer and wine (continuous features, two and three classes) and a stochastic block model with
little homophily. Each is tested clean, on a random half of its nodes, with simulated shifts, with noise at a fifth of
all nodes and with random edges. One JSON line per model, seed and target; lines that exist are skipped.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import Data

import graphmend
from graphmend.files.provenance import provenance
from graphmend.lab.beyond.cells import HARM
from graphmend.lab.beyond.rows import append, lines_of
from graphmend.lab.data import ColumnShift, EdgeSubsample, LabelShift, MissingColumns, Splits, load
from graphmend.lab.data.corruptions import FeatureNoise, RandomEdges
from graphmend.lab.training import ERM
from graphmend.results.scores import score

MODELS: dict[str, Callable[[int, int], nn.Module]] = {
    "GIN": lambda a, b: pyg.GIN(a, 32, num_layers=2, out_channels=b, norm="BatchNorm", dropout=0.5),
    "GraphConv": lambda a, b: _Stacked(pyg.GraphConv(a, 32), pyg.GraphConv(32, b)),
    "GATv2": lambda a, b: pyg.GAT(a, 32, num_layers=2, out_channels=b, v2=True, heads=4, dropout=0.5),
    "GCN, 3 layers": lambda a, b: pyg.GCN(a, 48, num_layers=3, out_channels=b, dropout=0.3),
    "GraphSAGE, BN": lambda a, b: pyg.GraphSAGE(a, 32, num_layers=2, out_channels=b, norm="BatchNorm", dropout=0.5),
}


class _Stacked(nn.Module):
    """Two convolutions with a ReLU between them, as people write them."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Class scores."""
        out: torch.Tensor = self.second(torch.relu(self.first(x, edge_index)), edge_index)
        return out


SETS: dict[str, Callable[[int], Splits]] = {
    "breast-cancer": lambda seed: load("breast-cancer"),
    "wine": lambda seed: load("wine"),
    "heterophilous": lambda seed: load("csbm", seed=seed + 100, homophily=0.2, test_graphs=2),
}


def targets(splits: Splits, seed: int) -> Iterator[tuple[str, Data]]:
    """The graphs to predict on, by name."""
    data = splits.test[0]
    plain = Data(x=data.x, edge_index=data.edge_index, y=data.y)
    half = torch.rand(plain.num_nodes, generator=torch.Generator().manual_seed(seed)) < 0.5
    yield "clean", plain
    yield "half of the nodes", plain.subgraph(half)
    for strength in (0.5, 2.0):
        yield f"columns moved by {strength}", ColumnShift(share=0.5, scale=1.0, offset=strength, seed=seed)(plain)
    yield "missing columns", MissingColumns(share=0.3, seed=seed)(plain)
    yield "half of the edges", EdgeSubsample(keep=0.5, seed=seed)(plain)
    yield "other class shares", LabelShift(concentration=1.0, seed=seed)(plain)
    everyone = torch.ones(plain.num_nodes, dtype=torch.bool)
    for kind, scale in (("gaussian", 10.0), ("scale", 1.0), ("swap", 1.0)):
        yield f"{kind} 0.2", FeatureNoise(everyone, 0.2, scale, seed, kind=kind)(plain)
    yield "random edges 0.2", RandomEdges(0.2, seed=seed)(plain)


def measure(out: Path, seeds: int) -> None:
    """All that ``out`` lacks."""
    done = {tuple(row["place"]) for row in _rows(out)}
    for name, make_splits in SETS.items():
        for seed in range(seeds):
            splits = make_splits(seed)
            for kind, make in MODELS.items():
                wanted = [(target, data) for target, data in targets(splits, seed)]
                if all((name, kind, seed, target) in done for target, _ in wanted):
                    continue
                torch.manual_seed(seed)
                model = make(splits.train[0].num_features, int(splits.meta["classes"]))
                ERM(lr=0.01, weight_decay=5e-4, epochs=100, optimizer="adam", seed=seed)(model, splits)
                card = graphmend.card(model, splits.train[0], seed=seed, task="classes")
                for target, data in wanted:
                    if (name, kind, seed, target) not in done:
                        _append(out, {"place": [name, kind, seed, target], **_row(model, data, card)})


def _row(model: nn.Module, data: Data, card: graphmend.SourceCard) -> dict[str, Any]:
    hidden = Data(x=data.x, edge_index=data.edge_index)
    with torch.no_grad():
        before = 100 * score("accuracy", model.eval()(data.x, data.edge_index), data.y)
    row: dict[str, Any] = {"before": round(before, 3)}
    for name, given in (("gate", card), ("gate-blind", None)):
        found = graphmend.mend(model, hidden, card=given, task="classes")
        assert found.verdict is not None
        after = 100 * score("accuracy", found.logits, data.y)
        row[name] = {"change": round(after - before, 3), "menders": list(found.verdict.menders)}
        row[name]["sentence"] = found.verdict.sentence
    gtrans = graphmend.mend(model, hidden, graphmend.GTrans(edge_steps=0), task="classes")
    row["gtrans"] = {"change": round(100 * score("accuracy", gtrans.logits, data.y) - before, 3)}
    return row


def _append(out: Path, row: dict[str, Any]) -> None:
    append(out, *([] if out.exists() else [{"provenance": provenance("cpu")}]), row)


def _rows(out: Path) -> list[dict[str, Any]]:
    return [row for row in lines_of(out) if "place" in row]


def summary(out: Path) -> str:
    """A table of all cells, averaged over seeds."""
    cells: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in _rows(out):
        name, model, _, target = row["place"]
        cells.setdefault((name, model, target), []).append(row)
    lines = ["| method | cells | mean change | harmed | worst cell | acted |", "|---|---|---|---|---|---|"]
    for method in ("gate", "gate-blind", "gtrans"):
        changes = {cell: mean(row[method]["change"] for row in rows) for cell, rows in cells.items()}
        acted = mean(mean(bool(row[method].get("menders", True)) for row in rows) for rows in cells.values())
        worst = min(changes, key=lambda cell: changes[cell])
        harmed = mean(change < HARM for change in changes.values())
        numbers = f"{mean(changes.values()):+.2f} | {100 * harmed:.1f} % | {changes[worst]:+.1f} ({', '.join(worst)})"
        lines.append(f"| {method} | {len(changes)} | {numbers} | {100 * acted:.0f} % |")
    return "\n".join(lines)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    measure(arguments.out, arguments.seeds)
    print(summary(arguments.out))


if __name__ == "__main__":
    main()
