"""How features and edge variables take a step, in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from graphmend.engine.linear_maps import RowGradient
from graphmend.engine.memory import empty_like
from graphmend.engine.tuning import STEP_NUMBERS

__all__ = ["EDGE_UPDATES", "Adam", "EdgeStep", "FeatureStep", "Update", "plain_gradient", "sign", "sign_step"]


class FeatureStep:
    r"""Adam on the features, a block of rows at a time: there is never a gradient as large as they are.

    With a ``scale`` s per column, it is Adam on V in :math:`X' = X + V \operatorname{diag}(s)`. V is never stored: its
    gradient is :math:`\nabla_{X'} \operatorname{diag}(s)`, and what Adam would add to V is added to X' times s.
    A column of the scale 0 stays as it is.

    Args:
        x: The features, changed in place.
        lr: Learning rate.
        project: Brings the features back into their limits, in place; ``None`` if there are none.
        scale: The size of a unit step in each column, such as
            :func:`~graphmend.engine.columns.column_deviations`; ``None`` for 1 everywhere.
    """

    kind = "feature"

    def __init__(
        self,
        x: Tensor,
        lr: float,
        project: Callable[[Tensor], None] | None = None,
        scale: Tensor | None = None,
    ) -> None:
        self.variable, self.lr, self.project, self.scale = x, lr, project, scale
        self.mean, self.square = empty_like(x).zero_(), empty_like(x).zero_()
        self.steps = torch.zeros((), device=x.device)
        numbers = STEP_NUMBERS.get(x.device.type, STEP_NUMBERS["cpu"])
        numbers = numbers if scale is None else numbers // 2  # two blocks fit into the space of one
        self.size = min(max(1, numbers // x.size(1)), x.size(0))
        self.block = torch.empty_like(x[: self.size])
        self.change = None if scale is None else torch.empty_like(self.block)

    @torch.no_grad()
    def take(self, gradient: RowGradient, after_block: Callable[[int, int], None] | None = None) -> Tensor:
        """Take one step; the norm of the gradient, for V if there is a scale.

        ``after_block(start, stop)`` is called when those rows have their final values, which the cache still holds.
        """
        self.steps += 1
        gradient = gradient if self.scale is None else gradient.times(self.scale)
        squares = []
        for start in range(0, self.variable.size(0), self.size):
            stop = min(start + self.size, self.variable.size(0))
            grad = gradient.rows(start, stop, out=self.block[: stop - start])
            squares.append(_squared_norm(grad))
            x, mean, square = (tensor[start:stop] for tensor in (self.variable, self.mean, self.square))
            if self.scale is None or self.change is None:
                _adam(x, grad, mean, square, self.steps, self.lr)
            else:
                change = self.change[: stop - start].zero_()
                _adam(change, grad, mean, square, self.steps, self.lr)
                x.addcmul_(change, self.scale)
            if after_block is not None:
                after_block(start, stop)
        if self.project is not None:
            self.project(self.variable)
        return torch.stack(squares).sum().sqrt()


def _squared_norm(grad: Tensor) -> Tensor:
    """A dot product, which on a CPU is several times faster than ``vector_norm``."""
    flat = grad.reshape(-1)
    return torch.dot(flat, flat)


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
        self.mean, self.square = empty_like(p).zero_(), empty_like(p).zero_()
        self.steps = torch.zeros((), device=p.device)

    def __call__(self, grad: Tensor) -> None:
        """Take one step."""
        self.steps += 1
        _adam(self.p, grad.contiguous(), self.mean, self.square, self.steps, self.lr)


def sign_step(grad: Tensor, lr: float) -> Tensor:
    r"""The first step of a fresh Adam, every time: :math:`\text{lr} \cdot g / (|g| + 10^{-8})`."""
    return lr * (grad / (grad.abs() + 1e-8))


def sign(p: Tensor, lr: float) -> Update:
    """A fresh Adam at every step, as in the released code."""

    def update(grad: Tensor) -> None:
        p.sub_(sign_step(grad, lr))

    return update


def plain_gradient(p: Tensor, lr: float) -> Update:
    """Plain gradient descent."""

    def update(grad: Tensor) -> None:
        p.sub_(lr * grad)

    return update


EDGE_UPDATES: dict[str, Callable[[Tensor, float], Update]] = {"adam": Adam, "sign": sign, "gradient": plain_gradient}


class EdgeStep:
    """A step of the edge variables, followed by the projection onto the budget.

    Args:
        p: The variables, changed in place.
        update: How they move along the gradient.
        project: The projection.
    """

    kind = "edge"

    def __init__(self, p: Tensor, update: Update, project: Callable[[Tensor], Tensor]) -> None:
        self.variable, self.update, self.project = p, update, project

    @torch.no_grad()
    def take(self, gradient: Tensor) -> Tensor:
        """Take one step; the norm of the gradient."""
        self.update(gradient)
        self.variable.copy_(self.project(self.variable.detach()))
        return _squared_norm(gradient).sqrt()
