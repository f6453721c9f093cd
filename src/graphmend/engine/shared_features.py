r"""Features whose linear maps are shared: :math:`X'W` is computed once for all views of a graph.

The three embeddings of one loss begin with the same product, of :math:`X'` with the model's first weights: the graph
itself and a view with fewer edges have the same features, and the shuffled graph has the same rows in another order,
:math:`(P X') W = P (X' W)`. :class:`Rows` is a tensor that knows this. A model sees an ordinary feature matrix; its
linear maps are looked up, and whatever else it does with the features works on the real ones.

When the features take a step, maps by a model's parameters are computed again, a block of rows at a time
(:meth:`Rows.renew`), and handed on to the next :class:`Rows`. Nobody else may write into maps: one that was written to
is computed anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils._pytree import tree_map_only

from graphmend.engine.autograd import apply
from graphmend.engine.cache import remembered

__all__ = ["RowGradient", "Rows", "materialised", "permuted"]

PROPERTIES = {
    getattr(Tensor, name).__get__
    for name in ("shape", "dtype", "device", "ndim", "requires_grad", "layout", "is_cuda", "is_sparse", "is_leaf")
} | {Tensor.size, Tensor.dim, Tensor.numel, Tensor.is_floating_point, Tensor.element_size, Tensor.__len__}
PRODUCTS = {torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__}


MANY = 16  # linear maps that are kept where no gradient needs them


class _Map(NamedTuple):
    out: Tensor
    version: int  #: of ``out`` as it was computed
    back: Tensor  #: gradients times this are gradients for the features
    func: Callable[..., Tensor]
    weights: tuple[Tensor | None, ...]  #: kept so that no id comes again
    lasts: bool  #: whether the same weights will be asked for when the features have changed

    def is_as_computed(self) -> bool:
        """Whether nobody has written into it."""
        return self.out._version == self.version


class RowGradient(NamedTuple):
    r"""A gradient for features, kept as narrow as the linear maps it came through: :math:`D + G W`.

    :math:`G` holds the gradients for the outputs of all maps side by side, :math:`W` their weights one below the other,
    :math:`D` what reached the features directly, if anything did.
    """

    x: Tensor
    direct: Tensor | None
    grad: Tensor
    back: Tensor

    def norm(self) -> Tensor:
        """Its Frobenius norm; that of the product alone is had without it, from two small Gram matrices."""
        if self.direct is None:
            back = remembered("gram", (self.back,), lambda: (self.back @ self.back.t()).double().view(-1))
            squared = torch.dot((self.grad.t() @ self.grad).double().view(-1), back)
            return squared.clamp_(min=0.0).sqrt_().to(self.x.dtype)
        blocks = (self.rows(start, start + 4096) for start in range(0, self.x.size(0), 4096))
        norm: Tensor = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(block) for block in blocks]))
        return norm

    def rows(self, start: int, stop: int, out: Tensor | None = None) -> Tensor:
        """Some of its rows, in ``out`` if given."""
        out = torch.empty_like(self.x[start:stop]) if out is None else out
        torch.mm(self.grad[start:stop], self.back, out=out)
        return out if self.direct is None else out.add_(self.direct[start:stop])


class Rows(Tensor):
    """All rows of a feature matrix, in their own or another order, with the linear maps that are already known.

    If the features want a gradient, every linear map is a leaf with a gradient of its own, as narrow as the map, and
    :meth:`gradient` puts them together.
    """

    _x: Tensor
    _order: Tensor | None
    _known: dict[tuple[bool | None, Any], _Map]  #: if it wants a gradient (None: nobody has it yet), and what it is

    @classmethod
    def of(cls, x: Tensor, like: Rows | None = None) -> Rows:
        """The rows of ``x`` in their own order; ``like`` are the same rows, whose maps by parameters are known then."""
        known: dict[tuple[bool | None, Any], _Map] = {}
        for (_, what), found in () if like is None else like._known.items():
            if found.lasts and found.is_as_computed():
                known[None, what] = found._replace(out=found.out.detach())
        return cls._make(x, None, known)

    @classmethod
    def _make(cls, x: Tensor, order: Tensor | None, known: dict[tuple[bool | None, Any], _Map]) -> Rows:
        differentiable = x.requires_grad and torch.is_grad_enabled()
        self: Rows = _Wrap.apply(x, order) if differentiable else _by_name(x)  # type: ignore[no-untyped-call, assignment]
        self._x, self._order, self._known = x, order, known
        return self

    def gradient(self, loss: Tensor, *, again: bool = False) -> RowGradient:
        """The gradient of a loss for the features; with ``again``, there may be other gradients of it later."""
        names = [name for name in self._known if name[0]]
        maps = [self._known[name] for name in names]
        inputs = [self._x, *(found.out for found in maps)]
        direct, *through = torch.autograd.grad(loss, inputs, allow_unused=True, retain_graph=again)
        used_now = {name for name, grad in zip(names, through, strict=True) if grad is not None}
        for name in self._known.keys() - used_now:  # of weights that were there for one call
            del self._known[name]
        dtype = self._x.dtype  # the maps have another one under autocast
        used = [(grad.to(dtype), found.back) for grad, found in zip(through, maps, strict=True) if grad is not None]
        if not used:
            used = [(self._x.new_zeros((self._x.size(0), 1)), self._x.new_zeros((1, self._x.size(1))))]
        grads, backs = zip(*used, strict=True)
        if len(used) == 1:
            return RowGradient(self._x, direct, grads[0], backs[0])
        return RowGradient(self._x, direct, torch.cat(grads, dim=1), torch.cat(backs))

    def renew(self, start: int, stop: int) -> None:
        """Compute the maps of some rows again, in place: the features there are others now."""
        lasting = [found for found in self._known.values() if found.lasts]
        with torch.no_grad(), torch.autocast(self._x.device.type, enabled=False):
            for found in lasting:  # the version stays what it was
                found.out.data[start:stop] = found.func(self._x[start:stop], *found.weights)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look linear maps up; everything else works on the real features."""
        if args and isinstance(args[0], Rows):
            rows, *rest = args
            if func in PROPERTIES:
                return func(rows._x, *rest, **(kwargs or {}))
            if not kwargs and func is F.linear and rows._may_share(rest):
                return rows._linear(func, *rest)
            if not kwargs and func in PRODUCTS and rows._may_share(rest):
                return rows._linear(torch.mm, *rest)
            if func is F.dropout and not (kwargs or {}).get("training", rest[1] if len(rest) > 1 else True):
                return rows
        return func(*tree_map_only(Rows, materialised, args), **tree_map_only(Rows, materialised, kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """What compiled code and custom functions do; their gradient arrives at :class:`_Wrap`."""
        return func(*tree_map_only(Rows, materialised, args), **tree_map_only(Rows, materialised, kwargs or {}))

    def _may_share(self, weights: list[Any]) -> bool:
        """Constant weights of the same type, the first a matrix."""
        grad, x = torch.is_grad_enabled(), self._x
        first, *others = weights
        return (
            type(first) in (Tensor, nn.Parameter)
            and first.dim() == 2
            and all(w is None or type(w) in (Tensor, nn.Parameter) for w in others)
            and all(w is None or (w.dtype == x.dtype and not (grad and w.requires_grad)) for w in weights)
        )

    def _linear(self, func: Callable[..., Tensor], *weights: Tensor | None) -> Tensor:
        grad = torch.is_grad_enabled() and self._x.requires_grad
        kind = self._x.device.type
        cast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        what = (func, cast, *((id(w), None if w is None else w._version) for w in weights))
        found = self._known.get((grad, what)) or self._known.pop((None, what), None)
        if found is None or not found.is_as_computed():
            found = self._compute(func, weights, lasts=cast is None)
        if not grad and len(self._known) >= MANY:  # a model makes its weights anew at every call
            for name in [name for name in self._known if not name[0]]:
                del self._known[name]
        self._known[grad, what] = found
        out = found.out.requires_grad_(grad)
        return out if self._order is None else permuted(out, self._order)

    def _compute(self, func: Callable[..., Tensor], weights: tuple[Tensor | None, ...], lasts: bool) -> _Map:
        with torch.no_grad():
            out, weight = func(self._x, *weights), weights[0]
        assert weight is not None
        back = weight if func is F.linear else _turned(weight)
        lasts = lasts and all(w is None or type(w) is nn.Parameter for w in weights)
        return _Map(out, out._version, back, func, weights, lasts)


def _turned(weight: Tensor) -> Tensor:
    return remembered("turned", (weight,), lambda: weight.t().clone(memory_format=torch.contiguous_format))


def permuted(x: Tensor, order: Tensor) -> Tensor:
    """``x[order]`` for an order in which every row turns up once; :class:`Rows` stay what they are."""
    if isinstance(x, Rows) and x._order is None:
        return Rows._make(x._x, order, x._known)
    out: Tensor = apply(_Permute, materialised(x), order)
    return out


class _Permute(torch.autograd.Function):
    """The gradient of a permutation is a gather too; that of ``index_select`` has to add up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return x.index_select(0, order)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.index_select(0, _inverse(*ctx.saved_tensors)), None


def _inverse(order: Tensor) -> Tensor:
    places = torch.arange(order.numel(), device=order.device)
    return torch.empty_like(order).scatter_(0, order, places)


def _by_name(x: Tensor) -> Tensor:
    """A tensor that looks like ``x``; nothing is allocated."""
    make: Any = Tensor._make_wrapper_subclass
    out: Tensor = make(Rows, x.shape, dtype=x.dtype, device=x.device)
    return out


class _Wrap(torch.autograd.Function):
    """A tensor by name only; gradients that reach it directly go on to the features."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor | None) -> Tensor:
        ctx.order = order
        return _by_name(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad if ctx.order is None else grad.index_select(0, _inverse(ctx.order)), None


def materialised(x: Tensor) -> Tensor:
    """An ordinary tensor with the same values."""
    if not isinstance(x, Rows):
        return x
    if x._order is None:
        return x._x
    return x._x.index_select(0, x._order)
