"""Finding Z, the second-last representation, in a model nobody has seen before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn import Sequential as GraphSequential

from graphmend.errors import GraphMendError, listed

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential, GraphSequential)


class _Found(BaseException):
    """Carries Z out of the model, past any ``except Exception`` in it."""

    def __init__(self, z: Tensor) -> None:
        self.z = z


class Call(NamedTuple):
    """One execution of a layer: the ``turn``-th of this module."""

    name: str
    module: nn.Module
    turn: int
    input: Tensor | None


@dataclass(frozen=True)
class Tap:
    """Takes Z from a running model: the input (or output) of one layer call, then through ``tail``.

    ``tail`` are propagation calls that come later in the model; each is given Z instead of its own input.
    """

    layer: Call
    output: bool = False
    tail: list[Call] = field(default_factory=list)

    def __call__(self, run: Callable[[], object]) -> Tensor:
        """Run the model as far as needed and return Z."""
        turns: Counter[nn.Module] = Counter()
        z: list[Tensor] = []
        last = self.tail[-1] if self.tail else None

        def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            turn = turns[module] = turns[module] + 1
            if not self.output and (module, turn) == (self.layer.module, self.layer.turn):
                z.append(_node_input(args, kwargs))
                if last is None:
                    raise _Found(z[-1])
            if z and any((module, turn) == (call.module, call.turn) for call in self.tail):
                return (z[-1], *args[1:]) if args else args, kwargs if args else {**kwargs, "x": z[-1]}
            return None

        def after(module: nn.Module, args: tuple[Any, ...], out: Any) -> None:
            call = (module, turns[module])
            if self.output and call == (self.layer.module, self.layer.turn):
                raise _Found(out)
            if z and any(call == (later.module, later.turn) for later in self.tail):
                z.append(out)
                if last is not None and call == (last.module, last.turn):
                    raise _Found(out)

        modules = {self.layer.module, *(call.module for call in self.tail)}
        handles = [module.register_forward_pre_hook(before, with_kwargs=True) for module in modules]
        handles += [module.register_forward_hook(after) for module in modules]
        try:
            run()
        except _Found as found:
            return found.z.flatten(1)
        finally:
            for handle in handles:
                handle.remove()
        raise GraphMendError(f"the model did not reach the layer {self.layer.name!r} this time; name another embedding")


def named_tap(model: nn.Module, name: str, run: Callable[[], object], nodes: int) -> Tap:
    """Z as the output of the module ``name``, at its last execution."""
    modules = {key: module for key, module in model.named_modules() if key}
    if name not in modules:
        raise GraphMendError(f"the model has no module {name!r}; its modules are {listed(modules)}")
    calls = [call for call in _trace({name: modules[name]}, run, nodes) if call.module is modules[name]]
    if not calls:
        raise GraphMendError(f"the module {name!r} does not run in the model's forward; name another embedding")
    tap = Tap(calls[-1], output=True)
    if not _gives_nodes(tap, run, nodes):
        raise GraphMendError(f"the module {name!r} does not give one row per node; name another embedding")
    return tap


def find_tap(model: nn.Module, run: Callable[[], object], nodes: int, reacts: Callable[[Tap], bool]) -> Tap:
    """Z as the node-level input of the last executed top-level layer with weights.

    Layers are whole convolutions, in the order they run, not in the order they were registered. A module that holds
    several layers and is given something that does not react to edges (a model inside a wrapper, the perceptron of
    APPNP) is opened. If the input does not react to edges because the linear maps come first (APPNP, GPR), it is sent
    through the propagation that follows; if nothing follows, the layer itself is the propagation and its output is
    taken.
    """

    def is_good(tap: Tap) -> bool:
        return _gives_nodes(tap, run, nodes) and reacts(tap)

    units = {"": model} if _propagates(model) else dict(_layers(model))
    while True:
        calls = [call for call in _trace(units, run, nodes) if _has_weights(call.module) or _propagates(call.module)]
        inner = [_inner_layers(call) for call in calls]
        weighted = [
            k for k, call in enumerate(calls) if _has_weights(call.module) and (inner[k] or call.input is not None)
        ]
        if not weighted:
            raise GraphMendError(_ask(model))
        last, opened = calls[weighted[-1]], inner[weighted[-1]]
        if not opened or (last.input is not None and is_good(Tap(last))):
            break
        units = {name: unit for name, unit in units.items() if unit is not last.module} | opened
    tail = [call for call in calls[weighted[-1] + 1 :] if _propagates(call.module)]
    for tap in (Tap(last, tail=tail), Tap(last, output=True)):
        if is_good(tap):
            return tap
    raise GraphMendError(_ask(model))


def _ask(model: nn.Module) -> str:
    names = listed(name for name, module in model.named_modules() if name and _has_weights(module))
    return (
        f"found no node representation of {type(model).__name__} that reacts to edges; "
        f"name the module whose output to use with embedding=..., one of {names}"
    )


def _layers(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Top-level layers with the containers opened."""
    for name, child in module.named_children():
        if isinstance(child, _CONTAINERS):
            yield from _layers(child, f"{prefix}{name}.")
        else:
            yield prefix + name, child


def _inner_layers(call: Call) -> dict[str, nn.Module]:
    """The layers inside a module that is not a convolution, if any of them has weights."""
    inner = {} if _propagates(call.module) else dict(_layers(call.module, f"{call.name}."))
    return inner if any(map(_has_weights, inner.values())) else {}


def _trace(units: dict[str, nn.Module], run: Callable[[], object], nodes: int) -> list[Call]:
    """The executions of ``units``, in order, with their node-level inputs."""
    names = {module: name for name, module in units.items()}
    turns: Counter[nn.Module] = Counter()
    calls: list[Call] = []

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        turns[module] += 1
        z = _node_input(args, kwargs)
        is_nodes = isinstance(z, Tensor) and z.dim() >= 2 and z.size(0) == nodes and z.is_floating_point()
        calls.append(Call(names[module], module, turns[module], z if is_nodes else None))

    handles = [module.register_forward_pre_hook(before, with_kwargs=True) for module in names]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _node_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0] if args else kwargs.get("x")


def _has_weights(module: nn.Module) -> bool:
    return any(parameter.dim() >= 2 for parameter in module.parameters())


def _propagates(module: nn.Module) -> bool:
    return isinstance(module, MessagePassing)


def _gives_nodes(tap: Tap, run: Callable[[], object], nodes: int) -> bool:
    try:
        with torch.no_grad():
            z = tap(run)
    except Exception:  # Z does not fit through the tail, or is no tensor
        return False
    return z.dim() == 2 and z.size(0) == nodes
