"""A cache of attacked graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.errors import require
from graphmend.files.files import digest
from graphmend.lab.attacks.pairs import UndirectedGraph
from graphmend.lab.data.readers.sources import cached_arrays

__all__ = ["attacked"]

VERSION = 2
"""Part of every key, to be raised when an attack returns another graph for the same settings than before."""


def attacked(data: Data, model: nn.Module, attack: Callable[..., Any], **settings: Any) -> Data:
    """The graph that ``attack(model, **settings)`` returns for ``data``, computed once and cached.

    The cache holds the flipped node pairs under a hash of the graph, the model (class, options and weights) and all
    settings, including defaults. The device is not part of the hash: the CPU reuses an attack that a GPU computed.

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
    name = type(transform).__name__
    require(is_dataclass(transform), f"the attack must be a dataclass, whose settings are known (got {name})")
    values = {f.name: getattr(transform, f.name) for f in fields(transform) if f.name not in ("model", "progress")}
    options = {name: _text(value) for name, value in sorted(values.items())}
    graph = digest({name: value for name, value in data.to_dict().items() if isinstance(value, Tensor)})
    weights = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    description = f"{type(model).__module__}.{type(model).__qualname__} {model} {getattr(model, 'config', '')}"
    return f"{VERSION} {type(transform).__qualname__} {options} {graph} {digest(weights, description)}"


def _text(value: Any) -> str:
    return digest({"value": value}) if isinstance(value, Tensor) else repr(value)
