"""Does a change of the code change what is mended? Two source trees on the same models and graphs, bit for bit.

    python -m benchmarks.same_verdicts BEFORE/src AFTER/src --out FILE.json [--data DIR] [--faults "clean,random edges"]

Models are stock PyG models trained with plain PyTorch, graphs are handwritten digits joined with their neighbours,
random blocks and, with ``--data``, Cora and CiteSeer; each is given as it is, as another half of the same nodes, and
with every kind of fault. Both trees run ``card`` and ``mend`` on the same files, in processes of their own. Stored is,
for each case, whether the verdict, the features, the edges and the output are equal to the bit (0), and if not, how far
apart they are, and the accuracy in percent on every other node, before and after.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import Data
from torch_geometric.utils import subgraph, to_undirected

MODELS: dict[str, Callable[[int, int], nn.Module]] = {
    "GCN": lambda features, classes: pyg.GCN(features, 32, 2, classes),
    "GCN with batch norm": lambda features, classes: pyg.GCN(features, 32, 3, classes, norm="batch_norm"),
    "GraphSAGE": lambda features, classes: pyg.GraphSAGE(features, 32, 2, classes),
    "GAT": lambda features, classes: pyg.GAT(features, 32, 2, classes, heads=4),
    "GIN": lambda features, classes: pyg.GIN(features, 32, 2, classes, norm="batch_norm"),
}
RUN = """
import json, sys, torch, graphmend
torch.set_num_threads(1)
made = {}
for path in sys.argv[2:]:
    case = torch.load(path, weights_only=False)
    model = case["model"].eval()
    if case["name"] not in made:
        made = {case["name"]: graphmend.card(model, case["train"])}
    for blind in (False, True):
        result = graphmend.mend(model, case["data"], card=None if blind else made[case["name"]])
        torch.save({"verdict": str(result.verdict), "x": result.data.x, "edges": result.data.edge_index,
                    "logits": result.logits}, f"{sys.argv[1]}/{case['id']}-{'blind' if blind else 'card'}.pt")
"""


def sets(data_dir: Path | None) -> Iterator[tuple[str, Data]]:
    """The graphs, with labels."""
    from sklearn.datasets import load_digits
    from sklearn.neighbors import kneighbors_graph

    digits = load_digits()
    edges = torch.from_numpy(np.stack(kneighbors_graph(digits.data, 6).nonzero())).long()
    x = torch.from_numpy(digits.data).float() / 16
    yield "digits", Data(x=x, edge_index=to_undirected(edges), y=torch.from_numpy(digits.target).long())
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.integers(4, size=1200))
    same = torch.from_numpy(rng.random((1200, 1200)) < np.where((y[:, None] == y).numpy(), 0.012, 0.001))
    means = torch.from_numpy(rng.standard_normal((4, 24)))
    features = (means[y] + torch.from_numpy(rng.standard_normal((1200, 24)))).float()
    yield "blocks", Data(x=features, edge_index=to_undirected(same.nonzero().t().contiguous()), y=y)
    for name in ("cora", "citeseer"):
        path = None if data_dir is None else data_dir / f"planetoid_{name}.npz"
        if path is not None and path.exists():
            from graphmend.lab.data import load

            graph = load(name, data_dir=data_dir).test[0]
            yield name, Data(x=graph.x, edge_index=graph.edge_index, y=graph.y)


def faults(data: Data) -> Iterator[tuple[str, Data]]:
    """The graph as it is, other nodes of the same kind, and every kind of fault."""
    generator = torch.Generator().manual_seed(0)
    nodes, width = data.x.shape

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    def rows(share: float) -> torch.Tensor:
        return torch.randperm(nodes, generator=generator)[: int(share * nodes)]

    def changed(x: torch.Tensor) -> Data:
        return Data(x=x, edge_index=data.edge_index, y=data.y)

    yield "clean", changed(data.x.clone())
    first = (data.x - data.x.mean(0)) @ torch.pca_lowrank(data.x, 4, niter=4)[2][:, 0]
    for name, half in (("upper half", first > first.median()), ("lower half", first <= first.median())):
        edges = subgraph(half, data.edge_index, relabel_nodes=True)[0]
        yield name, Data(x=data.x[half], edge_index=edges, y=data.y[half])
    for share in (0.1, 0.3):
        chosen, x = rows(share), data.x.clone()
        x[chosen] = draw(chosen.numel(), width)
        yield f"noise in {share:.0%} of the rows", changed(x)
    chosen, x = rows(0.2), data.x.clone()
    x[chosen] *= 20
    yield "scaled rows", changed(x)
    missing = data.x.clone()
    missing[torch.rand(missing.shape, generator=generator) < 0.1] = torch.nan
    yield "missing values", changed(missing)
    yield "shifted columns", changed(data.x + 0.5 * data.x.std(0) * draw(width).sign())
    yield "less contrast", changed(0.3 * data.x + 0.3)
    ends = torch.randint(nodes, (2, data.num_edges // 10), generator=generator)
    added = torch.cat([data.edge_index, ends, ends.flip(0)], dim=1)
    yield "random edges", Data(x=data.x.clone(), edge_index=added, y=data.y)


def trained(model: nn.Module, data: Data) -> nn.Module:
    """Trained on every other node, with plain PyTorch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(80):
        optimizer.zero_grad()
        F.cross_entropy(model(data.x, data.edge_index)[::2], data.y[::2]).backward()
        optimizer.step()
    return model.eval()


def write_cases(folder: Path, data_dir: Path | None, only: set[str]) -> list[Path]:
    """A file for each model and graph."""
    paths = []
    for set_name, data in sets(data_dir):
        for kind, make in MODELS.items():
            torch.manual_seed(0)
            model = trained(make(data.x.size(1), int(data.y.max()) + 1), data)
            for fault, target in faults(data):
                if only and fault not in only:
                    continue
                path = folder / f"{len(paths):04d}.pt"
                name = f"{set_name}, {kind}"
                case = {"id": path.stem, "name": name, "fault": fault, "model": model, "train": data, "data": target}
                torch.save(case, path)
                paths.append(path)
    return paths


def distance(a: torch.Tensor, b: torch.Tensor) -> float | None:
    """The largest difference, relative to the largest number; ``None`` for other shapes."""
    if a.shape != b.shape:
        return None
    a, b = a.double().nan_to_num(), b.double().nan_to_num()
    return float((a - b).abs().max() / a.abs().max().clamp(min=1e-30))


def compare(path: Path, before: Path, after: Path) -> Iterator[dict[str, Any]]:
    """What differs between the two trees, with a card and without."""
    case = torch.load(path, weights_only=False)
    for regime in ("card", "blind"):
        old, new = (torch.load(folder / f"{path.stem}-{regime}.pt") for folder in (before, after))
        row: dict[str, Any] = {"model": case["name"], "fault": case["fault"], "regime": regime}
        row["verdict"] = old["verdict"] if old["verdict"] == new["verdict"] else [old["verdict"], new["verdict"]]
        for part in ("x", "edges", "logits"):
            is_same = torch.equal(old[part].nan_to_num(), new[part].nan_to_num())
            row[part] = 0.0 if is_same else distance(old[part], new[part])
        if row["x"] or row["edges"] or row["logits"]:
            row["accuracy"] = [_accuracy(logits, case["data"].y) for logits in (old["logits"], new["logits"])]
        yield row


def _accuracy(logits: torch.Tensor, y: torch.Tensor) -> float:
    return round(100 * float((logits.argmax(1) == y)[1::2].double().mean()), 2)


def main() -> None:
    """Parse, run both trees, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--faults", default="", help="only these, with commas")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = write_cases(folder, arguments.data, set(filter(None, arguments.faults.split(","))))
        results = []
        for tree in (arguments.before, arguments.after):
            results.append(folder / f"tree{len(results)}")
            results[-1].mkdir()
            environment = {**os.environ, "PYTHONPATH": str(tree.absolute())}
            command = [sys.executable, "-c", RUN, str(results[-1]), *map(str, paths)]
            subprocess.run(command, env=environment, check=True)
        rows = [row for path in paths for row in compare(path, *results)]
    from graphmend.files.files import write_text
    from graphmend.files.provenance import provenance

    write_text(arguments.out, json.dumps({"about": provenance("cpu"), "cases": rows}, indent=1) + "\n")
    same_verdict = [row for row in rows if isinstance(row["verdict"], str)]
    same_bits = [row for row in same_verdict if row["x"] == row["edges"] == 0.0]
    print(f"{len(rows)} cases: {len(same_verdict)} with the same verdict, {len(same_bits)} mended to the same bits")
    for row in rows:
        if row not in same_bits:
            print(json.dumps(row))


if __name__ == "__main__":
    main()
