"""PR-BCD against PyG's attack and random edges."""

from __future__ import annotations

import copy
import warnings
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.lab.attacks import GRBCD, PRBCD
from graphmend.lab.attacks.pairs import Block, UndirectedGraph
from graphmend.lab.attacks.prbcd import VARIANTS, selection_criterion
from graphmend.lab.attacks.target import tanh_margin, target_of
from graphmend.lab.backbones import GCN
from graphmend.lab.data import Splits
from graphmend.lab.data.corruptions import RandomEdges
from graphmend.lab.training import ERM
from support.graphs import rng


@lru_cache
def victim(seed: int) -> tuple[nn.Module, Data]:
    """A trained GCN on a small graph with communities; no test changes either."""
    generator, n, classes = rng(seed), 300, 3
    y = torch.arange(n) % classes
    x = torch.nn.functional.one_hot(y, 8) + 0.9 * torch.randn(n, 8, generator=generator)
    chance = torch.where(y[:, None] == y, 0.04, 0.004)
    edges = (torch.rand(n, n, generator=generator) < chance).triu(1).nonzero().t()
    order = torch.randperm(n, generator=generator)
    masks = [torch.zeros(n, dtype=torch.bool).index_fill(0, part, True) for part in order.split(100)]
    parts = dict(zip(("train_mask", "val_mask", "test_mask"), masks, strict=True))
    data = Data(x=x.float(), edge_index=torch.cat([edges, edges.flip(0)], dim=1), y=y, **parts)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = GCN(8, 16, classes)
    return ERM(epochs=60, seed=seed)(model, Splits.transductive(data)), data


@torch.no_grad()
def accuracy(model: nn.Module, data: Data, edge_index: Tensor) -> float:
    return 100 * float((model(data.x, edge_index).argmax(1) == data.y)[data.test_mask].double().mean())


def attack(model: nn.Module, data: Data, rate: float, **options: Any) -> float:
    options = {"block_size": 5000, "epochs": 20, "resampling_epochs": 16, "labels": data.y, **options}
    after = PRBCD(model, rate=rate, nodes=data.test_mask, **options)(data)
    return accuracy(model, data, after.edge_index)


def test_beats_random_edges_and_grows_with_the_budget() -> None:
    drops: list[list[float]] = []
    for seed in (0, 1):
        model, data = victim(seed)
        clean = accuracy(model, data, data.edge_index)
        random = accuracy(model, data, RandomEdges(0.25, seed=seed)(data).edge_index)
        drops.append([clean - attack(model, data, rate, seed=seed) for rate in (0.05, 0.1, 0.25)])
        assert attack(model, data, 0.25, variant="port", seed=seed) < random - 3
        greedy = GRBCD(model, rate=0.25, nodes=data.test_mask, labels=data.y, epochs=20, block_size=5000, seed=seed)
        assert accuracy(model, data, greedy(data).edge_index) < random - 15
        assert drops[-1][-1] > clean - random + 15
    means = [sum(column) / 2 for column in zip(*drops, strict=True)]
    assert means[0] > 4
    assert means[0] < means[1] < means[2]


def test_is_at_least_as_strong_as_the_attack_of_pyg() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch_geometric.contrib.nn import PRBCDAttack
    ours, theirs = [], []
    for seed in (0, 1, 2):
        model, data = victim(seed)
        for rate in (0.05, 0.15):
            ours.append(attack(model, data, rate, seed=seed))
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                reference = PRBCDAttack(model, 5000, 20, 16, loss="tanh_margin", log=False)
                budget = int(rate * (data.num_edges // 2))
                edge_index, _ = reference.attack(data.x, data.edge_index, data.y, budget, idx_attack=data.test_mask)
            theirs.append(accuracy(model, data, edge_index))
    assert sum(ours) / 6 <= sum(theirs) / 6 + 0.5


def test_reads_true_labels_of_known_nodes_only() -> None:
    model, data = victim(0)
    options: dict[str, Any] = {"rate": 0.05, "nodes": data.test_mask, "epochs": 4, "block_size": 2000}
    other = copy.copy(data)
    other.y = torch.where(data.train_mask, data.y, (data.y + 1) % 3)
    first = PRBCD(model, **options)(data)
    assert torch.equal(first.edge_index, PRBCD(model, **options)(other).edge_index)
    bare = Data(x=data.x, edge_index=data.edge_index)  # neither labels nor masks
    assert torch.equal(first.edge_index, PRBCD(model, **options)(bare).edge_index)  # no test node is known
    assert not torch.equal(first.edge_index, PRBCD(model, known=data.test_mask, **options)(data).edge_index)


def test_port_selects_by_validation_likelihood() -> None:
    model, data = victim(0)
    graph = UndirectedGraph.of(data)
    block = Block.random(graph, 100, rng())
    flips = torch.arange(100) < 50
    with target_of(model, data, nodes=None, labels=None, known=None, loss="tanh_margin", seed=0) as target:
        port, _ = selection_criterion(target, data, VARIANTS["port"])(block, flips)
        error, loss = selection_criterion(target, data, VARIANTS["adaptive"])(block, flips)
        labels = target.labels
    with torch.no_grad():
        logits = model(data.x, graph.flipped(block.pairs[flips]).edge_index())
        clean = model(data.x, data.edge_index)
    mask = data.val_mask
    assert port == pytest.approx(float(torch.nn.functional.cross_entropy(logits[mask], data.y[mask])), rel=1e-5)
    assert torch.equal(labels, torch.where(data.train_mask, data.y, clean.argmax(1)))
    assert error == pytest.approx(float((logits.argmax(1) != labels).double().mean()))
    assert loss == pytest.approx(float(tanh_margin(logits, labels)), rel=1e-4)


@pytest.mark.slow
def test_a_block_of_a_hundred_thousand_pairs_on_a_larger_graph() -> None:
    n = 20_000
    ends = torch.randint(n, (2, 60_000), generator=rng())
    ends = ends[:, ends[0] != ends[1]]
    edge_index = torch.unique(torch.cat([ends, ends.flip(0)], dim=1), dim=1)
    data = Data(x=torch.randn(n, 32, generator=rng(1)), edge_index=edge_index)
    after = PRBCD(GCN(32, 32, 5), rate=0.1, block_size=100_000, epochs=10)(data)
    graph = UndirectedGraph.of(data)
    assert 0 < graph.changes_to(UndirectedGraph.of(after)).numel() <= graph.count(0.1)
