"""Theorem 1: the bound on the Hessian holds, and so no step below the theorem's bound fails to lower the loss."""

from __future__ import annotations

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmend.lab.bench.store import Run, Store
from graphmend.lab.bench.tasks.theory import Linearised, hessian_bound, step_bound
from graphmend.lab.bench.workspace import Workspace

RING = torch.stack([torch.arange(5), torch.arange(5).roll(1)])
EDGES = torch.cat([RING, RING.flip(0)], dim=1)


def test_no_hessian_exceeds_its_bound() -> None:
    torch.manual_seed(0)
    model, y = Linearised(2, 3, 3).double().requires_grad_(False), torch.tensor([0, 1, 2, 1, 0])

    def loss(x: Tensor) -> Tensor:
        return F.cross_entropy(model(x.view(5, 2), EDGES), y)

    bound = hessian_bound(model, 5)
    for scale in (0.0, 0.1, 1.0, 10.0):
        hessian = torch.autograd.functional.hessian(loss, scale * torch.randn(10, dtype=torch.float64))
        assert torch.linalg.matrix_norm(hessian, 2).item() <= bound


def test_the_bound_is_the_formula() -> None:
    """One column, one dimension, two classes: W1 = 2 and W2 = (3, -3), so the norm of their product is 6 sqrt(2)."""
    model = Linearised(1, 1, 2).double().requires_grad_(False)
    model.first.lin.weight.fill_(2.0)
    model.last.lin.weight.copy_(torch.tensor([[3.0], [-3.0]]))
    assert math.isclose(hessian_bound(model, 5), 72 / 10)


def test_every_step_below_the_bound_lowers_the_loss_and_far_above_it_some_do_not(tmp_path: Path) -> None:
    run = Run("step_bound", {"graphs": 60, "multiples": [0.01, 0.999, 100.0], "seed": 3})
    found = step_bound(run, Workspace(Store(tmp_path), torch.device("cpu")))
    assert found["positive"]["graphs"] + found["negative"]["graphs"] == 60 and found["positive"]["graphs"] > 10
    shares = found["positive"]["not_lower"]
    assert shares["0.01"] == shares["0.999"] == 0.0 < shares["100.0"]
    assert set(found["negative"]["not_lower"].values()) == {100.0}  # the loss is convex in the features
