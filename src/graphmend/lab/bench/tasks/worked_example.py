"""The paper's example of two nodes that an attack makes the same: no model can tell them apart, other features can."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmend.lab.bench.run import Run
from graphmend.lab.bench.workspace import Workspace

__all__ = ["aggregated", "worked_example"]

NEIGHBOURS = ((0.3, 0.6), (0.3, 0.6, 0.7))
"""Features of the neighbours of the two nodes; they give the aggregated features of the paper, 0.45 and 0.53."""
INJECTED = 0.2
"""Feature of the neighbour that the attack gives to the second node."""
SLOPE, STEPS = 100.0, 500


def worked_example(run: Run, workspace: Workspace) -> dict[str, Any]:
    """Aggregated features, loss and errors on the clean and the attacked graph, then with the model adapted to the true
    labels of the attacked graph, and with the features adapted to them."""
    clean = [list(features) for features in NEIGHBOURS]
    attacked = [clean[0], [*clean[1], INJECTED]]
    y = torch.tensor([0.0, 1.0], dtype=torch.float64)
    weights = torch.tensor([SLOPE, -SLOPE * aggregated(_tensors(clean)).mean().item()], dtype=torch.float64)
    features = _tensors(attacked)
    adapted_weights, adapted_features = weights.clone().requires_grad_(), [f.clone().requires_grad_() for f in features]
    _descend(lambda: _loss(adapted_weights, features, y), [adapted_weights], lr=1.0)
    _descend(lambda: _loss(weights, adapted_features, y), adapted_features, lr=1e-3)
    cases = {
        "clean": (weights, _tensors(clean)),
        "attacked": (weights, features),
        "model": (adapted_weights.detach(), features),
        "data": (weights, [f.detach() for f in adapted_features]),
    }
    return {name: _measured(*case, y) for name, case in cases.items()}


def aggregated(features: list[Tensor]) -> Tensor:
    """The mean of the neighbours' features, one number per node."""
    return torch.stack([neighbours.mean() for neighbours in features])


def _tensors(features: list[list[float]]) -> list[Tensor]:
    return [torch.tensor(neighbours, dtype=torch.float64) for neighbours in features]


def _logits(weights: Tensor, features: list[Tensor]) -> Tensor:
    return weights[0] * aggregated(features) + weights[1]


def _loss(weights: Tensor, features: list[Tensor], y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(_logits(weights, features), y)


def _descend(loss: Any, variables: list[Tensor], lr: float) -> None:
    adam = torch.optim.Adam(variables, lr=lr)
    for _ in range(STEPS):
        for variable, gradient in zip(variables, torch.autograd.grad(loss(), variables), strict=True):
            variable.grad = gradient
        adam.step()


def _measured(weights: Tensor, features: list[Tensor], y: Tensor) -> dict[str, Any]:
    logits = _logits(weights, features)
    wrong = ((logits > 0) != (y > 0)).double().mean().item()
    return {
        "aggregated": aggregated(features).round(decimals=12).tolist(),
        "loss": F.binary_cross_entropy_with_logits(logits, y).item(),
        "error": 100 * wrong,
    }
