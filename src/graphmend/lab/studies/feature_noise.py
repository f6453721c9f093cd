"""How much do abnormal features hurt? A GCN trained on the clean Cora, CiteSeer or PubMed, tested with Gaussian nodes.

    python -m graphmend.lab.studies.feature_noise --out FILE.json [--datasets cora] [--seeds 5] [--ratio 0.3]

The protocol of the paper: row-normalised features, 2x64 GCN, Adam (lr 0.01, L2 5e-4), 1000 epochs, weights of the best
validation epoch; then the features of 30 % of the test nodes are replaced by N(0, 1). The paper has 36.35 for Cora, all
test nodes. Data are found through GRAPHMEND_DATA.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from graphmend.files.files import write_text
from graphmend.files.provenance import provenance
from graphmend.lab.backbones import GCN
from graphmend.lab.data import load
from graphmend.lab.data.corruptions import FeatureNoise
from graphmend.lab.training import ERM
from graphmend.results.scores import score


def measure(name: str, seed: int, ratio: float, dropout: float) -> dict[str, float]:
    """Accuracy of one model on clean features, on noisy ones, and on the abnormal nodes alone."""
    splits = load(name, seed=seed)
    data = splits.test[0]
    torch.manual_seed(seed)
    model = GCN(data.x.size(1), 64, int(splits.meta["classes"]), dropout=dropout)
    ERM(lr=0.01, weight_decay=5e-4, epochs=1000, optimizer="adam", seed=seed)(model, splits)
    noisy = FeatureNoise(data.test_mask, ratio=ratio, seed=seed)(data)
    with torch.no_grad():
        clean, harmed = (model(graph.x, graph.edge_index) for graph in (data, noisy))
    return {
        "clean": 100 * score("accuracy", clean, data.y, data.test_mask),
        "all test nodes": 100 * score("accuracy", harmed, data.y, data.test_mask),
        "abnormal nodes": 100 * score("accuracy", harmed, data.y, noisy.abnormal),
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--datasets", nargs="+", default=["cora"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--ratio", type=float, default=0.3)
    parser.add_argument("--dropout", type=float, nargs="+", default=[0.0, 0.5])
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in args.datasets:
        for dropout in args.dropout:
            found = [measure(name, seed, args.ratio, dropout) for seed in range(args.seeds)]
            row: dict[str, Any] = {"data set": name, "dropout": dropout, "ratio": args.ratio, "seeds": found}
            for key in found[0]:
                row[key] = [mean(f[key] for f in found), stdev(f[key] for f in found)]
            rows.append(row)
            print(name, dropout, {key: [round(v, 1) for v in row[key]] for key in found[0]})
    report = {"rows": rows, "provenance": provenance("cpu", seeds=args.seeds)}
    write_text(args.out, json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
