"""Calling hand-written autograd functions only where there is something to differentiate."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["apply"]


class _NoContext:
    """Stands in for the context of a function that will never go backward."""

    needs_input_grad = (False,) * 16

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep nothing."""


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
