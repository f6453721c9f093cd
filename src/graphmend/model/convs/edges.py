"""The edges of a convolution with presences, shared by all convolutions of this package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map_only

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.cache import cached
from graphmend.engine.neighbours import incoming_sum
from graphmend.engine.propagation import at_least_single
from graphmend.engine.shared_features import METADATA, as_tensor, placeholder
from graphmend.engine.streaming import StreamedAdjacency
from graphmend.errors import require

__all__ = ["FLOOR", "Aggregated", "Edges", "computing_sums_at_once", "power"]

FLOOR = 1e-12
"""A degree up to this counts as 0: its inverse square would overflow single precision in a gradient."""


class Edges(NamedTuple):
    """An edge list with, per edge in row order, its presence ``r`` and the model's own weight ``w``, if it has one."""

    adjacency: Adjacency
    presence: Tensor
    own_weight: Tensor | None
    origin: tuple[Tensor, ...]  #: the tensors it was made from

    @property
    def weight(self) -> Tensor:
        """What an edge adds to a sum: ``r * w``."""
        return self.presence if self.own_weight is None else self.presence * self.own_weight

    @classmethod
    def of(
        cls,
        presence: Tensor,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        size: tuple[int, int] | None = None,
    ) -> Edges:
        """Check what a convolution was called with and bring its edges into row order."""
        got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        require(
            isinstance(x, Tensor) and x.dim() == 2,
            f"edges can be learned for one (num_nodes, channels) feature matrix, not for bipartite input (got {got})",
        )
        require(
            isinstance(edge_index, Tensor) and edge_index.layout == torch.strided,
            "edges can be learned for a (2, num_edges) edge_index tensor only, not for a sparse adjacency",
        )
        num_nodes, num_edges = x.size(0), edge_index.size(1)
        require(
            presence.shape == (num_edges,),
            f"the convolution was called with {num_edges} edges but there are presences for {presence.numel()}:"
            " the model must pass its edge_index on unchanged",
        )
        require(
            size is None or tuple(size) == (num_nodes, num_nodes),
            f"bipartite message passing is not supported (got size {size} for {num_nodes} nodes)",
        )
        adjacency = Adjacency.of(edge_index, num_nodes)
        origin = (presence, edge_index) if edge_weight is None else (presence, edge_index, edge_weight)
        dtype = at_least_single(x.dtype)
        presence = _in_row_order(adjacency, presence, edge_index, dtype)
        if edge_weight is None:
            return cls(adjacency, presence, None, origin)
        require(
            edge_weight.numel() == num_edges,
            f"edge_weight must have one value per edge (got {edge_weight.numel()} for {num_edges} edges)",
        )
        return cls(adjacency, presence, adjacency.order(edge_weight.reshape(-1).to(dtype)), origin)

    @property
    def streamed(self) -> StreamedAdjacency | None:
        """The adjacency of a mapped graph whose edges all have the presence 1 and no weight."""
        is_plain = self.own_weight is None and self.presence.numel() > 1 and self.presence.stride(0) == 0
        return self.adjacency if is_plain and isinstance(self.adjacency, StreamedAdjacency) else None

    def without_loops(self) -> Edges:
        """The same edges with every self-loop absent."""
        return self._replace(presence=self.presence.masked_fill(self.adjacency.is_loop, 0.0))

    def degree(self) -> Tensor:
        """The number of incoming edges per node, fractions included."""
        return incoming_sum(self.adjacency, self.presence)


def _in_row_order(adjacency: Adjacency, presence: Tensor, edge_index: Tensor, dtype: torch.dtype) -> Tensor:
    """The presence of each edge in row order, sorted once for all convolutions."""
    if adjacency.perm is None:
        return presence.to(dtype)
    return cached(("ordered", dtype), (presence, edge_index), lambda: adjacency.order(presence.to(dtype)))


_IS_LAZY: ContextVar[bool] = ContextVar("graphmend_lazy_sums", default=True)


@contextmanager
def computing_sums_at_once() -> Iterator[None]:
    """Inside, sums over neighbours are computed before any linear map, for models that need the real ones."""
    token = _IS_LAZY.set(False)
    try:
        yield
    finally:
        _IS_LAZY.reset(token)


class Aggregated(Tensor):
    r"""The result of a linear hop, not computed yet.

    A linear map of it is taken before the hop if that is narrower, :math:`(A X) W = A (X W)`, so that the map of
    shared features is looked up, too. Everything else works on the computed result.
    """

    _x: Tensor
    _hop: Callable[[Tensor, Tensor | None], Tensor]
    _result: Tensor | None

    @classmethod
    def of(cls, x: Tensor, hop: Callable[[Tensor, Tensor | None], Tensor]) -> Tensor:
        """``hop(x, None)``; the second argument is a constant vector that the hop adds to every row of its result."""
        if not _IS_LAZY.get():
            return hop(as_tensor(x), None)
        self: Aggregated = placeholder(cls, x, x.size(0))  # type: ignore[assignment]
        self._x, self._hop, self._result = x, hop, None
        return self

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Linear maps before the hop; everything else after it."""
        kwargs = kwargs or {}
        first = args[0] if args else None
        if isinstance(first, Aggregated):
            if func in METADATA:
                with torch._C.DisableTorchFunctionSubclass():
                    return func(*args, **kwargs)
            if func is F.linear and not kwargs and args[1].size(0) < args[1].size(1):
                bias = args[2] if len(args) > 2 else None
                is_constant = bias is None or not (bias.requires_grad and torch.is_grad_enabled())
                out = first._hop(F.linear(first._x, args[1]), bias if is_constant else None)
                return out if bias is None or is_constant else out + bias
        return func(*tree_map_only(Aggregated, _computed, args), **tree_map_only(Aggregated, _computed, kwargs))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Only code that would lose the gradient gets here."""
        raise TypeError(f"{func} cannot take a sum over neighbours that is not computed yet")


def _computed(x: Aggregated) -> Tensor:
    lacks_gradient = x._result is not None and torch.is_grad_enabled() and not x._result.requires_grad
    if x._result is None or lacks_gradient:  # it may have been computed under no_grad before
        x._result = x._hop(as_tensor(x._x), None)
    return x._result


def power(degree: Tensor, exponent: float) -> Tensor:
    """``degree ** exponent``, but 0 with gradient 0 where a node has no edges (degree 0)."""
    empty = degree.abs() <= FLOOR
    return degree.masked_fill(empty, 1.0).pow(exponent).masked_fill(empty, 0.0)
