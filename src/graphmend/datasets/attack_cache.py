"""Attacked graphs that are computed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.datasets.readers.sources import cached_arrays
from graphmend.errors import require
from graphmend.io.files import digest
from graphmend.transforms.attacks.pairs import UndirectedGraph

__all__ = ["attacked"]

VERSION = 1
"""Part of every key; raised when an attack changes in what it returns for the same settings."""

NO_MATTER = {"model", "progress"}


def attacked(data: Data, model: nn.Module, attack: Callable[..., Any], **settings: Any) -> Data:
    """The graph that ``attack(model, **settings)`` makes of ``data``, from the cache if it was ever made before.

    What is kept is the list of flipped node pairs, under a hash of the graph, the model (class, options and weights)
    and all settings, defaults included. The device is no part of it: a graph attacked on a GPU is found on the CPU.

    Args:
        data: The clean graph.
        model: The model under attack.
        attack: :class:`~graphmend.transforms.PRBCD`, :class:`~graphmend.transforms.GRBCD` or another dataclass that
            makes a transform of a model.
        **settings: Arguments of the attack.

    Example:
        >>> attacked(data, model, PRBCD, rate=0.1, seed=3)  # doctest: +SKIP
    """
    transform = attack(model, **settings)
    graph = UndirectedGraph.of(data)

    def build() -> dict[str, Any]:
        result = transform(data)
        return {"flips": graph.changes_to(UndirectedGraph.of(result)).cpu().numpy()}

    flips = torch.from_numpy(cached_arrays("attacked", _key(data, model, transform), build)["flips"])
    return graph.flipped(flips.to(graph.pairs)).put_into(data)


def _key(data: Data, model: nn.Module, transform: Any) -> str:
    known = hasattr(type(transform), "__dataclass_fields__")
    require(known, f"the attack must be a dataclass, to know its settings (got {type(transform).__name__})")
    values = {f.name: getattr(transform, f.name) for f in fields(transform) if f.name not in NO_MATTER}
    options = {name: _text(value) for name, value in sorted(values.items())}
    graph = digest({name: value for name, value in data.to_dict().items() if isinstance(value, Tensor)})
    weights = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    about = f"{type(model).__module__}.{type(model).__qualname__} {model} {getattr(model, 'config', '')}"
    return f"{VERSION} {type(transform).__qualname__} {options} {graph} {digest(weights, about)}"


def _text(value: Any) -> str:
    return digest({"value": value}) if isinstance(value, Tensor) else repr(value)
