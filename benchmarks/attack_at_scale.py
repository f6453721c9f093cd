"""PR-BCD on the generated arxiv-size graph: time, memory and harm of one attack with a bounded block.

python -m benchmarks.attack_at_scale --out FILE.json [--device cuda --block-size 10000000 --epochs 400]

A 3-layer GCN (256 hidden units on a GPU, 64 on a CPU, batch norm) is trained on the generated graph (not real data) and
attacked white-box at a rate of 10 %; the attacker has the training labels and the model's own predictions elsewhere.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import torch

from graphmend.files.files import write_text
from graphmend.files.provenance import provenance
from graphmend.lab.attacks import PRBCD
from graphmend.lab.backbones import GCN
from graphmend.lab.data.generated.arxiv_size import arxiv_size
from graphmend.lab.training import ERM
from graphmend.results.scores import score


def main() -> None:
    """Train, attack, write what it took."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--block-size", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--train-epochs", type=int, default=30)
    parser.add_argument("--variant", default="adaptive")
    args = parser.parse_args()
    cuda = args.device == "cuda"
    splits = arxiv_size().to(args.device)
    data = splits.test[0]
    torch.manual_seed(0)
    model = GCN(128, 256 if cuda else 64, 40, num_layers=3, batch_norm=True).to(args.device)
    ERM(lr=0.01, weight_decay=0.0, epochs=args.train_epochs, optimizer="adam")(model, splits)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    attack = PRBCD(model, rate=0.1, block_size=args.block_size, epochs=args.epochs, variant=args.variant, num_samples=5)
    attacked = attack(data)
    with torch.no_grad():
        before, after = (model(data.x, graph.edge_index) for graph in (data, attacked))
    seconds = time.perf_counter() - start
    report = {
        "data": "arxiv-size (generated)",
        "variant": args.variant,
        "block_size": args.block_size,
        "epochs": args.epochs,
        "seconds": round(seconds, 1),
        "clean": 100 * score("accuracy", before, data.y, data.mask),
        "attacked": 100 * score("accuracy", after, data.y, data.mask),
        "edges_before": data.edge_index.size(1) // 2,
        "edges_after": attacked.edge_index.size(1) // 2,
        "peak_rss_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "peak_gpu_gb": torch.cuda.max_memory_allocated() / 2**30 if cuda else None,
        "provenance": provenance(args.device, seeds=1),
    }
    write_text(args.out, json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
