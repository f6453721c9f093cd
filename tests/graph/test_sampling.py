"""Bernoulli draws under a budget, on every device."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from graphmend.graph.budget import RECORDABLE, samples
from graphs import DEVICES, rng

DRAWS = 4000


def draws(p: torch.Tensor, budget: int, device: str) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(0)
    return torch.stack(list(samples(p.to(device), budget, DRAWS, generator))).cpu()


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
def test_none_and_nothing(device: str) -> None:
    p, generator = torch.ones(3, device=device), torch.Generator(device)
    assert list(samples(p, 2, 0, generator)) == []
    assert [int(flips.sum()) for flips in samples(p, 0, 4, generator)] == [0, 0, 0, 0]
    assert [flips.shape for flips in samples(p[:0], 0, 2, generator)] == [(0,), (0,)]


ASKED = """
import torch
from graphmend.graph.budget import samples
p, generator = torch.rand(50, device="cuda"), torch.Generator("cuda")
torch.cuda.set_sync_debug_mode("error")
list(samples(p, 5, 3, generator))
"""


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_gpu_is_not_asked() -> None:
    assert RECORDABLE > 3 * 50
    subprocess.run([sys.executable, "-c", ASKED], check=True, timeout=120)  # its mode would stay on for others
