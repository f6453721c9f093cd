"""How trial runs of a model are compared: their gradients, and whether two outputs are the same but for rounding."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.data import Data

__all__ = ["is_close", "is_coarse", "precision", "slope"]


def slope(data: Data, run: Callable[[Data], Tensor]) -> Tensor:
    """The gradient of the squared output for the features; zeros where the model has none."""
    graph = copy.copy(data)
    with torch.enable_grad():
        x = data.x.detach().clone().requires_grad_()
        graph.x = x.clone()
        out = run(graph)
        grad = torch.autograd.grad(_sum_of_squares(out), x, allow_unused=True)[0] if out.requires_grad else None
    return torch.zeros_like(x) if grad is None else grad


def is_close(a: Tensor, b: Tensor) -> bool:
    """Whether two outputs agree to rounding; a model that mixes the views is off by far more."""
    tolerance = max(100 * torch.finfo(a.dtype).eps, 1e-8)
    return bool((a - b).abs().max() <= tolerance * max(float(a.abs().max()), 1e-6))


def precision(x: Tensor) -> torch.dtype:
    """The type in which a model computes with these features: their own, or a coarser one that autocast chooses."""
    kind: torch.dtype = x.dtype
    if torch.is_autocast_enabled(x.device.type):
        chosen = torch.get_autocast_dtype(x.device.type)
        return max(kind, chosen, key=lambda dtype: torch.finfo(dtype).eps)
    return kind


def is_coarse(kind: torch.dtype) -> bool:
    """Whether a type has half precision."""
    return torch.finfo(kind).eps > 1e-4


def _sum_of_squares(out: Tensor) -> Tensor:
    """In single precision at least: that of a hundred numbers may be too large for float16."""
    out = out.float() if is_coarse(out.dtype) else out
    return out.square().sum()
