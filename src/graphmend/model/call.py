"""How a model is called, and which part of what it returns counts."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.data.storage import N_KEYS
from torch_geometric.nn import GAE

from graphmend.engine.shared_features import as_tensor
from graphmend.errors import GraphMendError, require, shown

__all__ = ["LABELS_ARE_KEPT", "Caller", "Output", "check_output_name", "fresh", "part_of", "scores_of"]

Output = str | int | None
"""Which part of what a model returns has the scores: a key or an attribute, a position, or all of it."""

LABELS_ARE_KEPT = (
    "the model's forward asks for the labels y, which are kept from it so that its predictions do not depend on them; "
    "wrap the model so that it needs none, or give it those it may see under another name"
)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Caller:
    """Calls ``forward(data)`` or ``forward(x, edge_index, ...)``, whichever a module or function has.

    The features go to the parameter ``x``, or else to the first one; the edges to ``edge_index``, or else to the second
    one, unless that is named after an attribute of nodes (``batch``, ``pos``), as in a model that reads no edges.
    Further parameters (``edge_weight``, ``edge_attr``, ``batch``, ``pe``, ...) are filled from attributes of the graph
    with the same name; without such an attribute, a parameter keeps its default, and a ``batch`` without a default says
    that all nodes belong to one graph. The model never gets the labels ``y``: it could simply repeat them.

    Args:
        function: A module, called with its hooks, or a function.
        leave_out: Optional parameters that are not filled.
        output: Which part of what it returns to take.
        shows_labels: Whether labels are passed on after all, to see whether they are what a model is missing.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        leave_out: frozenset[str] = frozenset(),
        *,
        output: Output = None,
        shows_labels: bool = False,
    ) -> None:
        function = _encoding(function)
        self.function = function
        self.leave_out = leave_out
        self.output = output
        self.shows_labels = shows_labels
        parameters = _signature(function).parameters.values()
        named = [p for p in parameters if p.kind not in _REST]
        names = [p.name for p in named]
        by_position = [p.name for p in named if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        required = [p.name for p in named if p.default is inspect.Parameter.empty]
        alone = required if len(required) == 1 else names if len(names) == 1 else []
        self.wants_data = alone not in ([], ["x"]) and "edge_index" not in names
        if self.wants_data:
            graph = alone
        elif names:
            features = "x" if "x" in names else names[0]
            second = [name for name in by_position[1:2] if features == by_position[0] and name not in N_KEYS]
            graph = [features, *(["edge_index"] if "edge_index" in names else second)]
            require(features != "edge_index", "the model's forward has no parameter x and reads no node features")
        else:
            graph = ["x", "edge_index"]
            takes_any = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
            require(
                takes_any, "the model's forward has no parameters; let it take the graph, as forward(x, edge_index)"
            )
        self.graph = graph  #: the parameters that are given the graph, or its features and edges
        self._in_order = not names or graph == by_position[: len(graph)]
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
        """Call the function on a graph, and take the part of its output that was chosen."""
        out = self._called(data)
        return out if self.output is None else part_of(out, self.output)

    def _called(self, data: Data) -> Any:
        if self.wants_data:
            return self.function(data if self.shows_labels else _without_labels(data))
        require("y" not in self.required or self.shows_labels, LABELS_ARE_KEPT)
        further = {name: data[name] for name in self.extra if data.get(name) is not None}
        if "batch" in self.required and "batch" not in further:  # as a loader would say of a single graph
            further["batch"] = torch.zeros(data.x.size(0), dtype=torch.long, device=data.x.device)
        missing = [name for name in self.required if name not in further]
        if missing:
            raise GraphMendError(
                f"the model's forward needs {', '.join(missing)}, which the graph does not have; "
                f"set data.{missing[0]} or wrap the model"
            )
        graph = dict(zip(self.graph, (data.x, data.edge_index), strict=False))
        if self._in_order:
            return self.function(*graph.values(), **further)
        return self.function(**graph, **further)


def check_output_name(output: Any) -> Output:
    """``output``, if it is a name, a position or ``None``."""
    is_known = output is None or (isinstance(output, str | int) and not isinstance(output, bool))
    require(is_known, f"output must be the name or the position of a part of the model's output (got {shown(output)})")
    return output  # type: ignore[no-any-return]


def _described(out: Any) -> str:
    """What a model returned, for a message: its shape, or the shapes of its parts."""
    if isinstance(out, Tensor):
        return f"{tuple(out.shape)}"
    parts = [
        f"{name!r}: {tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__}"
        for name, part in _parts(out).items()
    ]
    return f"{type(out).__name__} with {', '.join(parts)}" if parts else type(out).__name__


def _parts(out: Any) -> dict[str | int, Any]:
    """The parts of an output by key, attribute or position."""
    if isinstance(out, Mapping):
        return {key: part for key, part in out.items() if isinstance(key, str | int)}
    fields = getattr(out, "_fields", None) or getattr(type(out), "__dataclass_fields__", {})
    by_name: dict[str | int, Any] = {name: getattr(out, name) for name in fields}
    return by_name or (dict(enumerate(out)) if isinstance(out, tuple | list) else {})


def part_of(out: Any, output: str | int) -> Any:
    """The chosen part of an output."""
    if isinstance(output, int) and isinstance(out, tuple | list) and -len(out) <= output < len(out):
        return out[output]
    parts = _parts(out)
    require(
        output in parts, f"the model returns no part {output!r} (got {_described(out)}); choose one that it returns"
    )
    return parts[output]


def _encoding(function: Callable[..., Any]) -> Callable[..., Any]:
    """What computes the embedding of a model that encodes and decodes: its ``encode``, if it has no forward of its own.

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
    """The parameters of a function, or of the forward of a module.

    Those of a traced model, or of one from a TorchScript file, are in its schema; a forward that takes anything
    (``*args, **kwargs``) passes it on to the only part of the model that has weights, and takes what that takes.
    """
    forward = function.forward if isinstance(function, nn.Module) else function
    try:
        signature = inspect.signature(forward)
    except ValueError as error:
        schema = getattr(forward, "schema", None)
        if schema is None:
            raise GraphMendError(f"the parameters of the model's forward are unknown ({error}); wrap it") from error
        kind, none = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
        return inspect.Signature(
            [
                inspect.Parameter(a.name, kind, default=a.default_value if a.has_default_value() else none)
                for a in schema.arguments[1:]  # the first one is the model
            ]
        )
    kinds = {p.kind for p in signature.parameters.values()}
    owner = getattr(function, "__self__", function)
    if isinstance(owner, nn.Module) and kinds == set(_REST):
        inner = [child for child in owner.children() if any(True for _ in child.parameters())]
        if len(inner) == 1:
            return _signature(inner[0])
    return signature


def _without_labels(data: Data) -> Data:
    if "y" not in data:
        return data
    out = copy.copy(data)
    del out.y
    return out


def fresh(data: Data, written: Iterable[str]) -> Data:
    """A copy of a graph for a model to keep, with tensors of its own where the model writes into them.

    Args:
        data: The graph.
        written: The attributes that the model writes into.
    """
    out = copy.copy(data)
    for name in written:
        out[name] = as_tensor(data[name]).clone()
    return out


def scores_of(out: Any, nodes: int, graphs: int = 1) -> Tensor:
    """What a model has returned, if it is one row of numbers per node, or per graph.

    Args:
        out: What it has returned.
        nodes: The number of nodes.
        graphs: Of how many graphs they are.
    """
    fits = isinstance(out, Tensor) and out.dim() in (1, 2) and out.size(0) in (nodes, graphs) and out.numel() > 0
    remedy = (
        "wrap it; of a model that scores pairs of nodes, give the part that encodes them"
        if isinstance(out, Tensor)
        else "say which part has them, as in output='logits' or output=0"
    )
    needed = f"the model must return one row per node, {nodes} rows, or per graph, {graphs}"
    require(fits, f"{needed} (got {_described(out)}); {remedy}")
    is_dense = out.layout == torch.strided and out.is_floating_point()
    require(is_dense, f"the model must return floating-point scores (got {out.dtype}, {out.layout}); wrap it")
    return out  # type: ignore[no-any-return]
