"""Leave a model, and the random number generators, exactly as they were found."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

_TABLES = (
    "_parameters",
    "_buffers",
    "_modules",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
)


@contextmanager
def untouched_rng(seed: int) -> Iterator[None]:
    """Seed every global generator inside, and give each its state back at the end."""
    has_cuda = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    cuda = torch.cuda.get_rng_state_all() if has_cuda else None
    cpu, python, legacy_numpy = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 (user models may draw from it)
        yield
    finally:
        torch.set_rng_state(cpu)
        random.setstate(python)
        np.random.set_state(legacy_numpy)  # noqa: NPY002
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)


@contextmanager
def frozen_model(model: nn.Module) -> Iterator[None]:
    """Eval mode, no parameter gradients, no layer caches inside; afterwards everything is as it was.

    Every module's attributes (mode, caches, patched ``forward``, whatever a model stores while it runs), its tables of
    parameters, buffers and hooks, the buffers' contents and the ``requires_grad`` flags are put back, also after an
    exception or Ctrl-C.
    """
    attributes = [(module, dict(vars(module)), _tables(module)) for module in model.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        model.eval()
        for parameter, _ in flags:
            parameter.requires_grad_(False)
        for module, _, _ in attributes:
            _disable_cache(module)
        yield
    finally:
        for module, found, tables in attributes:
            vars(module).clear()
            vars(module).update(found)
            for name, table in tables.items():
                vars(module)[name].clear()
                vars(module)[name].update(table)
        with torch.no_grad():
            for buffer, content in buffers:
                if not torch.equal(buffer, content):
                    buffer.copy_(content)
        for parameter, flag in flags:
            parameter.requires_grad_(flag)


def _tables(module: nn.Module) -> dict[str, dict[Any, Any]]:
    return {name: dict(vars(module)[name]) for name in _TABLES if name in vars(module)}


def _disable_cache(module: nn.Module) -> None:
    """Layers with ``cached=True`` reuse the normalisation of the first graph they saw, whatever they are given."""
    if getattr(module, "cached", False) is True:
        module.cached = False  # type: ignore[assignment]
        for name in [name for name in vars(module) if name.startswith("_cached")]:
            setattr(module, name, None)
