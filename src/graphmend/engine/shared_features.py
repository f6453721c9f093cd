r"""Features whose linear maps are shared: :math:`X'W` is computed once for all views of a graph.

The embeddings of one loss begin with the same product, of :math:`X'` with the model's first weights: the graph itself
and a view with fewer edges have the same features, a shuffled graph has the same rows in another order,
:math:`(P X') W = P (X' W)`, and a graph with blanked nodes has scaled rows, :math:`(D X') W = D (X' W)`.
:class:`SharedFeatures` is a tensor that knows this. A model sees an ordinary feature matrix; its linear maps are looked
up in :class:`LinearMaps`, and whatever else it does with the features works on the real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from graphmend.engine.autograd import apply, inverse_permutation, permuted
from graphmend.engine.linear_maps import LinearMaps

__all__ = ["METADATA", "SharedFeatures", "as_tensor", "placeholder", "scaled_rows", "shuffled", "stacked"]

METADATA = {
    getattr(Tensor, name).__get__
    for name in ("shape", "dtype", "device", "ndim", "requires_grad", "layout", "is_cuda", "is_sparse", "is_leaf")
} | {Tensor.size, Tensor.dim, Tensor.numel, Tensor.is_floating_point, Tensor.element_size, Tensor.__len__}
"""Properties of a tensor that do not depend on its values."""

PRODUCTS = {torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__}


class _View(NamedTuple):
    """Rows of the features in some order, each times a factor."""

    order: Tensor | None = None
    factor: Tensor | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the rows are as they are."""
        return self.order is None and self.factor is None

    def of(self, x: Tensor) -> Tensor:
        """The rows of ``x`` as this view has them."""
        x = x if self.order is None else permuted(x, self.order)
        return x if self.factor is None else x * self.factor

    def gradient(self, grad: Tensor) -> Tensor:
        """The gradient for the rows in their own order."""
        grad = grad if self.factor is None else grad * self.factor
        return grad if self.order is None else grad.index_select(0, inverse_permutation(self.order))


class SharedFeatures(Tensor):
    """One or several views of a feature matrix, one below the other, with the linear maps that are already known."""

    _maps: LinearMaps
    _views: tuple[_View, ...]

    @classmethod
    def of(cls, maps: LinearMaps, views: tuple[_View, ...] = (_View(),)) -> SharedFeatures:
        """All rows of the features in their own order; nothing is copied."""
        differentiable = maps.like.requires_grad and torch.is_grad_enabled()
        make: Any = _Wrap.apply if differentiable else _features
        self: SharedFeatures = make(maps.like, views)
        self._maps, self._views = maps, views
        return self

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look linear maps up; everything else works on the real features."""
        kwargs = kwargs or {}
        if args and isinstance(args[0], SharedFeatures):
            features, *rest = args
            if func in METADATA:
                with torch._C.DisableTorchFunctionSubclass():
                    return func(*args, **kwargs)
            if not kwargs and func is F.linear and features._may_share(rest):
                return features._linear(func, *rest)
            if not kwargs and func in PRODUCTS and features._may_share(rest):
                return features._linear(torch.mm, *rest)
            if func is Tensor.contiguous or (func is F.dropout and not _is_training(rest, kwargs)):
                return features
        return func(*tree_map_only(SharedFeatures, as_tensor, args), **tree_map_only(SharedFeatures, as_tensor, kwargs))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Compiled code and custom functions work on the real features; their gradient arrives at :class:`_Wrap`."""
        args, kwargs = (tree_map_only(SharedFeatures, as_tensor, part) for part in (args, kwargs or {}))
        return func(*args, **kwargs)

    @property
    def maps(self) -> LinearMaps | None:
        """The linear maps of the features, if these are all rows in their own order."""
        return self._maps if self._is_whole else None

    @property
    def _is_whole(self) -> bool:
        return len(self._views) == 1 and self._views[0].is_whole

    def _may_share(self, weights: list[Any]) -> bool:
        """Whether the weights are constants of the features' type, the first a matrix."""
        grad, dtype = torch.is_grad_enabled(), self._maps.like.dtype
        first, *others = weights
        return (
            type(first) in (Tensor, nn.Parameter)
            and first.dim() == 2
            and all(w is None or type(w) in (Tensor, nn.Parameter) for w in others)
            and all(w is None or (w.dtype == dtype and not (grad and w.requires_grad)) for w in weights)
        )

    def _linear(self, func: Callable[..., Tensor], weight: Tensor, bias: Tensor | None = None) -> Tensor:
        is_scaled = any(view.factor is not None for view in self._views)  # a bias is added after the factor
        extra = () if bias is None or is_scaled else (bias,)
        out = self._maps.product(func, weight, *extra)
        if not self._is_whole:
            out = apply(_Stack, out, self._views)
        return out + bias if bias is not None and is_scaled else out


def _is_training(arguments: list[Any], kwargs: dict[str, Any]) -> bool:
    """The ``training`` argument of ``F.dropout``."""
    return bool(kwargs.get("training", arguments[1] if len(arguments) > 1 else True))


def shuffled(x: Tensor, order: Tensor) -> Tensor:
    """``x[order]`` for an order in which every row occurs once; shared features stay shared."""
    if isinstance(x, SharedFeatures) and x._is_whole:
        return SharedFeatures.of(x._maps, (_View(order),))
    return permuted(as_tensor(x), order)


def scaled_rows(x: Tensor, factor: Tensor) -> Tensor:
    """``x * factor`` for one constant factor per row, ``(N, 1)``; shared features stay shared."""
    if isinstance(x, SharedFeatures) and len(x._views) == 1 and x._views[0].factor is None:
        return SharedFeatures.of(x._maps, (x._views[0]._replace(factor=factor),))
    return as_tensor(x) * factor


def stacked(matrices: Sequence[Tensor]) -> Tensor:
    """Matrices one below the other; views of the same shared features stay shared."""
    shared = [x for x in matrices if isinstance(x, SharedFeatures)]
    if len(shared) == len(matrices) and all(x._maps is shared[0]._maps for x in shared):
        return SharedFeatures.of(shared[0]._maps, tuple(view for x in shared for view in x._views))
    return torch.cat([as_tensor(x) for x in matrices])


def as_tensor(x: Tensor) -> Tensor:
    """An ordinary tensor with the same values."""
    if not isinstance(x, SharedFeatures):
        return x
    parts = [view.of(x._maps.x) for view in x._views]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


class _Stack(torch.autograd.Function):
    """Views of one matrix, one below the other; their gradients add up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, views: tuple[_View, ...]) -> Tensor:
        ctx.views = views
        parts = [view.of(x) for view in views]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        first, *others = (view.gradient(part) for view, part in zip(ctx.views, grad.chunk(len(ctx.views)), strict=True))
        for other in others:
            first = first + other
        return first, None


class _Wrap(torch.autograd.Function):
    """A tensor without values; gradients that reach it directly go on to the features."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, views: tuple[_View, ...]) -> Tensor:
        ctx.views = views
        return _features(x, views)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Stack.backward(ctx, grad)


def _features(x: Tensor, views: tuple[_View, ...]) -> Tensor:
    return placeholder(SharedFeatures, x, len(views) * x.size(0))


def placeholder(kind: type[Tensor], x: Tensor, rows: int) -> Tensor:
    """A tensor of a class of its own with a given number of rows like those of ``x``; nothing is allocated."""
    make: Any = Tensor._make_wrapper_subclass
    out: Tensor = make(kind, (rows, *x.shape[1:]), dtype=x.dtype, device=x.device)
    return out
