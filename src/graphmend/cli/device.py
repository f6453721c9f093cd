"""The device that a command computes on, and graphs as a model takes them."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch_geometric.data import Data

from graphmend.errors import GraphMendError, require


def device_of(name: str) -> torch.device:
    """A device that exists."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise GraphMendError(f"unknown device {name!r}; use 'cpu' or 'cuda'") from error
    require(device.type in ("cpu", "cuda"), f"unknown device {name!r}; use 'cpu' or 'cuda'")
    if device.type == "cuda":
        count = torch.cuda.device_count()
        require((device.index or 0) < count, f"there is no device {name!r}, only {count} GPUs; use 'cpu'")
    return device


def for_model(data: Data, net: nn.Module, device: torch.device) -> Data:
    """A copy with the features in the model's floating-point type, all on one device."""
    out = copy.copy(data)
    kinds = {p.dtype for p in net.parameters() if p.is_floating_point()}
    if len(kinds) == 1:
        out.x = data.x.to(kinds.pop())
    return out.to(device)
