"""How the edge variables take a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class Update(Protocol):
    """Something that moves a tensor along its ``grad``, in place."""

    def step(self) -> object:
        """Take one step."""
        ...


class _Step:
    """``p <- p - lr * direction(grad)``."""

    def __init__(self, p: Tensor, lr: float, direction: Callable[[Tensor], Tensor]) -> None:
        self.p, self.lr, self.direction = p, lr, direction

    def step(self) -> None:
        assert self.p.grad is not None
        with torch.no_grad():
            self.p.sub_(self.lr * self.direction(self.p.grad))


def adam(p: Tensor, lr: float) -> Update:
    """One Adam whose moments persist over all steps."""
    return torch.optim.Adam([p], lr=lr)


def sign(p: Tensor, lr: float) -> Update:
    """The first step of a fresh Adam, every time: ``g / (|g| + 1e-8)``, as in the released code."""
    return _Step(p, lr, lambda g: g / (g.abs() + 1e-8))


def gradient(p: Tensor, lr: float) -> Update:
    """Plain projected gradient descent."""
    return _Step(p, lr, lambda g: g)


EDGE_UPDATES: dict[str, Callable[[Tensor, float], Update]] = {"adam": adam, "sign": sign, "gradient": gradient}
