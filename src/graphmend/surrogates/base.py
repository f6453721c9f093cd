"""Surrogates as a class: weighted sums of them, and plain functions as surrogates."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.contracts import Backbone
from graphmend.errors import require

__all__ = ["Backbone", "Custom", "Scaled", "Sum", "Surrogate", "embed_views"]


class Surrogate(ABC):
    """A scalar loss of a model and a graph: a pure function of its arguments, random only through ``generator``.

    It is called with a frozen model and a graph whose ``edge_weight`` says how far each edge exists. Nothing in it
    needs to know how it is made fast; :func:`embed_views` lets several views of a graph go through the model together.
    """

    @abstractmethod
    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """The named parts whose sum is the loss."""

    def __call__(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> Tensor:
        """The loss."""
        return torch.stack(list(self.terms(model, data, generator).values())).sum()

    def signature(self) -> Hashable:
        """What tells losses apart that compute something else; results of trials are kept under it."""
        return type(self)

    def __add__(self, other: Surrogate) -> Surrogate:
        return Sum((self, other)) if isinstance(other, Surrogate) else NotImplemented

    def __mul__(self, factor: float) -> Surrogate:
        return Scaled(float(factor), self)

    __rmul__ = __mul__


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

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """The terms of all parts; equal names add up."""
        total: dict[str, Tensor] = {}
        for part in self.parts:
            for name, value in part.terms(model, data, generator).items():
                total[name] = total[name] + value if name in total else value
        return total

    def signature(self) -> Hashable:
        """Those of the parts."""
        return (Sum, *(part.signature() for part in self.parts))


@dataclass(frozen=True)
class Scaled(Surrogate):
    """A surrogate times a factor."""

    factor: float
    part: Surrogate

    def __post_init__(self) -> None:
        require(math.isfinite(self.factor), f"a surrogate's factor must be finite (got {self.factor})")

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """The terms of the part, scaled."""
        return {name: self.factor * value for name, value in self.part.terms(model, data, generator).items()}

    def signature(self) -> Hashable:
        """That of the part."""
        return self.part.signature()


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

    def signature(self) -> Hashable:
        """The code of the function, if it has any: a lambda written once is a new object at every call."""
        code: Hashable = getattr(self.function, "__code__", None)
        return code or str(type(self.function))
