"""Surrogates as a class: weighted sums of them, and plain functions as surrogates."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from types import CellType
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

import graphmend.contracts as contracts
from graphmend.contracts import Backbone
from graphmend.errors import real_number, require
from graphmend.outputs import TASKS

__all__ = ["Backbone", "Custom", "Scaled", "Sum", "Surrogate", "embed_views"]

_DEPTH = 8  # functions inside functions that are told apart


class Surrogate(ABC):
    """A scalar loss of a model and a graph: a pure function of its arguments, random only through ``generator``.

    It is called with a frozen model and a graph whose ``edge_weight`` says how far each edge exists. Nothing in it
    needs to know how it is made fast; :func:`embed_views` lets several views of a graph go through the model together.
    """

    @property
    def tasks(self) -> tuple[str, ...]:
        """What the model's rows may be, of :data:`graphmend.outputs.TASKS`."""
        return TASKS

    @abstractmethod
    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """The named parts whose sum is the loss."""

    def __call__(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> Tensor:
        """The loss."""
        return torch.stack(list(self.terms(model, data, generator).values())).sum()

    def prepare(self, model: Backbone, data: Data, seed: int = 0) -> Surrogate:
        """The loss to use on a graph, for losses that learn something about it first; the others are used as they are.

        Adapters call it once, before the graph is changed.

        Args:
            model: The frozen model.
            data: The graph; model and graph are left as they were.
            seed: Seed of everything random.
        """
        return self

    def signature(self) -> Hashable:
        """What tells losses apart that run other code; results of trials are kept under it.

        These are the types of a loss and of all that it consists of, with names and switches, but without numbers.
        """
        return type(self), *((name, _kind(value)) for name, value in getattr(self, "__dict__", {}).items())

    def __add__(self, other: contracts.Surrogate) -> Surrogate:
        return Sum((self, _based(other))) if callable(getattr(other, "terms", None)) else NotImplemented

    def __radd__(self, other: contracts.Surrogate) -> Surrogate:
        return Sum((_based(other), self)) if callable(getattr(other, "terms", None)) else NotImplemented

    def __mul__(self, factor: float) -> Surrogate:
        return Scaled(factor, self)

    __rmul__ = __mul__


def _based(loss: contracts.Surrogate) -> Surrogate:
    """A loss with what the base class adds."""
    return loss if isinstance(loss, Surrogate) else OfContract(loss)


def embed_views(model: Backbone, graphs: Sequence[Data]) -> Sequence[Tensor]:
    """The model's embedding of several views of one graph, all at once where the model can do that."""
    together: Callable[[Sequence[Data]], Sequence[Tensor]] | None = getattr(model, "embed_views", None)
    if together is not None:
        return together(graphs)
    return [model.embed(graph.x, graph.edge_index, graph.get("edge_weight")) for graph in graphs]


@dataclass(frozen=True)
class Sum(Surrogate):
    """The sum of several surrogates."""

    parts: tuple[Surrogate, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """Those that all parts serve."""
        return tuple(task for task in TASKS if all(task in part.tasks for part in self.parts))

    def prepare(self, model: Backbone, data: Data, seed: int = 0) -> Sum:
        """The sum of the prepared parts."""
        return Sum(tuple(part.prepare(model, data, seed) for part in self.parts))

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """The terms of all parts; equal names add up."""
        total: dict[str, Tensor] = {}
        for part in self.parts:
            for name, value in part.terms(model, data, generator).items():
                total[name] = total[name] + value if name in total else value
        return total


@dataclass(frozen=True)
class Scaled(Surrogate):
    """A surrogate times a factor."""

    factor: float
    part: Surrogate

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", real_number("a surrogate's factor", self.factor))

    @property
    def tasks(self) -> tuple[str, ...]:
        """Those of the part."""
        return self.part.tasks

    def prepare(self, model: Backbone, data: Data, seed: int = 0) -> Scaled:
        """The prepared part, scaled."""
        return Scaled(self.factor, self.part.prepare(model, data, seed))

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """The terms of the part, scaled."""
        return {name: self.factor * value for name, value in self.part.terms(model, data, generator).items()}


@dataclass(frozen=True)
class OfContract(Surrogate):
    """Somebody's own loss with nothing but ``terms``, see :class:`graphmend.contracts.Surrogate`."""

    loss: contracts.Surrogate

    @property
    def tasks(self) -> tuple[str, ...]:
        """Those that the loss names; all of them where it names none."""
        return tuple(getattr(self.loss, "tasks", TASKS))

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """The terms of the loss."""
        return self.loss.terms(model, data, generator)

    def signature(self) -> Hashable:
        """That of the loss: its type, with names and switches."""
        return type(self.loss), *((name, _kind(value)) for name, value in getattr(self.loss, "__dict__", {}).items())


@dataclass(frozen=True)
class Custom(Surrogate):
    """A plain function ``(model, data) -> scalar`` as a surrogate."""

    function: Callable[[Backbone, Data], Any]

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """One term, named after the function."""
        name, value = getattr(self.function, "__name__", "custom"), self.function(model, data)
        got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        is_scalar = isinstance(value, Tensor) and value.numel() == 1
        require(is_scalar, f"the surrogate {name} must return a tensor with one number (got {got}); take its mean")
        return {name: value.reshape(())}


def _kind(value: Any, depth: int = 0) -> Hashable:
    """The same for values that make a loss run the same code; refers to no tensor, so that none is kept alive.

    A function counts by its code and by what it closes over: a lambda written once is a new object at every call.
    """
    if isinstance(value, Surrogate):
        return value.signature()
    if isinstance(value, (str, bool, type(None))):
        return value
    if depth == _DEPTH:  # a function may close over itself
        return (type(value),)
    if isinstance(value, tuple):
        return tuple(_kind(part, depth + 1) for part in value)
    if isinstance(value, functools.partial):
        return tuple(_kind(part, depth + 1) for part in (value.func, value.args, *value.keywords.items()))
    code: Hashable = getattr(value, "__code__", None)
    if code is None:
        return type(value), str(getattr(value, "__qualname__", ""))
    parts = [*map(_content, value.__closure__ or ()), *(value.__defaults__ or ())]
    return code, *(_kind(part, depth + 1) for part in parts)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable without a value; the function will say so when it is called
        return None
