"""Findings of trial runs about a model, kept for its next graph.

Findings belong to a model of a certain structure with a certain kind of graph. Anything that could change them, another
layer, setting or hook, another width or attribute of the graph, leads to new trials. Nothing here refers to the model,
which could otherwise never be freed.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.engine.report import Abilities
from graphmend.model.edge_weights import Weighting
from graphmend.model.embedding import Tap
from graphmend.model.first_layer import FirstLayer

__all__ = ["OwnEmbed", "Taps", "Wiring", "signature", "wiring_of"]

_FEW = 8  # entries of a list or tuple that are looked at


class OwnEmbed:
    """Z comes from the model's own ``embed`` method."""


@dataclass(frozen=True)
class Taps:
    """Where a model's first layer and its Z come from, so that they are the same on every graph.

    Args:
        first_layer: Where the first pre-activation comes from.
        embedding: Where Z comes from.
    """

    first_layer: FirstLayer
    embedding: OwnEmbed | Tap


@dataclass
class Wiring:
    """How a model is run; ``None`` means not tried yet."""

    leave_out: frozenset[str] = frozenset()  #: optional arguments of its forward that it cannot take
    runs_on_sample: bool | None = None  #: whether a few nodes of the graph are enough for trials
    written: tuple[str, ...] | None = None  #: attributes of a graph that it writes into
    weighting: Weighting | None = None  #: how its edges get weights
    reads_weights: bool | None = None  #: whether a graph's ``edge_weight`` does what presences do
    embedding: OwnEmbed | Tap | None = None  #: where Z comes from
    is_own_embed_traced: bool = False  #: whether the layer was looked for that shows what the model's own embed returns
    own_embed_tap: Tap | None = None  #: that layer, if there is one
    takes_shared_features: bool | None = None
    stacks_views: bool | None = None  #: whether several views can go through it as one graph
    numbers_of_views: set[int] = field(default_factory=set)  #: how many went through it so far
    abilities: dict[Hashable, Abilities] = field(default_factory=dict)  #: by loss


_WIRINGS: weakref.WeakKeyDictionary[nn.Module, dict[Hashable, Wiring]] = weakref.WeakKeyDictionary()


def wiring_of(model: nn.Module, key: Hashable) -> Wiring:
    """What is known about a model, under the key of its :func:`signature`."""
    return _WIRINGS.setdefault(model, {}).setdefault(key, Wiring())


def signature(model: nn.Module, data: Data, embedding: str | None) -> Hashable:
    """All that the findings depend on: structure, settings and hooks of the model, and the kind of the graph."""
    layers = tuple((name, type(module), _settings(module)) for name, module in model.named_modules())
    attributes = tuple((name, _kind(value)) for name, value in sorted(data.to_dict().items()))
    has_loops = bool((data.edge_index[0] == data.edge_index[1]).any())  # a model may remove them
    return layers, attributes, has_loops, embedding


def _settings(module: nn.Module) -> tuple[Any, ...]:
    """Plain attributes, which hooks there are, and which functions it has, including a ``forward`` of its own."""
    settings: list[Any] = []
    for name, value in vars(module).items():
        if isinstance(value, (bool, int, float, str, type(None))) and name != "training":
            settings.append((name, value))
        elif isinstance(value, dict) and "hooks" in name:
            settings.append((name, tuple(value)))  # their numbers, which are never used again
        elif isinstance(value, (list, tuple)) and len(value) <= _FEW:
            settings.append((name, repr(value)))
        elif inspect.isroutine(value):
            settings.append((name, id(value)))
    return tuple(settings)


def _kind(value: Any) -> Hashable:
    """Type and width, but not the number of nodes or edges."""
    if isinstance(value, Tensor):
        return value.dtype, value.device, value.dim(), value.size(-1) if value.dim() == 2 and value.size(0) != 2 else 0
    return str(type(value))
