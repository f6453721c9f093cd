"""How well does a GCN trained on early papers do on later ones? The periods of arxiv-ood, real or generated.

    python -m graphmend.lab.studies.arxiv_ood --out FILE.json [--dataset arxiv-size-ood] [--epochs 500] [--seeds 5]

The GCN of the paper (5 layers, 32 hidden units, batch norm, AdamW with lr 0.01 and no decay, weights of the best
validation epoch, 500 epochs) is trained on the papers until 2011, validated on those of 2012 to 2014, and scored on the
new papers of each later period.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from graphmend.files.files import write_text
from graphmend.files.provenance import provenance
from graphmend.lab.backbones import GCN
from graphmend.lab.data import Splits, load
from graphmend.lab.training import ERM
from graphmend.results.scores import score


@torch.no_grad()
def accuracies(model: GCN, splits: Splits) -> dict[str, float]:
    """Accuracy in percent on the new papers of the validation period and of each test period, by its last year."""
    years = [*splits.meta["upper_years"]["val"], *splits.meta["upper_years"]["test"]]
    graphs = [*splits.val, *splits.test]
    return {
        f"until {year}": 100 * score("accuracy", model(data.x, data.edge_index), data.y, data.mask)
        for year, data in zip(years, graphs, strict=True)
    }


def measure(splits: Splits, epochs: int, seed: int) -> dict[str, Any]:
    """Train one model and score it."""
    torch.manual_seed(seed)
    model = GCN(splits.train[0].num_features, 32, splits.meta["classes"], num_layers=5, batch_norm=True)
    start = time.perf_counter()
    ERM(lr=0.01, weight_decay=0.0, epochs=epochs, seed=seed)(model, splits, progress=True)
    seconds = time.perf_counter() - start
    return {"seed": seed, "training_seconds": round(seconds, 1), "accuracy": accuracies(model, splits)}


def main() -> None:
    """Measure all seeds, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dataset", default="arxiv-size-ood", choices=["arxiv-ood", "arxiv-size-ood"])
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    splits = load(args.dataset)
    runs = [measure(splits, args.epochs, seed) for seed in range(args.seeds)]
    found = {period: [run["accuracy"][period] for run in runs] for period in runs[0]["accuracy"]}
    report = {
        "data": f"{args.dataset} (generated)" if splits.meta["generated"] else args.dataset,
        "model": "GCN, 5 layers, 32 hidden units, batch norm",
        "epochs": args.epochs,
        "accuracy": {period: [mean(v), stdev(v) if len(v) > 1 else 0.0] for period, v in found.items()},
        "runs": runs,
        "provenance": provenance("cpu", seeds=args.seeds),
    }
    write_text(args.out, json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
