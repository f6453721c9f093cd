r"""Features whose linear maps are shared: :math:`X'W` is computed once for all views of a graph.

The three embeddings of one loss begin with the same product, of :math:`X'` with the model's first weights: the graph
itself and a view with fewer edges have the same features, and the shuffled graph has the same rows in another order,
:math:`(P X') W = P (X' W)`. :class:`Rows` is a tensor that knows this. A model sees an ordinary feature matrix; its
linear maps are looked up, and whatever else it does with the features works on the real ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

__all__ = ["Rows", "materialised"]

_PROPERTIES = {
    getattr(Tensor, name).__get__
    for name in ("shape", "dtype", "device", "ndim", "requires_grad", "layout", "is_cuda", "is_sparse", "is_leaf")
} | {Tensor.size, Tensor.dim, Tensor.numel, Tensor.is_floating_point, Tensor.element_size, Tensor.__len__}
_PRODUCTS = {torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__}


class Rows(Tensor):
    """All rows of a feature matrix, in their own or another order, with the linear maps that are already known.

    Args:
        x: The feature matrix.
        order: Which row stands where, or ``None`` for their own order.
        known: Linear maps of ``x``, by the identity of their weights; shared with all others made from this one.
    """

    _x: Tensor
    _order: Tensor | None
    _known: dict[Any, tuple[Any, Tensor]]

    @classmethod
    def of(cls, x: Tensor, order: Tensor | None = None, known: dict[Any, Any] | None = None) -> Rows:
        """See the class."""
        self: Rows = _Wrap.apply(x, order)  # type: ignore[no-untyped-call]
        self._x, self._order, self._known = x, order, {} if known is None else known
        return self

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look linear maps up; everything else works on the real features."""
        if args and isinstance(args[0], Rows):
            rows, *rest = args
            if func in _PROPERTIES:
                return func(rows._x, *rest)
            if not kwargs and func is F.linear and _are_constant(rest):
                return rows._linear(func, *rest)
            if not kwargs and func in _PRODUCTS and rest[0].dim() == 2 and _are_constant(rest):
                return rows._linear(torch.mm, *rest)
            if not kwargs and func is Tensor.index_select and rest[0] == 0 and rows._may_become(rest[1]):
                return Rows.of(rows._x, rest[1], rows._known)
            if func is F.dropout and not (kwargs or {}).get("training", rest[1] if len(rest) > 1 else True):
                return rows
        return func(*tree_map_only(Rows, materialised, args), **tree_map_only(Rows, materialised, kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """What compiled code and custom functions do; their gradient arrives at :class:`_Wrap`."""
        return func(*tree_map_only(Rows, materialised, args), **tree_map_only(Rows, materialised, kwargs or {}))

    def _may_become(self, order: Tensor) -> bool:
        return self._order is None and order.numel() == self._x.size(0)

    def _linear(self, func: Callable[..., Tensor], *weights: Tensor | None) -> Tensor:
        key = (func, torch.is_grad_enabled(), *map(id, weights))
        if key not in self._known:
            self._known[key] = (weights, func(self._x, *weights))  # with the weights, so that no id comes again
        out = self._known[key][1]
        return out if self._order is None else out.index_select(0, self._order)


class _Wrap(torch.autograd.Function):
    """A tensor by name only, nothing is allocated; gradients that reach it directly go on to the features."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor | None) -> Tensor:
        ctx.order = order
        make: Any = Tensor._make_wrapper_subclass
        out: Tensor = make(Rows, x.shape, dtype=x.dtype, device=x.device)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad if ctx.order is None else torch.zeros_like(grad).index_add(0, ctx.order, grad), None


def _are_constant(weights: list[Any]) -> bool:
    grad = torch.is_grad_enabled()
    return all(w is None or (type(w) in (Tensor, nn.Parameter) and not (grad and w.requires_grad)) for w in weights)


def materialised(x: Tensor) -> Tensor:
    """An ordinary tensor with the same values."""
    if not isinstance(x, Rows):
        return x
    if x._order is None:
        return x._x
    return x._x.index_select(0, x._order)
