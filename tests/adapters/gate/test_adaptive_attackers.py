"""Attackers who know the gate see what the gate sees, and keep to their budget."""

from __future__ import annotations

import functools

import pytest
import torch

from graphmend.cards.edges import edge_views, fit
from graphmend.graph.edge_flips import pair_of
from graphmend.lab.attacks.pairs import Block, UndirectedGraph
from graphmend.lab.attacks.target import target_of
from graphmend.lab.beyond.adaptive_attackers import Defence, DefendedTarget, Evading, Through
from support.gate_cases import ATTACKED, attacked, reading_circles
from support.graphs import rng
from support.untouched import assert_same, state_of


@functools.cache
def defence() -> Defence:
    model, made, data = attacked()
    return Defence(model, made, data.x)


def test_the_attackers_fit_is_the_purifiers() -> None:
    _, made, data = attacked()
    graph = UndirectedGraph.of(data)
    pairs = pair_of(graph.pairs, graph.num_nodes)
    found = defence().fits(pairs, torch.ones(pairs.size(1)))
    both = torch.cat([pairs, pairs.flip(0)], dim=1)
    expected = fit(edge_views(data.x, defence().hidden, both), made.edge_grid)[: pairs.size(1)]
    assert float((found != expected).double().mean()) < 0.05, "up to rounding at the points of the grid"
    torch.testing.assert_close(found, expected, rtol=0, atol=0.04)


def test_the_attackers_threshold_cuts_as_many_edges_as_the_gate() -> None:
    _, _, data = attacked()
    graph = UndirectedGraph.of(data)
    pairs = pair_of(graph.pairs, graph.num_nodes)
    fits = defence().fits(pairs, torch.ones(pairs.size(1)))
    cut = int((fits <= defence().threshold(fits, torch.ones_like(fits))).sum())
    result = defence()(data.edge_index)
    assert result.verdict is not None and result.verdict.menders == ("purify",)
    assert 2 * cut == pytest.approx(result.patch.num_removed, rel=0.05)


def test_edges_that_would_be_cut_have_a_gradient_too() -> None:
    model, _, _ = attacked()
    data = reading_circles()
    graph = UndirectedGraph.of(data)
    block = Block.random(graph, 5000, rng(0))
    p = torch.full((block.pairs.numel(),), 0.05)
    with target_of(model, data, nodes=ATTACKED, labels=None, known=data.train_mask, loss="tanh_margin", seed=0) as bare:
        parts = (bare.model, bare.x, bare.nodes, bare.labels, bare.loss)
        gradient = DefendedTarget(*parts, defence()).gradient(block, p)
        plain = bare.gradient(block, p)
    ends = pair_of(block.pairs, graph.num_nodes)
    fits = defence().fits(ends, torch.where(block.exists, 1 - p, p))
    worst = fits < fits.quantile(0.3)
    assert bool(gradient[worst & ATTACKED[ends].any(0)].count_nonzero() > 0)
    assert float(gradient[worst].abs().mean()) < float(plain[worst].abs().mean())


@pytest.mark.parametrize("kind", [Through, Evading])
def test_attackers_keep_to_their_budget_and_touch_nothing(kind: type[Through] | type[Evading]) -> None:
    model, _, _ = attacked()
    data = reading_circles()
    before = state_of(model, data)
    attack = kind(
        model,
        rate=0.1,
        nodes=ATTACKED,
        known=data.train_mask,
        block_size=5000,
        epochs=5,
        num_samples=2,
        defence=defence(),
    )
    harmed = attack(data)
    assert_same(before, state_of(model, data))
    clean = UndirectedGraph.of(data)
    flips = clean.changes_to(UndirectedGraph.of(harmed)).numel()
    assert 0 < flips <= clean.count(0.1)
    assert torch.equal(attack(data).edge_index, harmed.edge_index)
    if kind is Evading:
        verdict = defence()(harmed.edge_index).verdict
        assert verdict is not None and "purify" not in verdict.menders
