"""Surrogates as a class: weighted sums of them, plain functions as surrogates, and what several of them share."""

from __future__ import annotations

import copy
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from types import CellType
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import graphmend.contracts as contracts
from graphmend.contracts import Backbone
from graphmend.engine.ops import at_least_single
from graphmend.errors import real_number, require
from graphmend.outputs import TASKS

__all__ = ["Backbone", "Custom", "Scaled", "Sum", "Surrogate", "TrainedModule", "embed_views", "unit_rows"]

M = TypeVar("M", bound=nn.Module)

_DEPTH = 8  # levels of functions within functions that are told apart


class Surrogate(ABC):
    """A scalar loss of a model and a graph: a pure function of its arguments, random only through ``generator``.

    It is called with a frozen model and a graph whose ``edge_weight`` says to what degree each edge exists. It does not
    need to know how it is made fast; :func:`embed_views` lets several views of a graph go through the model together.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend import GTrans, mend
        >>> from graphmend.lab.backbones import GCN
        >>> data, model = Data(x=torch.rand(20, 3), edge_index=torch.randint(20, (2, 60))).coalesce(), GCN(3, 8, 2)
        >>> from dataclasses import dataclass
        >>> from graphmend.surrogates import Surrogate
        >>> @dataclass(frozen=True)
        ... class Size(Surrogate):
        ...     # The size of the embedding.
        ...     def terms(self, model, data, generator=None):
        ...         return {"size": model.embed(data.x, data.edge_index, data.edge_weight).square().mean()}
        >>> history = mend(model, data, GTrans(Size(), steps=5, edge_steps=0)).history
        >>> history[-1].loss < history[0].loss
        True
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
        """The loss to use on a graph: losses that first learn something about it return another one, most return
        themselves.

        Adapters call it once, before the graph is changed.

        Args:
            model: The frozen model.
            data: The graph; model and graph are left as they were.
            seed: Seed of everything random.
        """
        return self

    def signature(self) -> Hashable:
        """A key that differs for losses that run different code; results of trials are kept under it.

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
    """The model's embedding of several views of one graph, all at once where the model can do that.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend import GTrans, mend
        >>> from graphmend.lab.backbones import GCN
        >>> data, model = Data(x=torch.rand(20, 3), edge_index=torch.randint(20, (2, 60))).coalesce(), GCN(3, 8, 2)
        >>> from graphmend.surrogates import embed_views
        >>> first, second = embed_views(model, [data, data])
        >>> torch.allclose(first, second), tuple(first.shape)
        (True, (20, 8))
    """
    together: Callable[[Sequence[Data]], Sequence[Tensor]] | None = getattr(model, "embed_views", None)
    if together is not None:
        return together(graphs)
    return [model.embed(graph.x, graph.edge_index, graph.get("edge_weight")) for graph in graphs]


@dataclass(frozen=True)
class Sum(Surrogate):
    """The sum of several surrogates.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend import GTrans, mend
        >>> from graphmend.lab.backbones import GCN
        >>> data, model = Data(x=torch.rand(20, 3), edge_index=torch.randint(20, (2, 60))).coalesce(), GCN(3, 8, 2)
        >>> from graphmend.surrogates import Entropy, Reconstruction, Sum
        >>> loss = Entropy() + 0.1 * Reconstruction()
        >>> isinstance(loss, Sum), list(loss.terms(model, data))
        (True, ['entropy', 'reconstruction'])
    """

    parts: tuple[Surrogate, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that all parts serve."""
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
    """A surrogate times a factor.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend import GTrans, mend
        >>> from graphmend.lab.backbones import GCN
        >>> data, model = Data(x=torch.rand(20, 3), edge_index=torch.randint(20, (2, 60))).coalesce(), GCN(3, 8, 2)
        >>> from graphmend.surrogates import Entropy, Scaled
        >>> loss = 0.1 * Entropy()
        >>> isinstance(loss, Scaled), list(loss.terms(model, data))
        (True, ['entropy'])
    """

    factor: float
    part: Surrogate

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", real_number("a surrogate's factor", self.factor))

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks of the part."""
        return self.part.tasks

    def prepare(self, model: Backbone, data: Data, seed: int = 0) -> Scaled:
        """The prepared part, scaled."""
        return Scaled(self.factor, self.part.prepare(model, data, seed))

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """The terms of the part, scaled."""
        return {name: self.factor * value for name, value in self.part.terms(model, data, generator).items()}


@dataclass(frozen=True)
class OfContract(Surrogate):
    """A user's loss that only has ``terms``, see :class:`graphmend.contracts.Surrogate`."""

    loss: contracts.Surrogate

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that the loss names; all of them if it names none."""
        return tuple(getattr(self.loss, "tasks", TASKS))

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """The terms of the loss."""
        return self.loss.terms(model, data, generator)

    def signature(self) -> Hashable:
        """The signature of the loss: its type, with names and switches."""
        return type(self.loss), *((name, _kind(value)) for name, value in getattr(self.loss, "__dict__", {}).items())


@dataclass(frozen=True)
class Custom(Surrogate):
    """A plain function ``(model, data) -> scalar`` as a surrogate.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend import GTrans, mend
        >>> from graphmend.lab.backbones import GCN
        >>> data, model = Data(x=torch.rand(20, 3), edge_index=torch.randint(20, (2, 60))).coalesce(), GCN(3, 8, 2)
        >>> from graphmend.surrogates import Custom
        >>> def size(model, data):
        ...     return model.embed(data.x, data.edge_index, data.edge_weight).square().mean()
        >>> loss = Custom(size)
        >>> history = mend(model, data, GTrans(loss, steps=5, edge_steps=0)).history
        >>> history[-1].loss < history[0].loss
        True
    """

    function: Callable[[Backbone, Data], Any]

    def terms(self, model: Backbone, data: Data, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """One term, named after the function."""
        name, value = getattr(self.function, "__name__", "custom"), self.function(model, data)
        got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        is_scalar = isinstance(value, Tensor) and value.numel() == 1
        require(is_scalar, f"the surrogate {name} must return a tensor with one number (got {got}); take its mean")
        return {name: value.reshape(())}


class TrainedModule(Generic[M]):
    """A trained module inside a loss: frozen, with copies for the devices and types of graphs.

    The copies are kept, because a recording on a GPU cannot copy from the CPU.

    Args:
        module: The trained module; from now on it is frozen.
    """

    def __init__(self, module: M) -> None:
        self.module = module.eval().requires_grad_(False)
        self._copies: dict[tuple[torch.device, torch.dtype], M] = {}

    def like(self, x: Tensor) -> M:
        """The module on the device and in the type of ``x``."""
        own = next(self.module.parameters())
        if (x.device, x.dtype) == (own.device, own.dtype):
            return self.module
        if (x.device, x.dtype) not in self._copies:
            self._copies[x.device, x.dtype] = copy.deepcopy(self.module).to(x.device, x.dtype)
        return self._copies[x.device, x.dtype]


def unit_rows(z: Tensor) -> Tensor:
    """Each row divided by its length, in single precision or better; a zero row stays zero and has no gradient."""
    z = z.to(at_least_single(z.dtype))
    norm = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    unit: Tensor = z * norm.masked_fill(norm == 0, torch.inf).reciprocal()
    return unit


def _kind(value: Any, depth: int = 0) -> Hashable:
    """A key that is equal for values that make a loss run the same code; it keeps no tensor alive.

    A function is represented by its code and by what it closes over, because a lambda is a new object at every call.
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
