"""How much memory does loading a large graph need? The peak of a fresh process, in all and beyond the imports.

    python -m benchmarks.data_memory --out FILE.json [--cases fb100 penn94-size products-size] [--data-dir DIR]

``fb100`` is the largest test graph of the set that is here, ``penn94-size`` a school of Penn94's published size with
10,000 one-hot columns, drawn at random and written to a temporary ``.mat`` file first, ``products-size`` the generated
set. A gigabyte is 10^9 bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import scipy.sparse as sp
from scipy.io import savemat
from torch_geometric.data import Data

from graphmend.files.files import write_text
from graphmend.files.provenance import provenance
from graphmend.lab.data import load
from graphmend.lab.data.published.fb100 import COLUMNS, FOLDER, PUBLISHED, TEST, TRIPLES, VALIDATION

CODES = {"status": 8, "major": 371, "second major": 374, "dorm": 290, "year": 74, "high school": 8883}
GIGABYTE = 1e9


def write_penn94(folder: Path) -> None:
    """A random school of the size of Penn94, with codes of 10,000 columns, and seven schools of two nodes."""
    rng = np.random.default_rng(0)
    nodes, edges, _ = PUBLISHED["Penn94"]
    keys = rng.integers(nodes * nodes, size=3 * edges)
    source, target = np.divmod(rng.permutation(np.unique(keys[keys // nodes < keys % nodes]))[:edges], nodes)
    info = rng.integers(3, size=(nodes, 7))
    for name, column in COLUMNS.items():
        info[:, column] = rng.permutation(np.arange(nodes) % CODES[name])
    upper = sp.coo_matrix((np.ones(source.size), (source, target)), shape=(nodes, nodes))
    pair = sp.coo_matrix(np.array([[0.0, 1.0], [1.0, 0.0]]))
    (folder / FOLDER).mkdir()
    for school in (*TRIPLES[0], *VALIDATION, *TEST):
        adjacency, table = (upper + upper.T, info) if school == "Penn94" else (pair, info[:2])
        content = {"A": sp.csc_matrix(adjacency), "local_info": table.astype(np.uint16)}
        savemat(folder / FOLDER / f"{school}.mat", content, do_compression=True)


def measure(name: str, data_dir: Path | None) -> dict[str, Any]:
    """Load the first test graph, which is the largest, and say what it took; for a process of its own."""
    imported = psutil.Process().memory_info().rss
    start = time.perf_counter()
    splits = load(name, data_dir=data_dir)
    graph: Data = splits.test[0]
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # kilobytes on Linux
    held = sum(graph[key].nbytes for key in ("x", "edge_index", "y"))
    return {
        "loaded": splits.meta["name"],
        "graph": splits.meta["graphs"]["test"][0] if "graphs" in splits.meta else name,
        "nodes": graph.num_nodes,
        "stored_edges": graph.num_edges,
        "features": graph.num_features,
        "seconds": round(seconds, 1),
        "x_gb": graph.x.nbytes / GIGABYTE,
        "graph_gb": held / GIGABYTE,
        "imports_gb": imported / GIGABYTE,
        "peak_beyond_imports_gb": (peak - imported) / GIGABYTE,
        "peak_gb": peak / GIGABYTE,
    }


def measure_penn94(folder: Path) -> dict[str, Any]:
    """The same for the school below ``folder``, and no other file is seen: its schools' codes would add columns."""
    os.environ["GRAPHMEND_DATA"], os.environ["GRAPHMEND_CACHE"] = "", str(folder / "cache")
    return {"generated": True, **measure("fb100", folder)}


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a fresh process; this one stays small, since a child inherits its parent's peak."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def main() -> None:
    """Measure every case, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cases", nargs="+", default=["fb100", "penn94-size", "products-size"])
    parser.add_argument("--data-dir", type=Path)
    args = parser.parse_args()
    rows: dict[str, Any] = {}
    for case in args.cases:
        with tempfile.TemporaryDirectory() as folder:
            if case == "penn94-size":
                alone(write_penn94, Path(folder))
                rows[case] = alone(measure_penn94, Path(folder))
            else:
                rows[case] = alone(measure, case, args.data_dir)
        print(case, rows[case], flush=True)
    write_text(args.out, json.dumps({"cases": rows, "provenance": provenance("cpu")}, indent=2) + "\n")


if __name__ == "__main__":
    main()
