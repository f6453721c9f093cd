"""Broken papers and broken words: a heterogeneous model on ACM and Citation, harmed, mended and clean.

    python -m graphmend.lab.studies.hetero_citation --out FILE.json [--seeds 5] [--page docs/heterogeneous.md]

Papers cite papers and hold words. A paper has its keyword counts, a word the papers that it is in, both in the 64
leading singular directions of ACM. GraphSAGE through ``to_hetero`` learns the fields of the ACM papers, and predicts
those of the papers of Citation: as they are, and after a fault of the papers, of the words, or of both. Each graph is
mended by the gate with the source card of the training graph. Data are found through GRAPHMEND_DATA. Seeds that are in
the file are not run again; ``--page`` puts the table into the page.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.transforms as T
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import SAGEConv, to_hetero

from graphmend.files.files import write_text
from graphmend.files.provenance import provenance
from graphmend.hetero import HeteroCard, hetero_card, mend_hetero
from graphmend.lab.data import load
from graphmend.lab.studies.pages import put_table, stored_runs, with_deviation

WIDTH, HIDDEN = 64, 32
FEWEST = 60  # papers of ACM that a word has to be in
BROKEN = 0.2  # of the rows of a type, or of the values where some are missing


class Model(nn.Module):
    """GraphSAGE of two layers and a linear one."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.first, self.second = SAGEConv((-1, -1), HIDDEN), SAGEConv((-1, -1), HIDDEN)
        self.lin = nn.Linear(HIDDEN, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Scores of every node."""
        hidden = self.second(self.first(x, edge_index).relu(), edge_index).relu()
        scores: Tensor = self.lin(hidden)
        return scores


def heterogeneous(data: Data, words: Tensor, directions: Tensor, of_words: Tensor) -> HeteroData:
    """A citation network as papers and words.

    Args:
        data: The papers with their keyword counts.
        words: The words that count, by column.
        directions: What a paper's counts are multiplied with.
        of_words: The features of the words.
    """
    out, counts = HeteroData(), data.x[:, words]
    out["paper"].x = F.normalize(counts, dim=1) @ directions
    out["paper"].y = data.y
    out["word"].x = of_words
    out["paper", "cites", "paper"].edge_index = data.edge_index
    out["paper", "holds", "word"].edge_index = counts.nonzero().t().contiguous()
    return T.ToUndirected()(out)


def graphs() -> tuple[HeteroData, HeteroData, int]:
    """ACM, Citation and the number of fields."""
    splits = load("citation")
    source, target = splits.train[0], splits.test[0]
    words = (source.x != 0).sum(0) >= FEWEST
    rows = F.normalize(source.x[:, words], dim=1)
    torch.manual_seed(0)
    _, sizes, directions = torch.svd_lowrank(rows, WIDTH, niter=4)
    scale = len(rows) ** 0.5 / sizes  # so that columns of papers have about the same size
    directions = directions * scale
    of_words = directions / directions.std(0)
    first, second = (heterogeneous(data, words, directions, of_words) for data in (source, target))
    return first, second, int(splits.meta["classes"])


def trained(data: HeteroData, classes: int, epochs: int, seed: int) -> tuple[nn.Module, HeteroCard]:
    """A model of a random 60 % of the papers, and its card."""
    torch.manual_seed(seed)
    data["paper"].train_mask = torch.rand(data["paper"].num_nodes) < 0.6
    model = to_hetero(Model(classes), data.metadata())
    with torch.no_grad():
        model(data.x_dict, data.edge_index_dict)
    optimizer = torch.optim.Adam(model.parameters(), 0.01, weight_decay=5e-4)
    mask, y = data["paper"].train_mask, data["paper"].y
    for _ in range(epochs):
        optimizer.zero_grad()
        loss: Any = F.cross_entropy(model(data.x_dict, data.edge_index_dict)["paper"][mask], y[mask])
        loss.backward()
        optimizer.step()
    return model, hetero_card(model, data, output="paper", seed=seed)


def with_x(data: HeteroData, kind: str, change: Callable[[Tensor], Tensor]) -> HeteroData:
    """A copy with other features of one type."""
    out = copy.copy(data)
    out[kind].x = change(data[kind].x.clone())
    return out


def scaled(x: Tensor) -> Tensor:
    """A fifth of the rows in another unit."""
    return torch.where(torch.rand(len(x), 1) < BROKEN, 20 * x, x)


def noisy(x: Tensor) -> Tensor:
    """A fifth of the rows as noise, five times as large as the others."""
    return torch.where(torch.rand(len(x), 1) < BROKEN, 5 * x.std() * torch.randn_like(x), x)


def gappy(x: Tensor) -> Tensor:
    """A fifth of the values missing."""
    return x.masked_fill(torch.rand(x.shape) < BROKEN, torch.nan)


FAULTS: dict[str, Callable[[HeteroData], HeteroData]] = {
    "none": copy.copy,
    "papers scaled": lambda data: with_x(data, "paper", scaled),
    "words noisy": lambda data: with_x(data, "word", noisy),
    "papers and words scaled": lambda data: with_x(with_x(data, "paper", scaled), "word", scaled),
    "values of both missing": lambda data: with_x(with_x(data, "paper", gappy), "word", gappy),
    "papers shifted": lambda data: with_x(data, "paper", lambda x: 0.5 * x + x.std(0)),
}


def measure(parts: tuple[HeteroData, HeteroData, int], seed: int, epochs: int) -> list[dict[str, Any]]:
    """What the gate does to each graph, and the accuracy before and after."""
    source, target, classes = parts
    model, card = trained(source, classes, epochs, seed)
    rows = []
    for name, data in (("ACM", source), ("Citation", target)):
        for fault, harm in FAULTS.items():
            torch.manual_seed(1000 + seed)
            harmed = harm(data)
            result = mend_hetero(model, harmed, card=card, seed=seed)
            assert result.verdict is not None
            comparison = result.compare(data["paper"].y)
            accuracy = comparison.accuracy_before, comparison.accuracy_after
            rows.append(
                {
                    "seed": seed,
                    "graph": name,
                    "fault": fault,
                    "before": round(100 * (accuracy[0] or 0.0), 2),
                    "after": round(100 * (accuracy[1] or 0.0), 2),
                    "verdict": str(result.verdict),
                    "menders": result.verdict.menders,
                    "seconds": round(result.seconds, 1),
                }
            )
    return rows


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and deviation over the seeds, and how many graphs were changed."""
    out = []
    for graph, fault in dict.fromkeys((row["graph"], row["fault"]) for row in rows):
        own = [row for row in rows if (row["graph"], row["fault"]) == (graph, fault)]
        numbers = {key: [row[key] for row in own] for key in ("before", "after")}
        line: dict[str, Any] = {"graph": graph, "fault": fault, "changed": sum(bool(row["menders"]) for row in own)}
        line["acted"] = f"{line['changed']} of {len(own)}"
        line |= {key: [round(mean(v), 2), round(stdev(v), 2) if len(v) > 1 else 0.0] for key, v in numbers.items()}
        out.append(line)
    return out


def _table(lines: list[dict[str, Any]]) -> list[list[str]]:
    """The rows of the table on the page."""
    return [
        [line["graph"], line["fault"], *(with_deviation(line[key], 1) for key in ("before", "after")), line["acted"]]
        for line in lines
    ]


def main() -> None:
    """Measure, write after each seed, and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--page", type=Path, help="the page that shows the table")
    args = parser.parse_args()
    origin, settings = provenance("cpu", seeds=args.seeds), {"epochs": args.epochs}
    rows = stored_runs(args.out, "rows", settings)
    left = [seed for seed in range(args.seeds) if all(row["seed"] != seed for row in rows)]
    parts = graphs() if left else None
    for seed in left:
        assert parts is not None
        rows += measure(parts, seed, args.epochs)
        report = {"settings": settings, "summary": summary(rows), "rows": rows, "provenance": origin}
        write_text(args.out, json.dumps(report, indent=2) + "\n")
        print(f"seed {seed}: {json.dumps(report['summary'])}", flush=True)
    if args.page is not None:
        header = ["graph", "fault", "harmed", "mended", "graphs changed"]
        put_table(args.page, "graphmend.lab.studies.hetero_citation", header, _table(summary(rows)))


if __name__ == "__main__":
    main()
