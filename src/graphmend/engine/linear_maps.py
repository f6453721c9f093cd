r"""The products of the features with constant matrices, each computed once while the features do not change.

Where the features require a gradient, every product is a leaf with a gradient of its own, as narrow as the product;
:class:`RowGradient` puts them together, a block of rows at a time, so that no gradient as large as the features exists.
When the features take a step, products with a model's parameters are computed again, a block of rows at a time while
the cache still holds it (:meth:`LinearMaps.refresh`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmend.engine.cache import cached
from graphmend.engine.tuning import MAX_KEPT_MAPS
from graphmend.scratch import ROWS, large_empty, row_ranges

__all__ = ["LinearMaps", "RowGradient"]


class RowGradient(NamedTuple):
    r"""A gradient for features, kept as narrow as the linear maps it came through: :math:`D S + G W`.

    :math:`G` holds the gradients for the outputs of all maps side by side, :math:`W` their weights one below the other,
    :math:`D` what reached the features directly. Either part may be missing. :math:`S` is diagonal, a factor for each
    column, and missing if all are 1; :math:`W` has its factors already.
    """

    direct: Tensor | None
    narrow: Tensor | None
    weights: Tensor | None
    scale: Tensor | None = None

    def times(self, scale: Tensor) -> RowGradient:
        """This gradient with every column multiplied by a number; nothing as large as the features is touched."""
        weights = None if self.weights is None else self.weights * scale
        return RowGradient(self.direct, self.narrow, weights, scale if self.scale is None else self.scale * scale)

    def rows(self, start: int, stop: int, out: Tensor) -> Tensor:
        """Some of its rows, in ``out`` or where they already are."""
        direct = None if self.direct is None else self.direct[start:stop]
        if self.narrow is None or self.weights is None:
            if direct is None:
                return out.zero_()
            return direct.contiguous() if self.scale is None else torch.mul(direct, self.scale, out=out)
        torch.mm(self.narrow[start:stop], self.weights, out=out)
        if direct is None:
            return out
        return out.add_(direct) if self.scale is None else out.addcmul_(direct, self.scale)


@dataclass
class _Map:
    out: Tensor
    version: int  #: of ``out`` when it was computed; writing into it raises the counter
    func: Callable[..., Tensor]
    weights: tuple[Tensor, ...]  #: kept so that no id is used again
    is_lasting: bool  #: whether the same weights will be asked for when the features have changed
    leaf: Tensor | None = None  #: ``out`` as a variable of the current loss

    @property
    def back(self) -> Tensor:
        """The matrix that turns gradients for the output into gradients for the features."""
        weight = self.weights[0]
        if self.func is F.linear:
            return weight
        return cached("turned", (weight,), lambda: weight.t().clone(memory_format=torch.contiguous_format))


class LinearMaps:
    """The features and their known products.

    Args:
        x: The features.
    """

    def __init__(self, x: Tensor) -> None:
        self.x = x
        self._maps: dict[Any, _Map] = {}

    @property
    def like(self) -> Tensor:
        """A tensor of the features' shape, type and device."""
        return self.x

    @property
    def is_used(self) -> bool:
        """Whether anybody has asked for a product."""
        return bool(self._maps)

    def product(self, func: Callable[..., Tensor], *weights: Tensor) -> Tensor:
        """``func(x, *weights)``, where ``func`` is ``F.linear`` or ``torch.mm``."""
        kind = self.x.device.type
        cast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        key = (func, cast, *((id(w), w._version) for w in weights))
        entry = self._maps.get(key)
        if entry is None or entry.out._version != entry.version:
            with torch.no_grad():
                out = _product(func, self.x, *weights)
            is_lasting = cast is None and all(type(w) is nn.Parameter for w in weights)
            entry = self._maps[key] = _Map(out, out._version, func, weights, is_lasting)
        if torch.is_grad_enabled() and self.x.requires_grad:
            if entry.leaf is None:
                entry.leaf = entry.out.detach().requires_grad_()
            return entry.leaf
        if len(self._maps) > MAX_KEPT_MAPS:
            self._maps = {k: m for k, m in self._maps.items() if m.leaf is not None or k == key}
        return entry.out

    def begin_loss(self) -> None:
        """Forget the variables of the last loss."""
        for entry in self._maps.values():
            entry.leaf = None

    def gradient(self, loss: Tensor, *, retain_graph: bool = False) -> RowGradient:
        """The gradient of a loss for the features."""
        used = {key: entry for key, entry in self._maps.items() if entry.leaf is not None}
        leaves = [entry.leaf for entry in used.values() if entry.leaf is not None]
        direct, *narrow = torch.autograd.grad(loss, [self.x, *leaves], allow_unused=True, retain_graph=retain_graph)
        dtype, parts = self.x.dtype, []  # under autocast the products have another type
        for entry, grad in zip(used.values(), narrow, strict=True):
            if grad is not None:
                parts.append((grad.to(dtype), entry.back))
        self._maps = used
        if not parts:
            return RowGradient(direct, None, None)
        if len(parts) == 1:
            return RowGradient(direct, *parts[0])
        grads, backs = zip(*parts, strict=True)
        return RowGradient(direct, torch.cat(grads, dim=1), torch.cat(backs))

    def refresh(self, start: int, stop: int) -> None:
        """Compute the products of some rows again, in place: the features have changed there."""
        self._maps = {key: entry for key, entry in self._maps.items() if entry.is_lasting}
        with torch.no_grad(), torch.autocast(self.x.device.type, enabled=False):
            for entry in self._maps.values():
                entry.out[start:stop] = entry.func(self.x[start:stop], *entry.weights)
                entry.version = entry.out._version

    def clear(self) -> None:
        """Forget all products: the features have changed."""
        self._maps.clear()


def _product(func: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``func(x, weight, bias)``; of many rows some at a time."""
    more = () if bias is None else (bias,)
    if x.numel() <= ROWS or x.device.type != "cpu" or x.dtype != weight.dtype:
        return func(x, weight, *more)
    out = large_empty((x.size(0), weight.size(0 if func is F.linear else 1)), x)
    for rows in row_ranges(x.size(0), x.size(1)):
        out[rows] = func(x[rows], weight, *more)
    return out
