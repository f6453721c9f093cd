"""How a model wants to be given a graph."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GAE

from graphmend.errors import GraphMendError, require

LABELS_ARE_KEPT = (
    "the model's forward asks for the labels y, which are kept from it so that its predictions do not depend on them; "
    "wrap the model so that it needs none, or give it those it may see under another name"
)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Caller:
    """Calls ``forward(data)`` or ``forward(x, edge_index, ...)``, whichever a module or function has.

    Further parameters (``edge_weight``, ``edge_attr``, ``batch``, ...) are filled from attributes of the graph with the
    same name; those that have a default and no such attribute are left alone. The labels ``y`` are kept from it: a
    model that saw them would predict what it was told.

    Args:
        function: A module, called with its hooks, or a function.
        leave_out: Optional parameters that are not filled.
        shows_labels: Whether labels are handed over all the same, to see whether they are what a model misses.
    """

    def __init__(
        self, function: Callable[..., Any], leave_out: frozenset[str] = frozenset(), *, shows_labels: bool = False
    ) -> None:
        function = _encoding(function)
        self.function = function
        self.leave_out = leave_out
        self.shows_labels = shows_labels
        signature = _signature(function.forward if isinstance(function, nn.Module) else function)
        kinds = (*_NAMED, inspect.Parameter.POSITIONAL_ONLY)
        named = [p for p in signature.parameters.values() if p.kind in kinds]
        names = [p.name for p in named]
        required = [p.name for p in named if p.default is inspect.Parameter.empty]
        self.wants_data = len(required) == 1 and required[0] != "x" and "edge_index" not in names
        by_position = sum(p.kind is not inspect.Parameter.KEYWORD_ONLY for p in named)
        usual = names[:2] == ["x", "edge_index"] and by_position >= 2
        self._by_name = not usual and {"x", "edge_index"} <= {p.name for p in named if p.kind in _NAMED}
        first_two = ["x", "edge_index"] if self._by_name else names[:2]
        graph = required if self.wants_data else first_two
        self.required = [name for name in required if name not in graph]
        self.extra = [
            p.name
            for p in named
            if p.kind in _NAMED
            and p.name not in graph
            and (p.name in required or (p.name not in leave_out and p.name != "y"))
        ]

    def accepts(self, name: str) -> bool:
        """Whether the attribute ``name`` of a graph reaches the function."""
        return self.wants_data or name in self.extra

    def __call__(self, data: Data) -> Any:
        """Call the function on a graph."""
        if self.wants_data:
            return self.function(data if self.shows_labels else _without_labels(data))
        require("y" not in self.required or self.shows_labels, LABELS_ARE_KEPT)
        missing = [name for name in self.required if data.get(name) is None]
        if missing:
            raise GraphMendError(
                f"the model's forward needs {', '.join(missing)}, which the graph does not have; "
                f"set data.{missing[0]} or wrap the model"
            )
        further = {name: data[name] for name in self.extra if data.get(name) is not None}
        if self._by_name:
            return self.function(x=data.x, edge_index=data.edge_index, **further)
        return self.function(data.x, data.edge_index, **further)


def _encoding(function: Callable[..., Any]) -> Callable[..., Any]:
    """What gives the embedding of a model that encodes and decodes: its ``encode``, where it has no forward of its own.

    The forward of PyG's ``GAE`` and ``VGAE`` is that of the encoder, which gives a ``VGAE`` means and deviations.
    """
    if not isinstance(function, nn.Module) or not is_encoder(function):
        return function
    has_forward = type(function).forward is not nn.Module.forward
    encode: Any = function.encode
    return function if has_forward and not isinstance(function, GAE) else encode


def is_encoder(model: nn.Module) -> bool:
    """Whether a model encodes nodes and decodes pairs of them, as PyG's ``GAE`` does."""
    inner = getattr(model, "_orig_mod", model)
    return callable(getattr(inner, "encode", None)) and callable(getattr(inner, "decode", None))


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """The parameters of a function; those of a traced model, or of one from a TorchScript file, are in its schema."""
    try:
        return inspect.signature(function)
    except ValueError as error:
        schema = getattr(function, "schema", None)
        if schema is None:
            raise GraphMendError(f"the parameters of the model's forward are unknown ({error}); wrap it") from error
        kind, none = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
        return inspect.Signature(
            [
                inspect.Parameter(a.name, kind, default=a.default_value if a.has_default_value() else none)
                for a in schema.arguments[1:]  # the first one is the model
            ]
        )


def _without_labels(data: Data) -> Data:
    if "y" not in data:
        return data
    out = copy.copy(data)
    del out.y
    return out
