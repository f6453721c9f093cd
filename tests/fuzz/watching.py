"""Whether a call left a model and a graph as they were, whatever strange things they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch_geometric.data.data import BaseData

from fuzz.cases import Violation

T = TypeVar("T")


def left_alone(call: Callable[[], T], *things: Any) -> T:
    """What ``call`` returns, after a look at every model and graph in ``things``, also where it raises."""
    before = [state_of(thing) for thing in things]
    try:
        return call()
    finally:
        for thing, old in zip(things, before, strict=True):
            changed = sorted(name for name, value in state_of(thing).items() if old.pop(name, _NOTHING) != value)
            if changed or old:
                what = ", ".join([*changed, *old])
                raise Violation(f"the call changed the {type(thing).__name__}: {what[:200]}")


_NOTHING = object()


def state_of(thing: Any) -> dict[str, Any]:
    """Everything a user can see of a model or a graph, by name, to be compared."""
    if isinstance(thing, nn.Module):
        return _state_of_model(thing)
    if isinstance(thing, BaseData):
        items = [
            (f"{store._key or ''} {name}".strip(), value) for store in thing.stores for name, value in store.items()
        ]
        return {name: (id(value), _version(value), content(value)) for name, value in items}
    return {}


def _version(value: Any) -> int | None:
    """How often a tensor was written to."""
    return value._version if isinstance(value, Tensor) and not value.is_inference() else None


def content(value: Any) -> Any:
    """The bits of a tensor with all that describes it; anything else by its text, if that says what it holds."""
    if not isinstance(value, Tensor):
        return repr(value) if isinstance(value, str | int | float | list | dict | set | None) else None
    kind = (value.dtype, value.layout, value.device, value.requires_grad, value.is_leaf)
    if value.device.type == "meta" or nn.parameter.is_lazy(value):
        return kind
    return (*kind, tuple(value.shape), _bits(value.detach()))


def _bits(value: Tensor) -> Any:
    if value.layout == torch.sparse_coo:
        return _bits(value._indices()), _bits(value._values())
    if value.layout == torch.sparse_csr:
        return _bits(value.crow_indices()), _bits(value.col_indices()), _bits(value.values())
    try:
        flat = value.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).reshape(-1)
        return flat.view(torch.uint8).numpy().tobytes()
    except (RuntimeError, NotImplementedError):  # torch cannot copy every kind of number
        return None


def _state_of_model(model: nn.Module) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for name, module in model.named_modules():
        state[f"{name}.training"] = module.training
        if isinstance(module, torch.jit.ScriptModule):  # its attributes are made anew at every look
            continue
        for key, value in vars(module).items():
            inside = [(k, id(v)) for k, v in value.items()] if isinstance(value, dict) else None
            state[f"{name}.{key}"] = (id(value), inside)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        state[f"{name} (values)"] = content(tensor)
        state[f"{name} (gradient)"] = None if tensor.grad is None else content(tensor.grad)
    return state
