"""Leaving a model, and the random number generators, exactly as they were."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn.models.rev_gnn import InvertibleModule

from graphmend.errors import GraphMendError, listed, require
from graphmend.model.restoring import restoring
from graphmend.wrappers import compiled_inside

COPIED_BYTES = 1 << 22  # a graph up to this size is copied in about a millisecond
_ONE_AT_A_TIME = threading.RLock()


@restoring
def untouched_rng(seed: int) -> Iterator[None]:
    """Seed the global generators inside (torch's for CPU and CUDA, Python's, NumPy's), and restore each of them
    afterwards.

    The generators belong to the whole process, so only one thread at a time is inside and others wait. Blocks of one
    thread may be nested.
    """
    with _ONE_AT_A_TIME:
        has_cuda = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        cuda = torch.cuda.get_rng_state_all() if has_cuda else None
        cpu, python, legacy_numpy = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
        try:
            torch.default_generator.manual_seed(seed)  # torch.manual_seed tells absent devices, too, which takes long
            if cuda is not None:
                torch.cuda.manual_seed_all(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002 (user models may draw from it)
            yield
        finally:
            torch.set_rng_state(cpu)
            random.setstate(python)
            np.random.set_state(legacy_numpy)  # noqa: NPY002
            if cuda is not None:
                torch.cuda.set_rng_state_all(cuda)


@restoring
def frozen_model(model: nn.Module) -> Iterator[None]:
    """Eval mode, no parameter gradients, layer caches or compiled code inside; afterwards everything is as it was.

    Every module's attributes (mode, caches, patched ``forward``, whatever a model stores while it runs), the contents
    of its tables (parameters, buffers, hooks, lists and dicts of its own) and tensors, and the ``requires_grad`` flags
    are restored, even after an exception or Ctrl-C, which waits if it would interrupt that.
    """
    modules = list(model.modules())
    modes = [(module, getattr(module, "training", None)) for module in modules]  # a scripted module keeps it elsewhere
    attributes = [(module, dict(vars(module)), _tables(module)) for module in modules]
    groups = _groups(_tensors(model, modules))
    contents = [(group, [tensor.shape for tensor in group], _flat(group)) for group in groups]
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        _switch_to_eval(model)
        for parameter, _ in flags:
            parameter.requires_grad_(False)
        for module in modules:
            _disable_cache(module)
            _run_as_written(module)
        yield
    finally:
        for module, values, tables in attributes:
            vars(module).clear()
            vars(module).update(values)
            for table, content in tables:
                table.clear()
                table.extend(content) if isinstance(table, list) else table.update(content)
        for module, mode in modes:
            if mode is not None and module.training != mode:
                module.training = mode
        for parameter, flag in flags:
            parameter.requires_grad_(flag)
        for group, shapes, content in contents:
            if not _is_same(group, content):
                _restore(group, shapes, content)


def _switch_to_eval(model: nn.Module) -> None:
    try:
        model.eval()
    except Exception as error:
        raise GraphMendError(
            f"{type(model).__name__} cannot be switched to evaluation mode ({type(error).__name__}: {error}); "
            "pass the model that it was made from"
        ) from error


def plain(data: Data) -> Data:
    """``data`` with tensors that autograd can work with: none from inference mode, none that requires a gradient."""
    out = copy.copy(data)
    with torch.inference_mode(False):
        for name, value in data.to_dict().items():
            if isinstance(value, Tensor) and (value.is_inference() or value.requires_grad):
                out[name] = value.clone() if value.is_inference() else value.detach()
        if isinstance(data.edge_index, Tensor) and out.edge_index is data.edge_index:
            out.edge_index = data.edge_index.detach()  # a new object: what is known about the edges lasts for one call
    return out


@contextmanager
def private(data: Data) -> Iterator[Data]:
    """A graph for a model to work on: :func:`plain`, and a copy if it is small, so that ``data`` stays as it is.

    A model that writes into its input gets another copy at every call. If it begins to do so only later, it has spoilt
    everything computed since, which raises an error at the end. Keeping a large graph twice just for such models would
    cost more than it is worth.
    """
    own = plain(data)
    tensors = {name: value for name, value in own.to_dict().items() if isinstance(value, Tensor)}
    tensors = {name: value for name, value in tensors.items() if value.layout == torch.strided and not value.is_nested}
    if sum(value.numel() * value.element_size() for value in tensors.values()) <= COPIED_BYTES:
        with torch.inference_mode(False):
            tensors = {name: value.clone() for name, value in tensors.items()}
        own.update(tensors)
    versions = {name: value._version for name, value in tensors.items()}
    yield own
    written = listed(name for name, value in tensors.items() if value._version != versions[name])
    sentence = f"the model has begun to write into {written} of its input, which it did not do when it was tried"
    require(not written, f"{sentence}; make it work on a copy")


def _tables(module: nn.Module) -> list[tuple[Any, Any]]:
    return [(value, value.copy()) for value in vars(module).values() if isinstance(value, (dict, list, set))]


def _tensors(model: nn.Module, modules: list[nn.Module]) -> list[Tensor]:
    loose = [value for module in modules for value in vars(module).values() if isinstance(value, Tensor)]
    return [tensor for tensor in (*model.parameters(), *model.buffers(), *loose) if tensor.layout == torch.strided]


def _groups(tensors: list[Tensor]) -> list[list[Tensor]]:
    """Tensors that fit side by side into one, so that copying and comparing them takes one call instead of many."""
    groups: dict[tuple[torch.dtype, torch.device, int], list[Tensor]] = {}
    for tensor in tensors:
        alone = id(tensor) if tensor.is_quantized else 0  # each has a scale of its own
        groups.setdefault((tensor.dtype, tensor.device, alone), []).append(tensor)
    return list(groups.values())


def _flat(group: list[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in group])


def _is_same(group: list[Tensor], content: Tensor) -> bool:
    try:
        return torch.equal(_flat(group), content)
    except RuntimeError:  # there is no memory for a copy, or this tensor cannot be copied
        return False


@torch.no_grad()
def _restore(group: list[Tensor], shapes: list[torch.Size], content: Tensor) -> None:
    for tensor, shape in zip(group, shapes, strict=True):
        was, content = content[: shape.numel()].view(shape), content[shape.numel() :]
        if tensor.shape != shape:
            tensor.data = was.clone()
        elif not torch.equal(tensor, was):
            tensor.copy_(was)


def _disable_cache(module: nn.Module) -> None:
    """Layers with ``cached=True`` reuse the normalisation of the first graph they saw, whatever their input."""
    if getattr(module, "cached", False) is True:
        module.cached = False  # type: ignore[assignment]
        for name in [name for name in vars(module) if name.startswith("_cached")]:
            setattr(module, name, None)


def _run_as_written(module: nn.Module) -> None:
    """Compiled code cannot be watched or changed, and reversible layers free their input, which others still read."""
    original = compiled_inside(module)
    if original is not None:
        vars(module)["forward"] = original.__call__
    if getattr(module, "_compiled_call_impl", None) is not None:
        vars(module)["_compiled_call_impl"] = None
    if isinstance(module, InvertibleModule):
        module.disable = True
