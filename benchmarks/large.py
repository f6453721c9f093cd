"""Graphs that are larger than memory: packing, a card and mending, beside the same in memory.

    python -m benchmarks.large make FOLDER [--scale 0.1] [--stored 124000000] [--features 100]
    python -m benchmarks.large run FOLDER --out FILE.json [--models "PyG GCN,PyG GraphSAGE"] [--cases clean,...]
        [--where folder,memory]

``make`` draws a graph of the size of ogbn-products (2.4 million nodes, 62 million edges, each stored in both
directions; ``--scale`` takes a part of it) block by block into Parquet tables, packs them, and derives the cases from
the folder: the graph as it is, a tenth of its rows broken, a tenth more edges, and shifted features. ``run`` starts a
process for every figure. Its peak is that of the memory which belongs to the process alone (``RssAnon``); pages of
mapped files, which the system takes back when it needs them, do not count. Models have two layers of 32 units and
random weights, so the decision shows whether both ways agree, not whether mending helps.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import Data

import graphmend
from graphmend.files.files import write_text
from graphmend.files.provenance import provenance
from graphmend.shards import open_graph, pack
from graphmend.shards.folder import NOTE, checksum, create_array, write_note

NODES, STORED, FEATURES, CLASSES = 2_400_000, 124_000_000, 100, 10
BLOCK = 1_000_000  # edges, or rows of features, at a time
HOMOPHILY, SHARE = 0.8, 0.1
MODELS = {
    "PyG GCN": lambda features: pyg.GCN(features, 32, 2, CLASSES),
    "PyG GraphSAGE": lambda features: pyg.GraphSAGE(features, 32, 2, CLASSES),
}
CASES = ("clean", "broken rows", "added edges", "shifted features")


def tables(folder: Path, nodes: int, stored: int, features: int) -> None:
    """A contextual block model as Parquet files, some nodes and some edges in each."""
    import duckdb

    rng = np.random.default_rng(0)
    y, means = rng.integers(CLASSES, size=nodes), rng.standard_normal((CLASSES, features), dtype=np.float32)
    order, counts = np.argsort(y, kind="stable"), np.bincount(y, minlength=CLASSES)
    begins = np.cumsum(counts) - counts
    for kind in ("nodes", "edges"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    step = max(1, 10 * BLOCK // features)
    for k, start in enumerate(range(0, nodes, step)):
        own = y[start : start + step]
        x = means[own] + rng.standard_normal((own.size, features), dtype=np.float32)
        table = {f"f{j}": x[:, j] for j in range(features)} | {"y": own}
        _write(duckdb, table, folder / "nodes" / f"{k:04}.parquet")
    for k, start in enumerate(range(0, stored // 2, BLOCK)):
        number = min(BLOCK, stored // 2 - start)
        source = rng.integers(nodes, size=number)
        near = order[begins[y[source]] + (rng.random(number) * counts[y[source]]).astype(np.int64)]
        target = np.where(rng.random(number) < HOMOPHILY, near, rng.integers(nodes, size=number))
        differ = source != target
        table = {"source": source[differ], "target": target[differ]}
        _write(duckdb, table, folder / "edges" / f"{k:04}.parquet")


def _write(duckdb: Any, table: dict[str, Any], file: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET threads=1")
        connection.register("piece", table)
        connection.execute(f"COPY piece TO '{file}' (FORMAT parquet)")


def variant(graph: Path, case: str) -> Path:
    """The folder of a case; arrays that it shares with the graph are the same files."""
    out = graph.with_name(case.replace(" ", "_"))
    if (out / NOTE).exists():
        return out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    note, generator = json.loads((graph / NOTE).read_text()), np.random.default_rng(1)
    for file in graph.glob("*.npy"):
        os.link(file, out / file.name)
    data = open_graph(graph, verify=False)
    changed: list[str] = []
    if case in ("broken rows", "shifted features"):
        (out / "x.npy").unlink()
        x, own = create_array(out / "x.npy", tuple(data.x.shape), np.float32), data.x.numpy()
        for start in range(0, len(x), 100_000):
            rows = own[start : start + 100_000] + (0.5 if case == "shifted features" else 0)
            if case == "broken rows":
                broken = generator.random(len(rows)) < SHARE
                rows[broken] = 20 * generator.standard_normal((int(broken.sum()), rows.shape[1]), dtype=np.float32)
            x[start : start + len(rows)] = rows
        x.flush()
        changed = ["x"]
    if case == "added edges":
        for name in ("edge_index", "offsets"):
            (out / f"{name}.npy").unlink()
        number, nodes = int(SHARE * data.edge_index.size(1)) // 2, data.x.size(0)
        source, target = generator.integers(nodes, size=number), generator.integers(nodes, size=number)
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
        by_target = np.argsort(target, kind="stable")
        source, target = source[by_target], target[by_target]
        own = data.edge_index.numpy()
        edges = create_array(out / "edge_index.npy", (2, own.shape[1] + source.size), np.int64)
        at, done = 0, 0
        for start in range(0, own.shape[1], BLOCK):
            stop = min(own.shape[1], start + BLOCK)
            while stop < own.shape[1] and own[1, stop] == own[1, stop - 1]:
                stop += 1
            start = max(start, done)
            done = stop
            last = own[1, stop - 1] if stop > start else -1
            end = source.size if stop == own.shape[1] else int(np.searchsorted(target, last, side="right"))
            begin = at
            both = np.concatenate([own[:, start:stop], np.stack([source[begin:end], target[begin:end]])], 1)
            both = both[:, np.lexsort((both[0], both[1]))]
            place = start + begin
            edges[:, place : place + both.shape[1]] = both
            at = end
        edges.flush()
        offsets = create_array(out / "offsets.npy", (nodes + 1,), np.int64)
        offsets[:] = data.offsets().numpy() + np.searchsorted(target, np.arange(nodes + 1))
        offsets.flush()
        changed = ["edge_index", "offsets"]
    arrays = note["arrays"]
    for name in changed:
        file = out / f"{name}.npy"
        shape = list(np.load(file, mmap_mode="r").shape)
        arrays[name] = {**arrays[name], "shape": shape, "checksum": checksum(file)}
    write_note(out, arrays, note["values"], note["symmetric"])
    return out


@contextmanager
def watched(found: dict[str, Any]) -> Iterator[None]:
    """Notes the time, and the highest memory that is the process's own."""
    stop, peak = threading.Event(), [_anonymous()]

    def watch() -> None:
        while not stop.wait(0.01):
            peak[0] = max(peak[0], _anonymous())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    start, cpu = time.perf_counter(), time.process_time()
    try:
        yield
    finally:
        found["seconds"] = round(time.perf_counter() - start, 2)
        found["cpu_seconds"] = round(time.process_time() - cpu, 2)
        stop.set()
        thread.join()
        found["peak_gib"] = round(peak[0] / 2**30, 3)


def _anonymous() -> int:
    with Path("/proc/self/status").open() as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("RssAnon"))


def model_of(kind: str, features: int) -> nn.Module:
    """A model with random weights."""
    torch.manual_seed(0)
    return MODELS[kind](features).eval()


def one(folder: Path, step: str, kind: str, where: str) -> dict[str, Any]:
    """One figure: a step, ``card`` or a case, with a model, from a folder or in memory."""
    path = folder / ("graph" if step == "card" else step.replace(" ", "_"))
    data: Data = open_graph(path, verify=False)
    found: dict[str, Any] = {"step": step, "model": kind, "where": where}
    if where == "memory":
        data = Data(**{name: value.clone() for name, value in data.to_dict().items()})
    model, card = model_of(kind, data.x.size(1)), folder / f"{kind} {where}.card.safetensors"
    with watched(found):
        if step == "card":
            graphmend.card(model, data).save(card)
        else:
            result = graphmend.mend(model, data, card=card)
            assert result.verdict is not None
            found |= {"decision": result.decision, "menders": list(result.verdict.menders)}
            found |= {"sentence": result.verdict.sentence, "patch": result.patch.summary()}
            found["logits"] = [round(float(v), 4) for v in result.logits.double().mean(0)[:3]]
    return found


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "run", "one"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--stored", type=int, default=STORED)
    parser.add_argument("--features", type=int, default=FEATURES)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--where", default="folder,memory")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=3)
    given = parser.parse_args()
    if given.what == "one":
        print(json.dumps(one(given.folder, *given.one)))
        return
    if given.what == "make":
        nodes, stored = int(given.nodes * given.scale), int(given.stored * given.scale)
        start = time.perf_counter()
        if not (given.folder / "tables" / "edges").exists():
            tables(given.folder / "tables", nodes, stored, given.features)
        drawn, found = time.perf_counter() - start, dict[str, Any]()
        if not (given.folder / "graph").exists():
            with watched(found):
                pack(
                    given.folder / "graph",
                    nodes=given.folder / "tables" / "nodes",
                    edges=given.folder / "tables" / "edges",
                    both_directions=True,
                )
            facts = {"step": "pack", "nodes": nodes, "stored": stored, "features": given.features, **found}
            write_text(given.folder / "pack.json", json.dumps(facts) + "\n")
            print(json.dumps({**facts, "drawn": round(drawn, 1)}), flush=True)
        for case in CASES[1:]:
            variant(given.folder / "graph", case)
        if not (given.folder / "clean").exists():
            variant(given.folder / "graph", "clean")
        return
    report: dict[str, Any] = {
        **provenance(torch.device("cpu")),
        "pack": json.loads((given.folder / "pack.json").read_text()),
        "runs": [],
    }
    for kind in given.models.split(","):
        for where in given.where.split(","):
            for step in ("card", *given.cases.split(",")):
                call = [sys.executable, "-m", "benchmarks.large", "one", str(given.folder), "--one", step, kind, where]
                done = subprocess.run(call, capture_output=True, text=True, check=False)
                lines = done.stdout.strip().splitlines()
                failed = {"step": step, "model": kind, "where": where, "failed": done.stderr[-500:] or done.returncode}
                report["runs"].append(json.loads(lines[-1]) if done.returncode == 0 and lines else failed)
                print(json.dumps(report["runs"][-1]), flush=True)
                if given.out is not None:
                    write_text(given.out, json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
