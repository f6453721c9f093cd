"""The steps and exchanges of PR-BCD."""

from __future__ import annotations

import math

import torch
from torch_geometric.data import Data

from graphmend.lab.attacks.pairs import Block, UndirectedGraph
from graphmend.lab.attacks.prbcd import Adaptive, StepContext, exchanged, improved, official, signed
from graphmend.lab.attacks.target import target_of
from graphmend.lab.backbones import GCN
from support.graphs import rng, undirected


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
