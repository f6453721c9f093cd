"""How well does the gate hold against an attacker who knows it?

    python -m graphmend.lab.beyond.adaptive_attack --store DIR --rows FILE.jsonl --out FILE.json [--picture FILE.png]

The victim is the GCN with batch norm of ``graphmend.lab.beyond``, the attacked nodes are the test nodes, and the
attacker knows the labels of the training nodes and the model's predictions elsewhere. *transfer* is PR-BCD on the bare
model, as in ``graphmend.lab.beyond``; *through* and *evade* know the gate
(:mod:`graphmend.lab.beyond.adaptive_attackers`). All have the same budget and block, the transferred attack 125 epochs,
the others 100 by default. Accuracies are test accuracies in
percent: of the frozen model, of the frozen model on the graph that the gate returns, and of the same with other
defences: the gate's purifier without a gate that could decide against it, and Jaccard, whose threshold is chosen on
training and validation nodes of a graph that is attacked at its validation nodes. The attackers do not adapt to those
two, so their numbers are upper limits. An MLP with as many hidden units, trained on the features alone, is the line
that no attack on the structure can move. Cells that the rows already hold are skipped, so a killed run resumes.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.files.files import write_text
from graphmend.files.provenance import commit, provenance
from graphmend.lab.attacks import PRBCD
from graphmend.lab.attacks.pairs import UndirectedGraph
from graphmend.lab.beyond.adaptive_attackers import TEMPERATURE, Defence, Evading, Through
from graphmend.lab.beyond.attacks import BLOCK_SIZE, RATES, attacked_graph
from graphmend.lab.beyond.baselines import THRESHOLDS
from graphmend.lab.beyond.methods import card_of
from graphmend.lab.beyond.rows import append, lines_of
from graphmend.lab.beyond.sources import Source, model_of, splits_of
from graphmend.lab.training import ERM
from graphmend.results import style
from graphmend.results.scores import score
from graphmend.transforms import edge_similarity

HIDDEN = 32
EPOCHS = 100
ATTACKS = ("transfer", "through", "evade")
COMMIT = commit()  # of the code that runs, whatever is checked out later
Row = dict[str, Any]


class MLP(nn.Module):
    """Two layers that see features only."""

    def __init__(self, columns: int, classes: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(columns, HIDDEN), nn.Linear(HIDDEN, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Class scores; the edges are ignored."""
        hidden = F.dropout(self.first(x).relu(), 0.5, self.training)
        out: Tensor = self.last(hidden)
        return out


class Bench:
    """One victim with all that its cells share.

    Args:
        source: The victim.
        store: The folder of models and attacked graphs.
        temperature: Of the attacker who goes through the gate.
        epochs: Of the attackers who know the gate.
    """

    def __init__(self, source: Source, store: Path, temperature: float, epochs: int) -> None:
        self.source, self.store, self.temperature, self.epochs = source, store, temperature, epochs
        self.model = model_of(source, store)
        card = card_of(source, self.model)
        assert card is not None
        self.clean: Data = splits_of(source).test[0]
        self.defence = Defence(self.model, card, self.clean.x)
        self.threshold = functools.cache(self._threshold)

    def row(self, attack: str, rate: float) -> Row:
        """The accuracies under an attack, ``"clean"`` included."""
        start = time.perf_counter()
        data = self.clean if attack == "clean" else self._attacked(attack, rate)
        seconds = time.perf_counter() - start
        found = self.defence(data.edge_index, self.source.seed)
        assert found.verdict is not None
        flips = UndirectedGraph.of(self.clean).changes_to(UndirectedGraph.of(data))
        row: Row = {"dataset": self.source.name, "seed": self.source.seed, "attack": attack, "rate": rate}
        with torch.no_grad():
            row |= {
                "frozen": self._accuracy(self.model(data.x, data.edge_index)),
                "gate": self._accuracy(self.model(found.data.x, found.data.edge_index)),
                "jaccard": self._accuracy(self._after_jaccard(data, self.threshold(rate))) if rate else None,
                "purify": self._accuracy(self.defence.purified(data.edge_index)),
                "menders": list(found.verdict.menders),
                "sentence": found.verdict.sentence,
                "evidence": [str(item) for item in found.verdict.evidence],
                "flips": flips.numel(),
            }
        if attack == "clean":
            row["mlp"] = self._mlp()
        return {**row, "seconds": round(seconds, 1), "commit": COMMIT}

    def _attacked(self, attack: str, rate: float) -> Data:
        if attack == "transfer":
            return attacked_graph(self.source, rate, self.store)
        options: dict[str, Any] = {
            "rate": rate,
            "nodes": self.clean.test_mask,
            "known": self.clean.train_mask,
            "block_size": BLOCK_SIZE,
            "epochs": self.epochs,
            "resampling_epochs": 4 * self.epochs // 5,
            "seed": self.source.seed,
            "defence": self.defence,
        }
        makers: dict[str, Callable[[], PRBCD]] = {
            "through": lambda: Through(self.model, temperature=self.temperature, **options),
            "evade": lambda: Evading(self.model, **options),
        }
        return makers[attack]()(self.clean)

    def _accuracy(self, logits: Tensor) -> float:
        return round(100 * score("accuracy", logits, self.clean.y, self.clean.test_mask), 2)

    def _threshold(self, rate: float) -> float:
        graph = attacked_graph(self.source, rate, self.store, nodes="val")
        known = graph.train_mask | graph.val_mask
        return max(THRESHOLDS, key=lambda t: score("accuracy", self._after_jaccard(graph, t), graph.y, known))

    @torch.no_grad()
    def _after_jaccard(self, data: Data, threshold: float) -> Tensor:
        logits: Tensor = self.model(data.x, data.edge_index[:, edge_similarity(data) >= threshold])
        return logits

    def _mlp(self) -> float:
        splits = splits_of(self.source)
        torch.manual_seed(self.source.seed)
        model = MLP(self.clean.x.size(1), int(splits.meta["classes"]))
        ERM(lr=0.01, weight_decay=5e-4, epochs=200, optimizer="adam", seed=self.source.seed)(model, splits)
        with torch.no_grad():
            return self._accuracy(model.eval()(self.clean.x, self.clean.edge_index))


def run(arguments: argparse.Namespace) -> list[Row]:
    """All cells, from the rows where they are there."""
    rows = list(lines_of(arguments.rows))
    done = {(row["dataset"], row["seed"], row["attack"], row["rate"]) for row in rows}
    wanted = [("clean", 0.0), *((attack, rate) for rate in arguments.rates for attack in ATTACKS)]
    for seed in arguments.seeds:
        for name in arguments.datasets:
            missing = [cell for cell in wanted if (name, seed, *cell) not in done]
            bench = Bench(Source(name, "gcn", seed), arguments.store, arguments.temperature, arguments.epochs)
            for attack, rate in missing:
                row = bench.row(attack, rate)
                rows.append(row)
                append(arguments.rows, row)
                print(
                    f"{name} seed {seed} {attack} {rate:.2f}: frozen {row['frozen']:.1f}, gate {row['gate']:.1f}, "
                    f"{'+'.join(row['menders']) or 'left alone'} ({row['seconds']:.0f} s)",
                    flush=True,
                )
    return [row for row in rows if row["dataset"] in arguments.datasets and row["seed"] in arguments.seeds]


COLUMNS: dict[str, tuple[str, Sequence[str]]] = {
    "frozen, transfer": ("frozen", ["transfer"]),
    "frozen, strongest": ("frozen", ATTACKS),
    "Jaccard, transfer": ("jaccard", ["transfer"]),
    "gate, transfer": ("gate", ["transfer"]),
    "gate, through": ("gate", ["through"]),
    "gate, evade": ("gate", ["evade"]),
    "gate, strongest": ("gate", ATTACKS),
    "purifier without gate, through": ("purify", ["through"]),
    "purifier without gate, evade": ("purify", ["evade"]),
}
"""A value and the attacks of which the most harmful counts, seed by seed."""


def values(rows: Sequence[Row], name: str, rate: float, column: str) -> list[float]:
    """One value per seed."""
    value, attacks = COLUMNS[column]
    if rate == 0:
        value, attacks = ("frozen" if value == "jaccard" else value), ["clean"]
    by_seed: dict[int, list[float]] = {}
    for row in rows:
        if (row["dataset"], row["rate"]) == (name, rate) and row["attack"] in attacks:
            by_seed.setdefault(row["seed"], []).append(row[value])
    return [min(found) for found in by_seed.values()]


def table(rows: Sequence[Row]) -> str:
    """Mean and standard deviation over seeds, as Markdown."""
    lines = [f"| data set | rate | {' | '.join(COLUMNS)} | MLP |", f"|{' --- |' * (3 + len(COLUMNS))}"]
    for name, rate in sorted({(row["dataset"], row["rate"]) for row in rows}, key=lambda k: (k[0] != "cora", *k)):
        mlp = [row["mlp"] for row in rows if row["dataset"] == name and "mlp" in row]
        cells = [_text(values(rows, name, rate, column)) for column in COLUMNS]
        lines.append(f"| {name} | {f'{rate:.0%}' if rate else 'clean'} | {' | '.join([*cells, _text(mlp)])} |")
    return "\n".join(lines)


def _text(found: Sequence[float]) -> str:
    return f"{mean(found):.1f} ± {stdev(found) if len(found) > 1 else 0.0:.1f}" if found else ""


STYLES = {
    "frozen, transfer": (style.COLOURS[8], "-", "frozen, attack on the bare model"),
    "Jaccard, transfer": (style.COLOURS[1], "--", "Jaccard, same attack"),
    "gate, transfer": (style.COLOURS[0], "-", "gate, same attack"),
    "gate, through": (style.COLOURS[4], "--", "gate, attack through the gate"),
    "gate, strongest": (style.COLOURS[2], "-", "gate, strongest attack of all"),
}


def picture(rows: Sequence[Row], path: Path) -> None:
    """Accuracy against the budget, a panel per data set."""
    names = list(dict.fromkeys(row["dataset"] for row in rows))
    figure = style.figure(5.2 * len(names), 5.2)
    axes = figure.subplots(1, len(names), squeeze=False)
    for panel, name in zip(axes[0], names, strict=True):
        rates = sorted({row["rate"] for row in rows if row["dataset"] == name})
        for column, (colour, line, label) in STYLES.items():
            means = [mean(values(rows, name, rate, column)) for rate in rates]
            panel.plot([100 * r for r in rates], means, line, color=colour, label=label, marker="o", markersize=4)
        mlp = mean(row["mlp"] for row in rows if row["dataset"] == name and "mlp" in row)
        panel.axhline(mlp, color=style.INK, linestyle=":", linewidth=1.2, label="MLP, no edges")
        style.title(panel, {"cora": "Cora", "citeseer": "CiteSeer"}.get(name, name))
        panel.set(xlabel="flipped edges (% of all)", ylabel="test accuracy (%)", xticks=[100 * rate for rate in rates])
        panel.grid(axis="y", linewidth=0.5, color=style.FAINT)
    handles, labels = axes[0][0].get_legend_handles_labels()
    style.legend(figure, axes[0][0], dict(zip(labels, handles, strict=True)), 3.0)
    style.heading(figure, "What the gate withstands, and what it does not", "Means over seeds.")
    style.dress(figure)
    style.save(figure, path)


def main() -> None:
    """Parse, run, write, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--store", type=Path, required=True, help="folder of models and attacked graphs")
    parser.add_argument("--rows", type=Path, required=True, help="JSON lines, one per cell, continued if there")
    parser.add_argument("--out", type=Path, help="JSON file of the results")
    parser.add_argument("--picture", type=Path, help="PNG file")
    parser.add_argument("--datasets", nargs="+", default=["cora", "citeseer"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rates", nargs="+", type=float, default=list(RATES))
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="of those who know the gate")
    parser.add_argument("--temperature", type=float, default=TEMPERATURE)
    arguments = parser.parse_args()
    rows = run(arguments)
    if arguments.out is not None:
        settings = {"epochs": arguments.epochs, "block_size": BLOCK_SIZE, "temperature": arguments.temperature}
        write_text(arguments.out, json.dumps({"about": provenance("cpu", **settings), "cells": rows}, indent=1))
    if arguments.picture is not None:
        picture(rows, arguments.picture)
    print(table(rows))


if __name__ == "__main__":
    main()
