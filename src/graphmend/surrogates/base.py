"""The surrogate contract, and weighted sums of surrogates."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import require


class Backbone(Protocol):
    """Anything with logits and an embedding: a GraphMend backbone, or any model inside ``FrozenGNN``."""

    def __call__(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, /) -> Tensor:
        """Class scores."""
        ...

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, /) -> Tensor:
        """The second-last representation."""
        ...


class Surrogate(ABC):
    """A scalar loss of a model and a graph: a pure function of its arguments, random only through ``generator``."""

    @abstractmethod
    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """The named parts whose sum is the loss."""

    def __call__(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> Tensor:
        """The loss."""
        return torch.stack(list(self.terms(model, data, generator).values())).sum()

    def __add__(self, other: Surrogate) -> Surrogate:
        return Sum((self, other)) if isinstance(other, Surrogate) else NotImplemented

    def __mul__(self, factor: float) -> Surrogate:
        return Scaled(float(factor), self)

    __rmul__ = __mul__


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


@dataclass(frozen=True)
class Custom(Surrogate):
    """A plain function ``(model, data) -> scalar`` as a surrogate."""

    function: Callable[[Backbone, Data], Tensor]

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """One term, named after the function."""
        name, value = getattr(self.function, "__name__", "custom"), self.function(model, data)
        found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        is_scalar = isinstance(value, Tensor) and value.numel() == 1
        require(is_scalar, f"the surrogate {name} must return a tensor with one number (got {found}); take its mean")
        return {name: value.reshape(())}
