"""How features and edge variables take a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from graphmend.rows import RowGradient

BLOCK = {"cpu": 1 << 20, "cuda": 1 << 22}  # numbers in a block: what a cache holds, what keeps a GPU busy


class FeatureAdam:
    """Adam on the features, a block of rows at a time: there is never a gradient as large as they are.

    Args:
        x: The features, changed in place.
        lr: Learning rate.
    """

    def __init__(self, x: Tensor, lr: float) -> None:
        self.x, self.lr = x, lr
        self.mean, self.square = torch.zeros_like(x), torch.zeros_like(x)
        self.steps = torch.zeros((), device=x.device)
        self.size = min(max(1, BLOCK.get(x.device.type, BLOCK["cpu"]) // x.size(1)), x.size(0))
        self.block = torch.empty_like(x[: self.size])

    @torch.no_grad()
    def step(self, gradient: RowGradient) -> Tensor:
        """Take one step; the norm of the gradient."""
        self.steps += 1
        norms = []
        for start in range(0, self.x.size(0), self.size):
            stop = min(start + self.size, self.x.size(0))
            grad = gradient.rows(start, stop, out=self.block[: stop - start])
            if grad.is_cuda:  # it is there, and to read it once more costs nothing
                norms.append(torch.linalg.vector_norm(grad))
            torch._fused_adam_(
                [self.x[start:stop]],
                [grad],
                [self.mean[start:stop]],
                [self.square[start:stop]],
                [],
                [self.steps],
                lr=self.lr,
                beta1=0.9,
                beta2=0.999,
                weight_decay=0.0,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )
        if not norms:
            return gradient.norm()
        return norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))  # type: ignore[no-any-return]


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
