"""Calling hand-written autograd functions, and permutations whose gradient is as fast as they are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["apply", "inverse_permutation", "needed_gradients", "permuted"]


class _NoContext:
    """Takes the place of the context of a function that is never differentiated."""

    needs_input_grad = (False,) * 16

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep nothing."""


def apply(function: Any, *args: Any) -> Any:
    """``function.apply(*args)``, without the cost of autograd where no argument requires a gradient.

    Hand-written functions choose their types themselves, so nothing inside is cast automatically.
    """
    for kind in ("cpu", "cuda"):
        if torch.is_autocast_enabled(kind):
            with torch.autocast(kind, enabled=False):
                return apply(function, *args)
    if torch.is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in args):
        return function.apply(*args)
    return function.forward(_NoContext(), *args)


def needed_gradients(ctx: Any) -> list[bool]:
    """The inputs for which the current backward pass needs a gradient.

    ``ctx.needs_input_grad`` also names inputs that could have one even if ``autograd.grad`` only asks for others.
    """
    nodes = (node for node, _ in ctx.next_functions if node is not None)
    return [needs and _will_run(next(nodes)) for needs in ctx.needs_input_grad]


def _will_run(node: Any) -> bool:
    is_leaf = hasattr(node, "variable")  # autograd does not say for leaves
    return is_leaf or torch._C._will_engine_execute_node(node)


def permuted(x: Tensor, order: Tensor, inverse: Tensor | None = None) -> Tensor:
    """``x[order]`` for an order in which every row occurs once; ``inverse`` is the inverse order, if it is known."""
    if not (x.requires_grad and torch.is_grad_enabled()):
        return x.index_select(0, order)
    out: Tensor = apply(_Permute, x, order, inverse)
    return out


def inverse_permutation(order: Tensor) -> Tensor:
    """Where each row went."""
    places = torch.arange(order.numel(), dtype=order.dtype, device=order.device)
    return torch.empty_like(order).scatter_(0, order.long(), places)


class _Permute(torch.autograd.Function):
    """The gradient is a gather, too; that of ``index_select`` would scatter and add up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor | None) -> Tensor:
        ctx.save_for_backward(order, inverse)
        return x.index_select(0, order)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        order, inverse = ctx.saved_tensors
        return grad.index_select(0, inverse_permutation(order) if inverse is None else inverse), None, None
