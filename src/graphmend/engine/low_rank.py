r"""Features with a change of low rank, :math:`X + D R`, that are written out only where their values are needed.

A product with a model's weights needs only the small matrices, :math:`(X + D R) W = X W + D (R W)`, and :math:`X W` is
known. Trying out many changes of the same graph then costs as much as its hidden layers, however wide the features are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.shared_features import SharedFeatures, as_tensor
from graphmend.scratch import is_active, large_empty

__all__ = ["Leaves", "changed_features", "leaves_of", "parts_of", "some_rows"]


class _LowRankMaps(LinearMaps):
    """The products of :math:`X + D R`, from those of :math:`X`."""

    def __init__(self, base: LinearMaps, left: Tensor | None = None, right: Tensor | None = None) -> None:
        self.base, self.left, self.right = base, left, right
        self._whole: Tensor | None = None
        super().__init__(base.x)

    @property
    def x(self) -> Tensor:
        """The features, written out."""
        if self._whole is None:
            self._whole = self.base.x
            if self.left is not None and self.right is not None:
                self._whole = _plus_product(self.base.x, self.left, self.right)
        return self._whole

    @x.setter
    def x(self, value: Tensor) -> None:
        """Ignore the constructor of the base class, which sets the features without the change."""

    @property
    def like(self) -> Tensor:
        """A tensor of the same shape, type and device."""
        return self.base.x

    @property
    def is_written_out(self) -> bool:
        """Whether the features were written out."""
        return self._whole is not None

    def product(self, func: Callable[..., Tensor], *weights: Tensor) -> Tensor:
        """``func(x, *weights)``, where ``func`` is ``F.linear`` or ``torch.mm``."""
        known = self.base.product(func, *weights)
        if self.left is None or self.right is None:
            return known
        change = self.right @ (weights[0].t() if func is F.linear else weights[0])
        return _plus_product(known, self.left, change)


class Leaves(_LowRankMaps):
    """The same products as variables, to differentiate for them: gradients stay as narrow as the products."""

    def __init__(self, base: LinearMaps, left: Tensor | None = None, right: Tensor | None = None) -> None:
        super().__init__(base, left, right)
        self._leaves: dict[Any, tuple[Tensor, Tensor]] = {}

    def product(self, func: Callable[..., Tensor], *weights: Tensor) -> Tensor:
        """The product as a variable."""
        key = (func, *(id(weight) for weight in weights))
        if key not in self._leaves:
            with torch.no_grad():
                out = super().product(func, *weights).detach().clone()
            back = weights[0] if func is F.linear else weights[0].t()
            self._leaves[key] = (out.requires_grad_(), back)
        return self._leaves[key][0]

    @property
    def features(self) -> SharedFeatures:
        """The features for a model to run on."""
        return SharedFeatures.of(self)

    @property
    def products(self) -> list[Tensor]:
        """All variables so far; empty if the features were written out, because their gradient would be lost."""
        return [] if self.is_written_out else [leaf for leaf, _ in self._leaves.values()]

    @property
    def weights(self) -> Tensor:
        """The weights of all products, one below the other, ``(widths, columns)``."""
        return torch.cat([self.like[:0], *(back for _, back in self._leaves.values())])


class _SomeRows(LinearMaps):
    """Some rows of the products that are variables."""

    def __init__(self, leaves: Leaves, rows: Tensor) -> None:
        self.leaves, self.rows = leaves, rows
        super().__init__(leaves.like[rows])

    @property
    def x(self) -> Tensor:
        """The features, written out, which the leaves notice."""
        return self.leaves.x[self.rows]

    @x.setter
    def x(self, value: Tensor) -> None:
        self._like = value

    @property
    def like(self) -> Tensor:
        """A tensor of the same shape, type and device."""
        return self._like

    def product(self, func: Callable[..., Tensor], *weights: Tensor) -> Tensor:
        """The rows of the product."""
        return self.leaves.product(func, *weights)[self.rows]


def leaves_of(x: Tensor) -> Leaves | None:
    """The variables that features stand for, if a gradient for them is wanted."""
    maps = x.maps if isinstance(x, SharedFeatures) else None
    return maps if isinstance(maps, Leaves) and torch.is_grad_enabled() else None


def some_rows(leaves: Leaves, rows: Tensor) -> SharedFeatures:
    """Some rows of features that stand for variables, for a model to run on."""
    return SharedFeatures.of(_SomeRows(leaves, rows))


def _plus_product(base: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """``base + left @ right``; a large one on the disk where gradients, which cannot be written there, are off."""
    if is_active() and not torch.is_grad_enabled():
        return torch.addmm(base, left, right, out=large_empty(tuple(base.shape), base))
    return torch.addmm(base, left, right)


def changed_features(base: LinearMaps, left: Tensor | None = None, right: Tensor | None = None) -> SharedFeatures:
    """Features for a model: those of ``base``, or those plus ``left @ right``."""
    return SharedFeatures.of(base if left is None or right is None else _LowRankMaps(base, left, right))


def parts_of(x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """Features, and the change of low rank on top of them that is not written out, if there is one."""
    maps = x.maps if isinstance(x, SharedFeatures) else None
    if not isinstance(maps, _LowRankMaps) or maps.is_written_out or maps.left is None or maps.right is None:
        return as_tensor(x), None
    return maps.base.x, (maps.left, maps.right)
