"""Trained modules inside a loss, wherever the graph is."""

from __future__ import annotations

import copy
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

__all__ = ["FrozenModule"]

M = TypeVar("M", bound=nn.Module)


class FrozenModule(Generic[M]):
    """A frozen module, with copies for other devices and types.

    The copies are kept, because a recording on a GPU cannot copy from the CPU.

    Args:
        module: The trained module; from now on it is frozen.
    """

    def __init__(self, module: M) -> None:
        self.module = module.eval().requires_grad_(False)
        self._copies: dict[tuple[torch.device, torch.dtype], M] = {}

    def like(self, x: Tensor) -> M:
        """The module on the device and in the type of ``x``."""
        own = next(self.module.parameters())
        if (x.device, x.dtype) == (own.device, own.dtype):
            return self.module
        if (x.device, x.dtype) not in self._copies:
            self._copies[x.device, x.dtype] = copy.deepcopy(self.module).to(x.device, x.dtype)
        return self._copies[x.device, x.dtype]
