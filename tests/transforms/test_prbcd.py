"""PR-BCD against hand formulas, a dense float64 reference, PyG's attack and random edges."""

from __future__ import annotations

import copy
import math
import warnings
from functools import lru_cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.datasets import Splits
from graphmend.nn import GCN
from graphmend.training import ERM
from graphmend.transforms import GRBCD, PRBCD, RandomEdges
from graphmend.transforms.attacks.losses import LOSSES, class_scores, masked_cross_entropy, tanh_margin
from graphmend.transforms.attacks.pairs import UndirectedGraph, pair_number, pair_of, random_pairs
from graphmend.transforms.attacks.prbcd import selection_criterion
from graphmend.transforms.attacks.random_block import Block
from graphmend.transforms.attacks.steps import VARIANTS, Adaptive, StepContext, official, signed
from graphmend.transforms.attacks.swaps import exchanged, improved
from graphmend.transforms.attacks.target import target_of
from graphs import DEVICES, dense, dense_norm, rng, undirected

LOGITS = torch.tensor([[2.0, 0.5, -1.0], [0.0, 1.0, 3.0], [0.2, 0.1, 0.0]], dtype=torch.float64)
LABELS = torch.tensor([0, 1, 0])


def test_tanh_margin_by_hand() -> None:
    expected = (math.tanh(-1.5) + math.tanh(2.0) + math.tanh(-0.1)) / 3
    assert float(tanh_margin(LOGITS, LABELS)) == pytest.approx(expected, abs=1e-12)
    assert float(tanh_margin(LOGITS.log_softmax(1), LABELS)) == pytest.approx(expected, abs=1e-12)


def test_masked_cross_entropy_by_hand() -> None:
    right = [
        -math.log(math.exp(a) / sum(math.exp(v) for v in row))
        for row, a in (([2.0, 0.5, -1.0], 2.0), ([0.2, 0.1, 0.0], 0.2))
    ]
    assert float(masked_cross_entropy(LOGITS, LABELS)) == pytest.approx(sum(right) / 2, abs=1e-12)
    wrong = torch.tensor([1, 1, 2])
    every = -LOGITS.log_softmax(1).gather(1, wrong[:, None]).mean()
    assert float(masked_cross_entropy(LOGITS, wrong)) == pytest.approx(float(every), abs=1e-12)


def test_single_logits_are_two_classes() -> None:
    z = torch.tensor([[1.0], [-2.0]])
    assert torch.equal(class_scores(z), torch.tensor([[0.0, 1.0], [0.0, -2.0]]))
    assert float(tanh_margin(class_scores(z), torch.tensor([1, 1]))) == pytest.approx(
        (math.tanh(-1) + math.tanh(2)) / 2
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("at_zero", [True, False])
def test_gradient_equals_the_dense_reference(loss: str, at_zero: bool, device: str) -> None:
    n, edge_index = 12, undirected(12, density=0.3, loops=True)
    x = torch.rand(n, 4, generator=rng(), dtype=torch.float64)
    data = Data(x=x, edge_index=edge_index).to(device)
    torch.manual_seed(0)
    model = GCN(4, 6, 3).double().to(device)
    nodes = (torch.arange(n) % 3 > 0).to(device)
    labels = (torch.arange(n) % 3).to(device)
    graph = UndirectedGraph.of(data)
    block = Block.random(graph, 40, torch.Generator(device=device).manual_seed(1))
    assert 0 < int(block.exists.sum()) < 40
    p = torch.rand(40, generator=rng(2), dtype=torch.float64).to(device) * (0 if at_zero else 1)
    with target_of(model, data, nodes=nodes, labels=labels, known=None, loss=loss, seed=0) as target:
        gradient = target.gradient(block, p)

    i, j = torch.triu_indices(n, n, 1, device=device)[:, block.pairs]
    clean = dense(edge_index, n).to(device)
    variable = p.clone().requires_grad_()
    flip = torch.zeros(n, n, dtype=torch.float64, device=device).index_put((i, j), variable)
    flip = flip + flip.t()
    relaxed = clean * (1 - flip) + (1 - clean) * flip  # A xor p
    a = dense_norm(relaxed)
    first, last = model.convs
    out = (a @ torch.relu(a @ data.x @ first.weight + first.bias)) @ last.weight + last.bias
    (expected,) = torch.autograd.grad(LOSSES[loss](out[nodes], labels[nodes]), variable)
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-13)
    assert bool((expected != 0).any())


@given(n=st.integers(2, 60))
def test_pair_numbers_count_the_upper_triangle(n: int) -> None:
    i, j = torch.triu_indices(n, n, 1)
    numbers = torch.arange(n * (n - 1) // 2)
    assert torch.equal(pair_number(i, j, n), numbers)
    assert torch.equal(pair_of(numbers, n), torch.stack([i, j]))


def test_pair_numbers_are_exact_for_millions_of_nodes() -> None:
    n = 100_000_000
    i = torch.cat([torch.arange(50), torch.randint(n - 2, (1000,), generator=rng()), n - 2 - torch.arange(50)])
    for j in (i + 1, torch.full_like(i, n - 1)):
        assert torch.equal(pair_of(pair_number(i, j, n), n), torch.stack([i, j]))


@pytest.mark.parametrize(("count", "total"), [(0, 10), (10, 10), (3, 10), (40, 1000), (900, 1000)])
def test_random_pairs_are_distinct_and_uniform(count: int, total: int) -> None:
    without = torch.tensor([2, 5]) if count + 2 <= total else None
    times = torch.zeros(total)
    for seed in range(400):
        drawn = random_pairs(count, total, rng(seed), without)
        assert drawn.numel() == count
        assert torch.equal(drawn, drawn.unique())
        times[drawn] += 1
    if without is not None:
        assert times[without].sum() == 0
    expected = 400 * count / (total - (0 if without is None else 2))
    rest = times if without is None else times[torch.arange(total) % 1000 != 2]
    assert (rest[rest > 0] - expected).abs().max() <= 5.5 * max(expected, 1) ** 0.5 if count else True


def test_flipping_twice_gives_the_graph_back() -> None:
    edges = UndirectedGraph.of(Data(x=torch.ones(20, 1), edge_index=undirected(20, loops=True)))
    flips = random_pairs(30, edges.num_pairs, rng(1))
    assert torch.equal(edges.flipped(flips).flipped(flips).edge_index(), edges.edge_index())
    assert torch.equal(edges.changes_to(edges.flipped(flips)), flips)


def test_block_resampling_keeps_the_best_and_renews_at_least_half() -> None:
    graph = UndirectedGraph.of(Data(x=torch.ones(60, 1), edge_index=undirected(60)))
    block = Block.random(graph, 200, rng())
    assert block.pairs.numel() == 200
    for positive, kept in ((30, 30), (150, 100)):
        p = torch.zeros(200)
        p[torch.randperm(200, generator=rng(1))[:positive]] = torch.rand(positive, generator=rng(2)) + 0.1
        new, q = block.resample(p, rng(3))
        assert new.pairs.numel() == 200
        assert torch.equal(new.pairs, new.pairs.unique())
        best = p.topk(kept)
        assert dict(zip(new.pairs[q > 0].tolist(), q[q > 0].tolist(), strict=True)) == dict(
            zip(block.pairs[best.indices].tolist(), best.values.tolist(), strict=True)
        )
    assert Block.random(graph, 10_000, rng()).is_whole


def test_weights_are_the_xor() -> None:
    data = Data(x=torch.ones(8, 1), edge_index=undirected(8, loops=True, density=0.3))
    graph = UndirectedGraph.of(data)
    block = Block.random(graph, 15, rng())
    flips = torch.rand(15, generator=rng(1)) < 0.5
    kept = block.edge_index[:, block.weight(flips.float()) > 0]
    changed = graph.flipped(block.pairs[flips]).edge_index()
    assert set(map(tuple, kept.t().tolist())) == set(map(tuple, changed.t().tolist()))


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


def test_steps_by_hand() -> None:
    gradient = torch.tensor([0.4, -0.2, 0.1, 0.0])
    early, late = StepContext(2, 10, 45, 0), StepContext(2, 10, 45, 3)
    step = Adaptive()
    torch.testing.assert_close(step(gradient, 0.1, early), torch.tensor([0.4, -0.2, 0.1, 0.0]))
    torch.testing.assert_close(step(0.5 * gradient, 0.1, late), torch.tensor([0.1, -0.05, 0.025, 0.0]))
    torch.testing.assert_close(Adaptive()(1e-9 * gradient, 0.1, late), torch.tensor([0.2, -0.1, 0.05, 0.0]))
    assert not Adaptive()(-gradient.abs(), 0.1, early).any()  # nothing to gain
    torch.testing.assert_close(official(gradient, 100.0, late), gradient * 100 * math.log2(45 / 4) * 2 / 20 / 2)
    torch.testing.assert_close(signed(gradient, 0.1, late), torch.tensor([0.1, -0.1, 0.1, 0.0]))


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


def test_flips_are_exchanged_for_better_pairs_only() -> None:
    flips = torch.tensor([True, True, True, False, False, False])
    gradient = torch.tensor([0.5, -0.1, 0.2, 0.3, 0.1, -0.4])
    assert exchanged(flips, gradient, 1).tolist() == [True, False, True, True, False, False]
    assert exchanged(flips, gradient, 9).tolist() == [True, False, True, True, False, False]  # 0.1 would lose to 0.2
    assert torch.equal(exchanged(flips, flips.double(), 3), flips)
    assert torch.equal(exchanged(torch.ones_like(flips), gradient, 3), torch.ones_like(flips))


def test_swapping_does_no_less_harm_within_the_same_budget() -> None:
    data = Data(x=torch.randn(30, 4, generator=rng(1)), edge_index=undirected(30))
    torch.manual_seed(0)
    model, graph = GCN(4, 8, 3).eval(), UndirectedGraph.of(data)
    with target_of(model, data, nodes=None, labels=None, known=None, loss="tanh_margin", seed=0) as target:
        block = Block.random(graph, 200, rng(2))
        flips = torch.zeros(200, dtype=torch.bool)
        flips[torch.randperm(200, generator=rng(3))[:12]] = True
        before = target.harm(block, flips)
        after = improved(target, block, flips, 20)
        assert target.harm(block, after) > before and int(after.sum()) == 12
