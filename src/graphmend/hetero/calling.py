"""How a heterogeneous model is called, which node type it predicts, and where its embedding is."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from graphmend.errors import GraphMendError, ModelFailedError, listed, require, text
from graphmend.graph.stores import node_count, private_copy
from graphmend.model.call import Output, part_of
from graphmend.model.failures import first_line

__all__ = ["HeteroCaller", "Place", "find_place", "predicted_type"]

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class HeteroCaller:
    """Calls ``forward(x_dict, edge_index_dict, ...)`` or ``forward(data)``, whichever a model has.

    Further parameters, such as ``edge_weight_dict`` or ``edge_attr``, are filled from the attribute of that name,
    with one entry for each type that has it. The model never sees the labels ``y``.

    Args:
        model: The model.
        output: Which part of what it returns has the scores; the name of a node type if it returns scores by type.
    """

    def __init__(self, model: nn.Module, output: Output = None) -> None:
        self.model, self.output = model, output
        self.is_tried = False
        self.clones = False  #: whether the model writes into what it is given, and so gets copies
        parameters = [p for p in inspect.signature(model.forward).parameters.values() if p.kind in _NAMED]
        required = [p.name for p in parameters if p.default is inspect.Parameter.empty]
        self.wants_data = len(required) == 1 and _attribute(required[0]) != "x"
        self._first = [p.name for p in parameters][:2]
        self._further = {
            p.name: p.name in required for p in parameters[2:] if p.name in required or _attribute(p.name) != "y"
        }

    def __call__(self, data: HeteroData) -> Any:
        """The model's output on a graph."""
        if not self.is_tried:
            self.clones, self.is_tried = self._writes(data), True
        out = self._call(private_copy(data) if self.clones else data)
        if self.output is None:
            return out
        is_named = isinstance(out, Tensor) and self.output in data.node_types  # the rows are those of that type
        part = out if is_named else part_of(out, self.output)
        return {self.output: part} if self.output in data.node_types else part

    def accepts(self, name: str) -> bool:
        """Whether an attribute of edges reaches the model."""
        return self.wants_data or name in map(_attribute, self._further)

    def _call(self, data: HeteroData) -> Any:
        try:
            if self.wants_data:
                return self.model(_without_labels(data))
            further = {}
            for name, is_required in self._further.items():
                values = data.collect(_attribute(name), allow_empty=True)
                require(
                    bool(values) or not is_required,
                    f"the model's forward needs {name}, which no type of the graph has; set it or wrap the model",
                )
                if values:
                    further[name] = values
            return self.model(data.collect("x"), data.collect("edge_index"), **further)
        except (GraphMendError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise ModelFailedError(
                f"the model cannot run on this graph: {first_line(error)}; check its node types, edge types and widths"
            ) from error

    def _writes(self, data: HeteroData) -> bool:
        """Whether the model writes into its input."""
        own = private_copy(data)
        tensors = [value for store in own.stores for value in store.values() if isinstance(value, Tensor)]
        with torch.no_grad():
            self._call(own)
        return any(tensor._version > 0 for tensor in tensors)


def _attribute(parameter: str) -> str:
    return parameter.removesuffix("_dict")


def _without_labels(data: HeteroData) -> HeteroData:
    out = copy.copy(data)
    for store in out.stores:
        if "y" in store:
            del store["y"]
    return out


def predicted_type(out: Any, data: HeteroData) -> str:
    """The node type that an output belongs to: the one with as many nodes as rows, or among several the one with ``y``.

    Args:
        out: What the model returned: scores, or scores by node type.
        data: The graph.
    """
    labelled = [kind for kind in data.node_types if data[kind].get("y") is not None]
    if isinstance(out, Mapping):
        fitting = [kind for kind, rows in out.items() if kind in data.node_types and isinstance(rows, Tensor)]
    else:
        shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        require(
            isinstance(out, Tensor) and out.dim() in (1, 2) and out.is_floating_point(),
            f"the model must return one row of class scores per node, or such rows by node type (got {shape}); wrap it",
        )
        fitting = [kind for kind in data.node_types if node_count(data, kind) == out.size(0)]
        require(
            len(fitting) > 0,
            f"the model returned {out.size(0)} rows, but no node type has so many nodes; return a row for every node "
            "of one type",
        )
    chosen = fitting if len(fitting) == 1 else [kind for kind in fitting if kind in labelled]
    require(
        len(chosen) == 1,
        f"the model's output may belong to the node types {listed(fitting)}; set y on the one that it predicts, "
        "or name it with output=...",
    )
    kind: str = chosen[0]
    return kind


class Place(NamedTuple):
    """Where the embedding of the predicted type is taken from: a call of a module, its input or its output."""

    name: str
    turn: int
    is_output: bool

    @property
    def text(self) -> str:
        """The text that stands for it on a card."""
        return f"{self.name}#{self.turn}{'>' if self.is_output else '<'}"

    @classmethod
    def of(cls, text: str) -> Place:
        """The place with this text."""
        name, _, turn = text[:-1].rpartition("#")
        require(turn.isdecimal() and text[-1:] in "<>", f"{text!r} is no place of an embedding; make the card again")
        return cls(name, int(turn), text.endswith(">"))

    def read(self, model: nn.Module, run: Callable[[], object], node_type: str, nodes: int) -> Tensor:
        """The rows of the predicted type at this place in a run of the model.

        Args:
            model: The model.
            run: Runs it.
            node_type: The predicted type.
            nodes: How many nodes it has.
        """
        seen: list[Tensor] = []
        turns = 0

        def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            nonlocal turns
            turns += 1
            if turns == self.turn and not self.is_output:
                seen.extend(_rows_of((*args, *kwargs.values()), node_type, nodes))

        def after(module: nn.Module, args: tuple[Any, ...], out: Any) -> None:
            if turns == self.turn and self.is_output:
                seen.extend(_rows_of((out,), node_type, nodes))

        module = model.get_submodule(self.name)
        with _removed(
            [module.register_forward_pre_hook(before, with_kwargs=True), module.register_forward_hook(after)]
        ):
            run()
        require(
            len(seen) > 0,
            f"the model has no rows of {node_type!r} at {self.name!r} this time; name another embedding",
        )
        return seen[0].flatten(1)


def _rows_of(values: Any, node_type: str, nodes: int) -> list[Tensor]:
    """Rows of the type among what a module is given: by type, as the target of a pair, or as they are."""
    rows = []
    for value in values:
        if isinstance(value, Mapping):
            value = value.get(node_type)
        elif isinstance(value, tuple) and len(value) == 2:
            value = value[1]
        is_rows = isinstance(value, Tensor) and value.is_floating_point() and value.dim() >= 2
        if is_rows and value.size(0) == nodes:
            rows.append(value)
    return rows


class _Seen(NamedTuple):
    place: Place
    depth: int
    value: Tensor


def find_place(
    model: nn.Module, run: Callable[[bool], object], node_type: str, nodes: int, embedding: str | None = None
) -> Place:
    """Where the second-last representation of the predicted type is: the input of the last layer.

    A layer whose input does not react to edges, such as a whole model inside a wrapper, is opened. If nothing reacts,
    it is the output of the model.

    Args:
        model: The model.
        run: Runs it, with all edges or with half of them.
        node_type: The predicted type.
        nodes: How many nodes it has.
        embedding: Name of the module whose output it is, if the user chose one.
    """
    if embedding is not None:
        embedding = text("embedding", embedding)
        names = dict(model.named_modules())
        known = listed(name for name in names if name)
        require(embedding in names, f"the model has no module {embedding!r}; its modules are {known}")
        place = Place(embedding, 1, is_output=True)
        place.read(model, lambda: run(True), node_type, nodes)
        return place
    calls, half = (_inputs(model, partial(run, given), node_type, nodes) for given in (True, False))
    without = {seen.place: seen.value for seen in half}

    def reacts(seen: _Seen) -> bool:
        other = without.get(seen.place)
        return other is not None and not torch.equal(seen.value, other)

    while calls:
        depth = min(seen.depth for seen in calls)
        last = max(k for k, seen in enumerate(calls) if seen.depth == depth)
        if reacts(calls[last]):
            return calls[last].place
        inside = [seen for seen in calls[last + 1 :] if seen.depth > depth]
        calls = inside or calls[:last]
    return Place("", 1, is_output=True)


def _inputs(model: nn.Module, run: Callable[[], object], node_type: str, nodes: int) -> list[_Seen]:
    """What the layers with weights are given of the predicted type, in the order in which they begin."""
    names = {
        module: name
        for name, module in model.named_modules()
        if name and not isinstance(module, _CONTAINERS) and any(p.dim() >= 2 for p in module.parameters())
    }
    turns: dict[nn.Module, int] = {}
    open_calls = 0
    found: list[_Seen] = []

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal open_calls
        turns[module] = turns.get(module, 0) + 1
        rows = _rows_of((*args, *kwargs.values()), node_type, nodes)
        if rows:
            place = Place(names[module], turns[module], is_output=False)
            found.append(_Seen(place, open_calls, rows[0].detach().flatten(1).clone()))
        open_calls += 1

    def after(module: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        nonlocal open_calls
        open_calls -= 1

    handles = [module.register_forward_pre_hook(before, with_kwargs=True) for module in names]
    handles += [module.register_forward_hook(after) for module in names]
    with _removed(handles), torch.no_grad():
        run()
    return found


@contextmanager
def _removed(handles: list[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
