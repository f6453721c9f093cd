"""What stays the same while a model is frozen is computed once.

Inside :func:`remembering` nobody but this package and the surrogate touches weights and graph, so a result may be kept
as long as the tensors it was made from live and their version counters stand still. Outside, nothing is kept:
``tensor.data`` can be written to without anyone noticing. What carries a gradient lives no longer than one loss: it is
kept inside :func:`sharing` only.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

__all__ = ["forgetting", "remembered", "remembering", "sharing"]

T = TypeVar("T")


class _Entry(NamedTuple):
    tensors: list[weakref.ref[Tensor]]
    versions: list[int]
    value: Any


_ACTIVE: ContextVar[dict[Any, _Entry] | None] = ContextVar("graphmend_memo", default=None)
_SHARED: ContextVar[dict[Any, _Entry] | None] = ContextVar("graphmend_shared", default=None)  # of what wants gradients


@contextmanager
def remembering() -> Iterator[None]:
    """A scope in which :func:`remembered` keeps what it computes; at its end all is forgotten."""
    memo: dict[Any, _Entry] = {}
    token = _ACTIVE.set(memo)
    try:
        yield
    finally:
        _ACTIVE.reset(token)
        memo.clear()  # its entries know it


@contextmanager
def sharing() -> Iterator[None]:
    """Within :func:`remembering`, the parts of one loss: what wants gradients is shared between them, too."""
    memo: dict[Any, _Entry] = {}
    token = _SHARED.set(memo if _ACTIVE.get() is not None else None)
    try:
        yield
    finally:
        _SHARED.reset(token)
        memo.clear()


@contextmanager
def forgetting() -> Iterator[None]:
    """A scope in which nothing is kept, and nothing that was kept before is used."""
    tokens = _ACTIVE.set(None), _SHARED.set(None)
    try:
        yield
    finally:
        _ACTIVE.reset(tokens[0])
        _SHARED.reset(tokens[1])


def remembered(name: Any, tensors: tuple[Tensor, ...], compute: Callable[[], T]) -> T:
    """``compute()``, or what it gave before for the same tensors.

    Args:
        name: What is computed; hashable.
        tensors: All tensors that go into it. The result must not hold on to them, or it is kept to the end.
        compute: Computes it.
    """
    memo = _ACTIVE.get()
    if any(tensor.requires_grad for tensor in tensors):
        memo = _SHARED.get() if torch.is_grad_enabled() else None
    if memo is None or any(tensor.is_inference() for tensor in tensors):
        return compute()
    key, versions = (name, *map(id, tensors)), [tensor._version for tensor in tensors]
    entry = memo.get(key)
    if entry is not None and entry.versions == versions:
        return entry.value  # type: ignore[no-any-return]
    value = compute()
    memo[key] = _Entry([weakref.ref(tensor, lambda _: memo.pop(key, None)) for tensor in tensors], versions, value)
    return value
