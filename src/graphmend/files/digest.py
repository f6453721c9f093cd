"""One digest of a model's weights in a call, however many ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from graphmend.files.files import digest
from graphmend.wrappers import unwrapped

__all__ = ["model_digest", "unchanged"]

_DIGESTS: ContextVar[dict[int, str]] = ContextVar("graphmend_digests")
_UNCHANGED: ContextVar[frozenset[int]] = ContextVar("graphmend_unchanged", default=frozenset())


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """A block in which nobody changes the weights, so that their digest is computed at most once."""
    outer = _UNCHANGED.get()
    if id(model) in outer:
        yield
        return
    marked, digests = _UNCHANGED.set(outer | {id(model)}), _DIGESTS.set({**_DIGESTS.get({})})
    try:
        yield
    finally:
        _UNCHANGED.reset(marked)
        _DIGESTS.reset(digests)


def model_digest(model: nn.Module) -> str:
    """A digest of the model's weights, which does not depend on the floating-point type that holds them."""
    if id(model) not in _UNCHANGED.get():
        return _digest(model)
    digests = _DIGESTS.get()
    if id(model) not in digests:
        digests[id(model)] = _digest(model)
    return digests[id(model)]


def _digest(model: nn.Module) -> str:
    tensors = {name: value for name, value in unwrapped(model).state_dict().items() if isinstance(value, Tensor)}
    dense = {name: value for name, value in tensors.items() if value.layout == torch.strided}
    return digest({name: value.double() if value.is_floating_point() else value for name, value in dense.items()})
