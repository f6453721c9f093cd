"""The contracts on one screen. Anything that keeps one of them works with everything else.

An implementation needs no base class for them; :class:`graphmend.surrogates.Surrogate` and
:class:`graphmend.adapters.Adapter` are there because they save work. ``docs/extending.md`` has an example of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch import Generator, Tensor
from torch_geometric.data import Data

if TYPE_CHECKING:
    from graphmend.adapters.case import Case
    from graphmend.results.proposal import Proposal

__all__ = ["Adapter", "Backbone", "Surrogate", "Transform", "View"]


class Backbone(Protocol):
    """A model: logits and an embedding, for which edge weight 0 equals the edge not being there."""

    def __call__(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, /) -> Tensor:
        """Class scores, one row per node."""
        ...

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, /) -> Tensor:
        """Z, the second-last representation, one row per node."""
        ...


class Transform(Protocol):
    """A graph from a graph; the input is left as it was."""

    def __call__(self, data: Data, /) -> Data:
        """Another graph."""
        ...


class View(Protocol):
    """A random augmentation that keeps the nodes in place and draws from the generator that is passed in."""

    def __call__(self, data: Data, generator: Generator | None = None, /) -> Data:
        """An augmented copy."""
        ...


class Surrogate(Protocol):
    """A loss without test labels: a pure function of its arguments, random only through the generator."""

    def terms(self, model: Backbone, data: Data, generator: Generator | None = None, /) -> dict[str, Tensor]:
        """The named parts whose sum is the loss."""
        ...


class Adapter(Protocol):
    """Makes a trained model and a test graph fit each other.

    Where it needs something, it says so by attributes: ``changes_model = True`` (it is given a copy of the model to
    change), ``fills_missing = True`` (missing values are filled for it), ``embedding`` (the module whose output is Z),
    ``tasks`` (those of :data:`graphmend.outputs.TASKS` that it serves, such as ``("classes",)``).
    """

    def propose(self, case: Case, /) -> Proposal:
        """What to change, within ``case.limits``; nothing that it is given may be changed in place."""
        ...
