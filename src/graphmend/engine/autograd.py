"""Calling hand-written autograd functions, forward and backward, only where there is something to differentiate."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["apply", "asked_for"]


class _NoContext:
    """Stands in for the context of a function that will never go backward."""

    needs_input_grad = (False,) * 16

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep nothing."""

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """None of them is, here."""


def apply(function: Any, *args: Any) -> Any:
    """``function.apply(*args)``; without the cost of autograd where no argument wants a gradient.

    What is written by hand chooses its types by itself: nothing inside is cast automatically.
    """
    for kind in ("cpu", "cuda"):
        if torch.is_autocast_enabled(kind):
            with torch.autocast(kind, enabled=False):
                return apply(function, *args)
    if torch.is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in args):
        return function.apply(*args)
    return function.forward(_NoContext(), *args)


def asked_for(ctx: Any) -> list[bool]:
    """For which inputs somebody waits for a gradient in this very backward pass.

    ``ctx.needs_input_grad`` also names those that could have one: ``autograd.grad`` may ask for others only.
    """
    nodes = (node for node, _ in ctx.next_functions if node is not None)
    return [needs and _will_run(next(nodes)) for needs in ctx.needs_input_grad]


def _will_run(node: Any) -> bool:
    is_leaf = hasattr(node, "variable")  # of which the engine does not tell
    return is_leaf or torch._C._will_engine_execute_node(node)
