"""Finding Z, the second-last representation, in any model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn import Sequential as GraphSequential

from graphmend.errors import GraphMendError, listed
from graphmend.model.scripted import is_scripted, require_visible_layers

EXPORT_EMBED = ", or give it an embed(x, edge_index) under @torch.jit.export"
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential, GraphSequential)


class _Reached(BaseException):
    """Carries Z out of the model, past any ``except Exception`` in it."""

    def __init__(self, z: Tensor) -> None:
        self.z = z


class Call(NamedTuple):
    """One execution of a layer: the ``turn``-th of the module with this name."""

    name: str
    turn: int

    @property
    def text(self) -> str:
        """The name, followed by the turn unless it is the first."""
        return self.name if self.turn == 1 and "#" not in self.name else f"{self.name}#{self.turn}"

    @classmethod
    def of(cls, text: str) -> Self:
        """The call with this text."""
        name, mark, turn = text.rpartition("#")
        return cls(name, int(turn)) if mark and turn.isdecimal() else cls(text, 1)


class _Traced(NamedTuple):
    call: Call
    module: nn.Module
    input: Tensor | None  #: if it has one row per node


@dataclass(frozen=True)
class Tap:
    """Takes Z from a running model: the input (or output) of one layer call, then through ``tail``.

    ``tail`` are propagation calls that come later in the model; each gets Z instead of its own input. A tap knows
    modules by their names, so that it can be kept without keeping the model alive.
    """

    layer: Call
    output: bool = False
    tail: tuple[Call, ...] = ()

    def __call__(self, model: nn.Module, run: Callable[[], object]) -> Tensor:
        """Run the model as far as needed and return Z."""
        modules = {model.get_submodule(call.name): call.name for call in (self.layer, *self.tail)}
        turns: Counter[nn.Module] = Counter()
        z: list[Tensor] = []

        def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            turns[module] += 1
            call = Call(modules[module], turns[module])
            if not self.output and call == self.layer:
                z.append(_node_input(args, kwargs))
                if not self.tail:
                    raise _Reached(z[-1])
            if z and call in self.tail:
                return (z[-1], *args[1:]) if args else args, kwargs if args else {**kwargs, "x": z[-1]}
            return None

        def after(module: nn.Module, args: tuple[Any, ...], out: Any) -> None:
            call = Call(modules[module], turns[module])
            if self.output and call == self.layer:
                raise _Reached(out)
            if z and call in self.tail:
                z.append(out)
                if call == self.tail[-1]:
                    raise _Reached(out)

        handles = [module.register_forward_pre_hook(before, with_kwargs=True) for module in modules]
        handles += [module.register_forward_hook(after) for module in modules]
        try:
            run()
        except _Reached as reached:
            return reached.z.flatten(1)
        finally:
            for handle in handles:
                handle.remove()
        raise GraphMendError(f"the model did not reach the layer {self.layer.name!r} this time; name another embedding")


def tapped(model: nn.Module, taps: Sequence[Tap], run: Callable[[], object]) -> tuple[object, list[Tensor]]:
    """Run the model once, as a whole; return its output, and what each of several taps without a tail takes from it.

    Tensors that a later layer overwrites in place, as an activation may, are taken in a run of their own.
    """
    modules = {model.get_submodule(tap.layer.name): tap.layer.name for tap in taps}
    turns: Counter[nn.Module] = Counter()
    taken: dict[Tap, tuple[Tensor, int]] = {}

    def take(call: Call, value: Any, *, is_output: bool) -> None:
        tap = Tap(call, is_output)
        if tap in taps and isinstance(value, Tensor):
            taken[tap] = value, value._version

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        turns[module] += 1
        take(Call(modules[module], turns[module]), _node_input(args, kwargs), is_output=False)

    def after(module: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        take(Call(modules[module], turns[module]), out, is_output=True)

    handles = [module.register_forward_pre_hook(before, with_kwargs=True) for module in modules]
    handles += [module.register_forward_hook(after) for module in modules]
    try:
        result = run()
    finally:
        for handle in handles:
            handle.remove()
    is_kept = {tap: value._version == version for tap, (value, version) in taken.items()}
    return result, [taken[tap][0].flatten(1) if is_kept.get(tap) else tap(model, run) for tap in taps]


def named_tap(model: nn.Module, name: str, run: Callable[[], object], nodes: int) -> Tap:
    """Z as the output of the module ``name``, at its last execution."""
    modules = {key: module for key, module in model.named_modules() if key}
    if name not in modules:
        raise GraphMendError(f"the model has no module {name!r}; its modules are {listed(modules)}")
    require_visible_layers(modules[name], f"the output of {name!r}", EXPORT_EMBED)
    calls = _trace({name: modules[name]}, run, nodes)
    if not calls:
        raise GraphMendError(f"the module {name!r} does not run in the model's forward; name another embedding")
    tap = Tap(calls[-1].call, output=True)
    if not _gives_nodes(tap, model, run, nodes):
        raise GraphMendError(f"the module {name!r} does not give one row per node; name another embedding")
    return tap


def find_tap(model: nn.Module, run: Callable[[], object], nodes: int, reacts: Callable[[Tap], bool]) -> Tap:
    """Z as the node-level input of the last executed top-level layer with weights.

    Layers are whole convolutions, in the order they run, not in the order they were registered. A module that holds
    several layers and whose input does not react to edges (a model inside a wrapper, the perceptron of APPNP) is
    opened. If the input does not react to edges because the linear maps come first (APPNP, GPR), it is sent through the
    propagation that follows; if nothing follows, the layer itself is the propagation and its output is taken.
    """

    def is_good(tap: Tap) -> bool:
        return _gives_nodes(tap, model, run, nodes) and reacts(tap)

    units = {"": model} if _propagates(model) else dict(_layers(model))
    while True:
        calls = [c for c in _trace(units, run, nodes) if _has_weights(c.module) or _propagates(c.module)]
        inner = [_inner_layers(call) for call in calls]
        weighted = [k for k, c in enumerate(calls) if _has_weights(c.module) and (inner[k] or c.input is not None)]
        if not weighted:  # it has layers, but multiplies by their weights itself
            for call in reversed(calls):
                if is_good(Tap(call.call)):
                    return Tap(call.call)
            raise _nothing_found(model)
        last, opened = calls[weighted[-1]], inner[weighted[-1]]
        if not opened or (last.input is not None and is_good(Tap(last.call))):
            break
        units = {name: unit for name, unit in units.items() if unit is not last.module} | opened
    tail = tuple(c.call for c in calls[weighted[-1] + 1 :] if _propagates(c.module))
    for tap in (Tap(last.call, tail=tail), Tap(last.call, output=True)):
        if is_good(tap):
            return tap
    raise _nothing_found(model)


def _nothing_found(model: nn.Module) -> GraphMendError:
    require_visible_layers(model, "its second-last representation", EXPORT_EMBED)
    names = listed(name for name, module in model.named_modules() if name and _has_weights(module))
    return GraphMendError(
        f"no node representation of {type(model).__name__} was found that reacts to edges; "
        f"name the module whose output to use with embedding=..., one of {names}"
    )


def _layers(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Top-level layers with the containers opened."""
    for name, child in module.named_children():
        if isinstance(child, _CONTAINERS):
            yield from _layers(child, f"{prefix}{name}.")
        else:
            yield prefix + name, child


def _inner_layers(traced: _Traced) -> dict[str, nn.Module]:
    """The layers inside a module that is not a convolution, if any of them has weights."""
    inner = {} if _propagates(traced.module) else dict(_layers(traced.module, f"{traced.call.name}."))
    return inner if any(map(_has_weights, inner.values())) else {}


def _trace(units: dict[str, nn.Module], run: Callable[[], object], nodes: int) -> list[_Traced]:
    """The executions of ``units``, in order, with their node-level inputs."""
    names = {module: name for name, module in units.items() if not is_scripted(module)}
    turns: Counter[nn.Module] = Counter()
    calls: list[_Traced] = []

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        turns[module] += 1
        z = _node_input(args, kwargs)
        is_nodes = isinstance(z, Tensor) and z.dim() >= 2 and z.size(0) == nodes and z.is_floating_point()
        calls.append(_Traced(Call(names[module], turns[module]), module, z if is_nodes else None))

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


def _gives_nodes(tap: Tap, model: nn.Module, run: Callable[[], object], nodes: int) -> bool:
    try:
        with torch.no_grad():
            z = tap(model, run)
    except Exception:  # Z does not fit through the tail, or is no tensor
        return False
    return z.dim() == 2 and z.size(0) == nodes
