"""Computing once whatever stays the same while a model is frozen.

Inside :func:`caching` only this package and the surrogate touch weights and graph, so a result may be kept as long as
the tensors that it was made from exist and their version counters do not change. Outside, nothing is kept, because
``tensor.data`` can be written to without anyone noticing. A result that carries a gradient lives no longer than one
loss: it is kept inside :func:`sharing_gradients` only.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

__all__ = ["cached", "caching", "sharing_gradients", "without_cache"]

T = TypeVar("T")


class _Entry(NamedTuple):
    tensors: list[weakref.ref[Tensor]]
    versions: list[int]
    value: Any


Store = dict[Any, _Entry]
_CONSTANTS: ContextVar[Store | None] = ContextVar("graphmend_constants", default=None)
_DIFFERENTIABLE: ContextVar[Store | None] = ContextVar("graphmend_differentiable", default=None)


@contextmanager
def _use(variable: ContextVar[Store | None], store: Store | None) -> Iterator[None]:
    token = variable.set(store)
    try:
        yield
    finally:
        variable.reset(token)
        if store is not None:
            store.clear()  # its entries refer to it


@contextmanager
def caching() -> Iterator[None]:
    """A scope in which :func:`cached` keeps what it computes; at its end everything is dropped."""
    with _use(_CONSTANTS, {}):
        yield


@contextmanager
def sharing_gradients() -> Iterator[None]:
    """Within :func:`caching`, one loss: its parts also share results that carry gradients."""
    with _use(_DIFFERENTIABLE, {} if _CONSTANTS.get() is not None else None):
        yield


@contextmanager
def without_cache() -> Iterator[None]:
    """A scope in which nothing is kept, and nothing that was kept before is used."""
    with _use(_CONSTANTS, None), _use(_DIFFERENTIABLE, None):
        yield


def cached(name: Any, tensors: tuple[Tensor, ...], compute: Callable[[], T]) -> T:
    """``compute()``, or its earlier result for the same tensors.

    Args:
        name: What is computed; hashable.
        tensors: All tensors that it depends on. The result must not refer to them, or it is kept to the end.
        compute: Computes it.
    """
    store = _CONSTANTS.get()
    if any(tensor.requires_grad for tensor in tensors):
        store = _DIFFERENTIABLE.get() if torch.is_grad_enabled() else None
    if store is None or any(tensor.is_inference() for tensor in tensors):
        return compute()
    key, versions = (name, *map(id, tensors)), [tensor._version for tensor in tensors]
    entry = store.get(key)
    if entry is not None and entry.versions == versions:
        return entry.value  # type: ignore[no-any-return]
    value = compute()
    store[key] = _Entry([weakref.ref(tensor, lambda _: store.pop(key, None)) for tensor in tensors], versions, value)
    return value
