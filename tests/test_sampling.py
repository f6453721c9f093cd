"""Bernoulli draws under a budget, on every device."""

from __future__ import annotations

import pytest
import torch

from graphmend.edges import bernoulli
from graphs import DEVICES, rng

DRAWS = 4000


def draws(p: torch.Tensor, budget: int, device: str) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(0)
    return torch.stack([bernoulli(p.to(device), budget, generator) for _ in range(DRAWS)]).cpu()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("budget", [12, 30])
def test_within_the_budget_the_probabilities_are_those_asked_for(budget: int, device: str) -> None:
    p = torch.linspace(0, 1, 12)
    found = draws(p, budget, device)
    assert (found.float().mean(0) - p).abs().max() < 0.04
    assert not found[:, 0].any() and found[:, -1].all()


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_too_much_is_lost_at_random(device: str) -> None:
    p = torch.rand(16, generator=rng())
    p[3], p[8:] = 0.0, 1.0
    found = draws(p, 5, device)
    assert (found.sum(1) == 5).all() and not found[:, 3].any()  # at least eight are drawn
    certain = found[:, 8:].float().mean(0)
    assert (certain - certain.mean()).abs().max() < 0.04
    whole = torch.stack([(torch.rand(16, generator=rng(1 + k)) < p) for k in range(DRAWS)]).float()
    expected = (whole * 5 / whole.sum(1, keepdim=True)).mean(0)  # each of those drawn stays equally likely
    assert (found.float().mean(0) - expected).abs().max() < 0.04


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_may_flip(device: str) -> None:
    assert not bernoulli(torch.ones(3, device=device), 0, torch.Generator(device)).any()
