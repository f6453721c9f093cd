"""How strong are our attacks? PR-BCD, ours in its three variants and PyG's, on Planetoid graphs under equal conditions.

    python -m graphmend.lab.studies.attack_strength --data DIR --out FILE.json [--device cuda] [--seeds 5]

A 2-layer GCN with 64 hidden units is trained per data set and seed (Adam, lr 0.01, L2 5e-4, dropout 0.5, 200 epochs,
weights of the best validation epoch) on row-normalised features, and attacked white-box. To measure the attack itself,
the attacked nodes are the test nodes and the attacker is given their TRUE labels; accuracies are test accuracies in
percent. Budget, block size, epochs and resampling epochs are the same for all attacks; "random" adds as many random
edges. Cells that FILE.json already holds are skipped, so a killed run resumes.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.files.files import read_json, write_text
from graphmend.files.provenance import provenance
from graphmend.lab.attacks import GRBCD, PRBCD
from graphmend.lab.backbones import GCN
from graphmend.lab.data import Splits, load
from graphmend.lab.data.corruptions import RandomEdges
from graphmend.lab.training import ERM

RATES = (0.05, 0.1, 0.15, 0.2, 0.25)
BLOCK_SIZE, EPOCHS = 250_000, 125


def train(data: Data, seed: int) -> nn.Module:
    """The GCN under attack."""
    torch.manual_seed(seed)
    model = GCN(data.x.size(1), 64, int(data.y.max()) + 1, dropout=0.5).to(data.x.device)
    trainer = ERM(lr=0.01, weight_decay=5e-4, epochs=200, optimizer="adam", seed=seed)
    return trainer(model, Splits.transductive(data))


@torch.no_grad()
def accuracy(model: nn.Module, data: Data, edge_index: Tensor) -> float:
    """Test accuracy in percent."""
    logits = model(data.x, edge_index)[data.test_mask]
    return 100 * float((logits.argmax(1) == data.y[data.test_mask]).double().mean())


class Conditions(NamedTuple):
    """What all attacks share."""

    rate: float
    seed: int
    block_size: int
    epochs: int
    resampling: int


def ours(variant: str) -> Callable[[nn.Module, Data, Conditions], Tensor]:
    """Our PR-BCD."""

    def attack(model: nn.Module, data: Data, given: Conditions) -> Tensor:
        prbcd = PRBCD(
            model,
            rate=given.rate,
            nodes=data.test_mask,
            labels=data.y,
            block_size=given.block_size,
            epochs=given.epochs,
            resampling_epochs=given.resampling,
            variant=variant,
            seed=given.seed,
        )
        return prbcd(data).edge_index  # type: ignore[no-any-return]

    return attack


def greedy(model: nn.Module, data: Data, given: Conditions) -> Tensor:
    """Our GR-BCD."""
    grbcd = GRBCD(
        model,
        rate=given.rate,
        nodes=data.test_mask,
        labels=data.y,
        block_size=given.block_size,
        epochs=given.epochs,
        seed=given.seed,
    )
    return grbcd(data).edge_index  # type: ignore[no-any-return]


def pyg(model: nn.Module, data: Data, given: Conditions) -> Tensor:
    """PyG's PRBCDAttack with its own step size and the tanh margin."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch_geometric.contrib.nn import PRBCDAttack
    torch.manual_seed(given.seed)
    attack = PRBCDAttack(model, given.block_size, given.epochs, given.resampling, loss="tanh_margin", log=False)
    budget = int(given.rate * (data.edge_index.size(1) // 2) + 1e-9)
    found: Tensor = attack.attack(data.x, data.edge_index, data.y, budget, idx_attack=data.test_mask)[0]
    return found


def random(model: nn.Module, data: Data, given: Conditions) -> Tensor:
    """Random edges."""
    return RandomEdges(given.rate, seed=given.seed)(data).edge_index  # type: ignore[no-any-return]


ATTACKS = {
    "adaptive": ours("adaptive"),
    "official": ours("official"),
    "port": ours("port"),
    "greedy": greedy,
    "pyg": pyg,
    "random": random,
}


def run(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """All cells, from the file where they are there."""
    stored = read_json(arguments.out) if arguments.out.exists() else {"cells": []}
    cells: list[dict[str, Any]] = stored["cells"]
    epochs = arguments.epochs
    shared = {"block_size": arguments.block_size, "epochs": epochs, "resampling": 4 * epochs // 5}
    done = {(cell["dataset"], cell["seed"], cell["attack"], cell["rate"]) for cell in cells}
    wanted = [("clean", 0.0), *((attack, rate) for rate in arguments.rates for attack in arguments.attacks)]
    for name in arguments.datasets:
        data = load(name, data_dir=arguments.data).test[0].to(arguments.device)
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            missing = [cell for cell in wanted if (name, seed, *cell) not in done]
            model = train(data, seed) if missing else None
            for attack, rate in missing:
                assert model is not None
                start = time.perf_counter()
                given = Conditions(rate, seed, **shared)
                edges = data.edge_index if attack == "clean" else ATTACKS[attack](model, data, given)
                found, seconds = accuracy(model, data, edges), time.perf_counter() - start
                cell = {"dataset": name, "seed": seed, "attack": attack, "rate": rate}
                cells.append({**cell, "accuracy": found, "seconds": round(seconds, 2)})
                print(f"{name} seed {seed} {attack} {rate:.2f}: {found:.1f} ({seconds:.1f} s)", flush=True)
                about = provenance(arguments.device, **shared)
                write_text(arguments.out, json.dumps({"about": about, "cells": cells}, indent=1))
    return cells


def table(cells: list[dict[str, Any]]) -> str:
    """Mean and standard deviation over seeds, as Markdown."""
    attacks = [name for name in ATTACKS if any(cell["attack"] == name for cell in cells)]
    lines = [f"| data set | rate | seeds | {' | '.join(attacks)} |", f"|{' --- |' * (3 + len(attacks))}"]
    for name, rate in dict.fromkeys((cell["dataset"], cell["rate"]) for cell in cells):
        here = [cell for cell in cells if (cell["dataset"], cell["rate"]) == (name, rate)]
        columns = ["clean"] if rate == 0 else attacks
        texts = []
        for attack in columns:
            values = [cell["accuracy"] for cell in here if cell["attack"] == attack]
            spread = stdev(values) if len(values) > 1 else 0.0
            texts.append(f"{mean(values):.1f} ± {spread:.1f}" if values else "")
        texts = texts * len(attacks) if rate == 0 else texts
        seeds = len({cell["seed"] for cell in here})
        lines.append(f"| {name} | {f'{rate:.0%}' if rate else 'clean'} | {seeds} | {' | '.join(texts)} |")
    return "\n".join(lines)


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="folder with the Planetoid files")
    parser.add_argument("--out", type=Path, required=True, help="JSON file of the results, resumed if it exists")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--datasets", nargs="+", default=["cora", "citeseer", "pubmed"])
    parser.add_argument("--rates", nargs="+", type=float, default=RATES)
    parser.add_argument("--block-size", type=int, default=BLOCK_SIZE)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="the block is resampled in the first 4/5 of them")
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS), choices=list(ATTACKS))
    print(table(run(parser.parse_args())))


if __name__ == "__main__":
    main()
