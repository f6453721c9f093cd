r"""Features with a change of low rank, :math:`X + D R`, that are never written out unless somebody looks at them.

A product with a model's weights needs the small matrices only, :math:`(X + D R) W = X W + D (R W)`, and :math:`X W` is
known. Trying out many changes of the same graph then costs as much as its hidden layers, however wide the features are.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.shared_features import SharedFeatures

__all__ = ["changed_features"]


class _LowRankMaps(LinearMaps):
    """The products of :math:`X + D R`, from those of :math:`X`."""

    def __init__(self, base: LinearMaps, left: Tensor, right: Tensor) -> None:
        self.base, self.left, self.right = base, left, right
        self._whole: Tensor | None = None
        super().__init__(base.x)

    @property
    def x(self) -> Tensor:
        """The features, written out."""
        if self._whole is None:
            self._whole = torch.addmm(self.base.x, self.left, self.right)
        return self._whole

    @x.setter
    def x(self, value: Tensor) -> None:
        """The features of the base, which its constructor sets, are not those of the change."""

    @property
    def like(self) -> Tensor:
        """A tensor of the same shape, type and device."""
        return self.base.x

    def product(self, func: Callable[..., Tensor], *weights: Tensor) -> Tensor:
        """``func(x, *weights)``, where ``func`` is ``F.linear`` or ``torch.mm``."""
        first = weights[0].t() if func is F.linear else weights[0]
        return torch.addmm(self.base.product(func, *weights), self.left, self.right @ first)


def changed_features(base: LinearMaps, left: Tensor | None = None, right: Tensor | None = None) -> SharedFeatures:
    """Features for a model: those of ``base``, or those plus ``left @ right``."""
    if left is None or right is None:
        return SharedFeatures.of(base)
    return SharedFeatures.of(_LowRankMaps(base, left, right))
