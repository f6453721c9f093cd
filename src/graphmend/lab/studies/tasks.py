"""What is mended where nodes have no classes: link prediction, classes of graphs, and regression.

    python -m graphmend.lab.studies.tasks --out FILE.json [--seeds 5] [--page docs/tasks.md]

- Link prediction on Cora (found through GRAPHMEND_DATA): PyG's ``GAE`` of a two-layer GCN (64 and 32 units, Adam with
  lr 0.01, 150 epochs) on 85 % of the edges; 10 % are tested beside as many other pairs. A tenth of the feature rows is
  replaced by noise of standard deviation 1.
- Classes of graphs: scikit-learn's digits, each an 8 x 8 grid of pixels with its grey value and its place as features;
  a three-layer GCN with mean and max pooling, trained on 1,000 of them and tested on 400, all of them judged as one
  graph. A tenth of the pixels is replaced by noise of standard deviation 20; or the sensor adds 1 to all grey values,
  which go from 0 to 1; or places are counted from the middle; or the contrast is halved and all is brighter.
- Regression: scikit-learn's diabetes set as a graph of the 5 nearest of each sample; GraphSAGE with two layers predicts
  the standardised progression. Every seventh row of the nodes that are tested is 30 times as large.

The card is made of the graph that the model was trained on, and the gate is given the test graph without its labels.
Seeds that are in the file are not run again; ``--page`` puts the table into the page.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from sklearn.datasets import load_diabetes, load_digits
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.transforms import RandomLinkSplit

import graphmend
from graphmend.files.files import write_text
from graphmend.files.provenance import provenance
from graphmend.lab.data import load
from graphmend.lab.data.sklearn_graphs import knn_graph
from graphmend.lab.studies.pages import put_table, stored_runs, with_deviation

__all__ = ["STUDIES"]

Row = dict[str, Any]


def _row(model: nn.Module, card: Any, clean: Data, harmed: Data, truth: Tensor, mask: Tensor | None = None) -> Row:
    """The measures on the clean graph as it is and mended, and on the harmed one as it is and mended."""
    out: Row = {}
    for name, data in (("clean", clean), ("harmed", harmed)):
        hidden = data.clone()
        hidden.y = None
        start = time.perf_counter()
        result = graphmend.mend(model, hidden, card=card)
        seconds = time.perf_counter() - start
        compared = result.compare(truth, mask)
        assert result.verdict is not None
        out[name] = {
            "before": compared.before,
            "after": compared.after,
            "decision": result.verdict.decision,
            "sentence": str(result.verdict),
            "seconds": round(seconds, 3),
        }
    return out


def _fit(model: nn.Module, loss: Callable[[], Tensor], epochs: int, decay: float = 5e-4) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=decay)
    model.train()
    for _ in range(epochs):
        optimizer.zero_grad()
        loss().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval().requires_grad_(False)


def links(seed: int) -> dict[str, Row]:
    """Link prediction on Cora."""
    data = load("cora", seed=seed).test[0]
    torch.manual_seed(seed)
    split = RandomLinkSplit(num_val=0.05, num_test=0.1, is_undirected=True, add_negative_train_samples=False)
    train, _, test = split(Data(x=data.x, edge_index=data.edge_index))
    model = pyg.GAE(pyg.GCN(data.x.size(1), 64, num_layers=2, out_channels=32))
    positive = train.edge_label_index
    _fit(model, lambda: model.recon_loss(model.encode(train.x, train.edge_index), positive), 150, 0.0)
    card = graphmend.card(model, train)
    harmed, generator = test.clone(), torch.Generator().manual_seed(seed)
    rows = torch.randperm(test.x.size(0), generator=generator)[: test.x.size(0) // 10]
    harmed.x = test.x.clone()
    harmed.x[rows] = torch.randn(rows.numel(), test.x.size(1), generator=generator)
    return {"broken rows": _row(model, card, test, harmed, test.edge_label)}


class _Digits(nn.Module):
    """Three convolutions, pooling, a linear map."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.GraphConv(3, 32), pyg.GraphConv(32, 32), pyg.GraphConv(32, 64)])
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        pooled = torch.cat([pyg.global_mean_pool(x, batch), pyg.global_max_pool(x, batch)], dim=1)
        out: Tensor = self.head(pooled)
        return out


def _digits(chosen: Tensor) -> Data:
    pixels, labels = (torch.from_numpy(values) for values in load_digits(return_X_y=True))
    place = torch.cartesian_prod(torch.arange(8), torch.arange(8))
    near = (place[:, None] - place).abs().amax(-1) == 1
    edges, number = near.nonzero().t(), chosen.numel()
    grey = pixels[chosen].float().reshape(-1, 1) / 16
    x = torch.cat([grey, (place.float() / 7).repeat(number, 1)], dim=1)
    shift = 64 * torch.arange(number).repeat_interleave(edges.size(1))
    batch = torch.arange(number).repeat_interleave(64)
    return Data(x=x, edge_index=edges.repeat(1, number) + shift, batch=batch, y=labels[chosen])


def graphs(seed: int) -> dict[str, Row]:
    """Classes of graphs."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(1797, generator=generator)
    train, test = _digits(order[:1000]), _digits(order[1000:1400])
    torch.manual_seed(seed)
    model = _Digits()
    _fit(model, lambda: F.cross_entropy(model(train.x, train.edge_index, train.batch), train.y), 120)
    card = graphmend.card(model, train)
    rows = torch.rand(test.x.size(0), generator=generator) < 0.1
    grey, place = test.x[:, :1], test.x[:, 1:]
    harmed = {
        "broken rows": torch.where(rows[:, None], 20 * torch.randn(test.x.shape, generator=generator), test.x),
        "grey values offset": torch.cat([grey + 1, place], dim=1),
        "places from the middle": torch.cat([grey, place - 0.5], dim=1),
        "other contrast": torch.cat([0.5 * grey + 0.5, place], dim=1),
    }
    out = {}
    for name, x in harmed.items():
        graph = test.clone()
        graph.x = x
        out[name] = _row(model, card, test, graph, test.y)
    return out


def regression(seed: int) -> dict[str, Row]:
    """Regression."""
    features, target = (torch.from_numpy(values).float() for values in load_diabetes(return_X_y=True))
    x, y = (features - features.mean(0)) / features.std(0), (target - target.mean()) / target.std()
    data = Data(x=x, edge_index=knn_graph(x, 5), y=y)
    generator = torch.Generator().manual_seed(seed)
    data.train_mask = torch.rand(y.numel(), generator=generator) < 0.6
    torch.manual_seed(seed)
    model = pyg.GraphSAGE(x.size(1), 32, num_layers=2, out_channels=1)

    def loss() -> Tensor:
        return F.mse_loss(model(data.x, data.edge_index).view(-1)[data.train_mask], y[data.train_mask])

    _fit(model, loss, 60)
    card, tested = graphmend.card(model, data), ~data.train_mask
    harmed = data.clone()
    rows = tested & (torch.rand(y.numel(), generator=generator) < 1 / 7)
    harmed.x = torch.where(rows[:, None], 30 * x, x)
    return {"broken rows": _row(model, card, data, harmed, y, tested)}


STUDIES = {"link prediction, cora": links, "classes of graphs, digits": graphs, "regression, diabetes": regression}
VERSION = 2  # of the faults and models above; runs of another one are not added to
NAMES = {"roc_auc": "ROC-AUC", "accuracy": "accuracy", "mae": "MAE (less is better)"}
KEY = {"link prediction, cora": "roc_auc", "classes of graphs, digits": "accuracy", "regression, diabetes": "mae"}


def _means(found: list[Row]) -> list[Row]:
    """One line per study and fault: means and standard deviations over the seeds."""
    means: list[Row] = []
    for name, fault in dict.fromkeys((row["study"], row["fault"]) for row in found):
        rows, key = [row for row in found if (row["study"], row["fault"]) == (name, fault)], KEY[name]
        line: Row = {"study": name, "fault": fault, "measure": key, "seeds": len(rows)}
        for what, graph, when in (
            ("clean", "clean", "before"),
            ("clean, mended", "clean", "after"),
            ("harmed", "harmed", "before"),
            ("mended", "harmed", "after"),
        ):
            values = [row[graph][when][key] for row in rows]
            line[what] = [round(mean(values), 4), round(stdev(values), 4) if len(values) > 1 else 0.0]
        line["left alone when clean"] = sum(row["clean"]["decision"] == "left alone" for row in rows)
        line["applied when harmed"] = sum(row["harmed"]["decision"] != "left alone" for row in rows)
        means.append(line)
    return means


def _table(means: list[Row]) -> list[list[str]]:
    """The rows of the table on the page."""
    rows = []
    for line in means:
        measure = NAMES[line["measure"]]
        values = [with_deviation(line[what], 3) for what in ("clean", "clean, mended", "harmed", "mended")]
        acted = f"{line['applied when harmed']} of {line['seeds']}"
        rows.append([line["study"], line["fault"], measure, *values, acted])
    return rows


def main() -> None:
    """Measure, write after each seed, and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--page", type=Path, help="the page that shows the table")
    args = parser.parse_args()
    origin = provenance("cpu", seeds=args.seeds)  # before the file itself changes the tree
    found = stored_runs(args.out, "runs", {"version": VERSION})
    for seed in range(args.seeds):
        if any(row["seed"] == seed for row in found):
            continue
        for name, study in STUDIES.items():
            found += [{"study": name, "fault": fault, "seed": seed, **row} for fault, row in study(seed).items()]
        report = {"settings": {"version": VERSION}, "means": _means(found), "runs": found, "provenance": origin}
        write_text(args.out, json.dumps(report, indent=1) + "\n")
        print(f"seed {seed}: {json.dumps(report['means'])}", flush=True)
    if args.page is not None:
        header = ["study", "fault", "measure", "clean", "clean, mended", "harmed", "mended", "mended graphs"]
        put_table(args.page, "graphmend.lab.studies.tasks", header, _table(_means(found)))


if __name__ == "__main__":
    main()
