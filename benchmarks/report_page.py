"""How long the page of a result takes, and how large it is: Cora, and a generated graph of the size of ogbn-arxiv.

    GRAPHMEND_DATA=FOLDER python -m benchmarks.report_page --out docs/results/report_cpu.json

A tenth of the feature rows is twenty times as large, and is repaired by ``Impute`` for a GCN that was not trained. The
target is 2 seconds for Cora and 10 for the large graph on two cores. Seconds are wall time; on a machine that does
other work at the same time, processor time says more.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch_geometric.nn import GCN

import graphmend
from graphmend.adapters import Impute
from graphmend.files.files import write_text
from graphmend.files.provenance import provenance
from graphmend.lab.data import load


def measure(name: str) -> dict[str, Any]:
    """Seconds and bytes of one page."""
    splits = load(name)
    data = splits.test[0].clone()
    data.x = data.x.clone()
    data.x[torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(0))[: data.num_nodes // 10]] *= 20
    torch.manual_seed(0)
    model = GCN(data.num_features, 64, num_layers=3, out_channels=int(splits.meta["classes"]))
    result = graphmend.mend(model, data, Impute(), task="classes")
    with tempfile.TemporaryDirectory() as folder:
        path, start, used = Path(folder) / "page.html", time.perf_counter(), time.process_time()
        result.report(path, data.y)
        seconds, processor = time.perf_counter() - start, time.process_time() - used
        size = path.stat().st_size
    return {
        "graph": name,
        "nodes": data.num_nodes,
        "edge_entries": data.num_edges,
        "seconds": round(seconds, 2),
        "processor_seconds": round(processor, 2),
        "bytes": size,
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--graphs", nargs="+", default=["cora", "arxiv-size"])
    arguments = parser.parse_args()
    report = {"provenance": provenance("cpu"), "pages": [measure(name) for name in arguments.graphs]}
    write_text(arguments.out, json.dumps(report, indent=1) + "\n")
    print(json.dumps(report["pages"], indent=1))


if __name__ == "__main__":
    main()
