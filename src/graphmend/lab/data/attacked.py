"""Attacked graphs: an attack at given nodes, and a cache of attacks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.errors import require
from graphmend.files.files import digest
from graphmend.graph.convert import with_edge_index
from graphmend.graph.edge_flips import pair_of
from graphmend.lab.attacks.pairs import UndirectedGraph
from graphmend.lab.attacks.prbcd import PRBCD
from graphmend.lab.data.readers.sources import cached_arrays
from graphmend.outputs import read_mask

__all__ = ["attack_graph", "attacked"]


def attack_graph(
    model: nn.Module,
    data: Data,
    victims: Tensor,
    rate: float = 0.1,
    seed: int = 0,
    epochs: int = 25,
    *,
    known: Tensor | None = None,
    block_size: int = 10_000,
) -> Data:
    """The undirected graph after a :class:`~graphmend.transforms.PRBCD` attack on ``model`` at the victims.

    It aims at the model's own clean predictions, and at true labels only where ``known`` allows, so no other label is
    read. Model, data and random generators are left as they were; the same seed gives the same graph.

    Args:
        model: A trained module called as ``model(x, edge_index, edge_weight)``, or any that FrozenGNN supports.
        data: An unweighted, undirected graph without repeated edges.
        victims: Mask of the nodes whose predictions are attacked.
        rate: Budget: the number of undirected edges flipped at most, as a fraction of those with a victim at an end.
        seed: Seed of the random blocks and of the final samples.
        epochs: Gradient steps; the block of candidate pairs is resampled during the first three quarters.
        known: Mask of the nodes whose true labels the attacker knows, typically the training nodes.
        block_size: Node pairs considered at a time.

    Returns:
        A copy of ``data`` with another ``edge_index`` (sorted, both directions).

    Example:
        >>> from graphmend.lab.backbones import GCN
        >>> from graphmend.lab.data import attack_graph, embedded
        >>> data = embedded("wine").test[0]
        >>> harmed = attack_graph(GCN(13, 16, 3), data, data.test_mask, rate=0.05, epochs=2)
        >>> harmed.num_nodes, harmed.is_undirected()
        (178, True)
    """
    data = with_edge_index(data)
    graph = UndirectedGraph.of(data)
    victims = read_mask(victims, graph.num_nodes, "victims").to(data.x.device)
    known = torch.zeros_like(victims) if known is None else known
    attack = PRBCD(model, rate=rate, nodes=victims, known=known, block_size=block_size, epochs=epochs, seed=seed)
    near = victims[pair_of(graph.pairs, graph.num_nodes)].any(0)
    budget = math.floor(attack.rate * int(near.sum()) + 1e-9)
    return replace(attack, budget=budget, resampling_epochs=max(1, 3 * attack.epochs // 4))(data)


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
        >>> from graphmend.lab.attacks import PRBCD
        >>> from graphmend.lab.backbones import GCN
        >>> from graphmend.lab.data import attacked, embedded
        >>> data, model = embedded("wine").test[0], GCN(13, 16, 3)
        >>> attacked(data, model, PRBCD, rate=0.05, epochs=2).num_nodes
        178
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
