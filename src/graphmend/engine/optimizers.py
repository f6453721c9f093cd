"""How features and edge variables take a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from graphmend.engine.shared_features import RowGradient

BLOCK = {"cpu": 1 << 20, "cuda": 1 << 22}  # numbers in a block: what a cache holds, what keeps a GPU busy


class FeatureAdam:
    """Adam on the features, a block of rows at a time: there is never a gradient as large as they are.

    Args:
        x: The features, changed in place.
        lr: Learning rate.
    """

    def __init__(self, x: Tensor, lr: float) -> None:
        self.x, self.lr = x, lr
        # Zeros; on a CPU the first step writes them, into its cache (a recording would write them at every step).
        self.has_moments = x.device.type != "cpu"
        make = torch.zeros_like if self.has_moments else torch.empty_like
        self.mean, self.square = make(x), make(x)
        self.steps = torch.zeros((), device=x.device)
        self.size = min(max(1, BLOCK.get(x.device.type, BLOCK["cpu"]) // x.size(1)), x.size(0))
        self.block = torch.empty_like(x[: self.size])

    @torch.no_grad()
    def step(self, gradient: RowGradient, renew: Callable[[int, int], None] | None = None) -> Tensor:
        """Take one step; the norm of the gradient.

        ``renew(start, stop)`` is called when those rows have their new values, which the cache then still holds.
        """
        self.steps += 1
        norms = []
        for start in range(0, self.x.size(0), self.size):
            stop = min(start + self.size, self.x.size(0))
            grad = gradient.rows(start, stop, out=self.block[: stop - start])
            if grad.is_cuda:  # it is there, and to read it once more costs nothing
                norms.append(torch.linalg.vector_norm(grad))
            x, mean, square = (tensor[start:stop] for tensor in (self.x, self.mean, self.square))
            if not self.has_moments:
                mean.zero_()
                square.zero_()
            _adam(x, grad, mean, square, self.steps, self.lr)
            if renew is not None:
                renew(start, stop)
        self.has_moments = True
        if not norms:
            return gradient.norm()
        return norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))  # type: ignore[no-any-return]


def _adam(p: Tensor, grad: Tensor, mean: Tensor, square: Tensor, steps: Tensor, lr: float) -> None:
    torch._fused_adam_(
        [p],
        [grad],
        [mean],
        [square],
        [],
        [steps],
        lr=lr,
        beta1=0.9,
        beta2=0.999,
        weight_decay=0.0,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )


class Update(Protocol):
    """Something that moves a tensor along a gradient, in place."""

    def __call__(self, grad: Tensor) -> None:
        """Take one step."""
        ...


class Adam:
    """One Adam whose moments persist over all steps."""

    def __init__(self, p: Tensor, lr: float) -> None:
        self.p, self.lr = p, lr
        self.mean, self.square = torch.zeros_like(p), torch.zeros_like(p)
        self.steps = torch.zeros((), device=p.device)

    @torch.no_grad()
    def __call__(self, grad: Tensor) -> None:
        """Take one step."""
        self.steps += 1
        _adam(self.p, grad, self.mean, self.square, self.steps, self.lr)


@dataclass
class Sign:
    """The first step of a fresh Adam, every time: ``g / (|g| + 1e-8)``, as in the released code."""

    p: Tensor
    lr: float

    @torch.no_grad()
    def __call__(self, grad: Tensor) -> None:
        """Take one step."""
        self.p.sub_(self.lr * (grad / (grad.abs() + 1e-8)))


@dataclass
class Gradient:
    """Plain projected gradient descent."""

    p: Tensor
    lr: float

    @torch.no_grad()
    def __call__(self, grad: Tensor) -> None:
        """Take one step."""
        self.p.sub_(self.lr * grad)


EDGE_UPDATES: dict[str, Callable[[Tensor, float], Update]] = {"adam": Adam, "sign": Sign, "gradient": Gradient}
