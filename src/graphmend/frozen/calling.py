"""How a model wants to be given a graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch_geometric.data import Data

from graphmend.errors import GraphMendError

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Caller:
    """Calls ``forward(data)`` or ``forward(x, edge_index, ...)``, whichever a function has.

    Further parameters (``edge_weight``, ``edge_attr``, ``batch``, ...) are filled from attributes of the graph with the
    same name; those that have a default and no such attribute are left alone.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        parameters = list(inspect.signature(function).parameters.values())
        named = [p for p in parameters if p.kind in (*_NAMED, inspect.Parameter.POSITIONAL_ONLY)]
        required = [p.name for p in named if p.default is inspect.Parameter.empty]
        names = [p.name for p in named]
        self.wants_data = len(required) == 1 and required[0] != "x" and "edge_index" not in names
        self.required = [] if self.wants_data else required[2:]
        skip = 1 if self.wants_data else 2
        self.extra = [p.name for p in named[skip:] if p.kind in _NAMED]

    def accepts(self, name: str) -> bool:
        """Whether the attribute ``name`` of a graph reaches the function."""
        return self.wants_data or name in self.extra

    def __call__(self, data: Data) -> Any:
        """Call the function on a graph."""
        if self.wants_data:
            return self.function(data)
        missing = [name for name in self.required if data.get(name) is None]
        if missing:
            raise GraphMendError(
                f"the model's forward needs {', '.join(missing)}, which the graph does not have; "
                f"set data.{missing[0]} or wrap the model"
            )
        found = {name: data[name] for name in self.extra if data.get(name) is not None}
        return self.function(data.x, data.edge_index, **found)
