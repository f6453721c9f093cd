"""A structure attack on a trained model at given nodes."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.graph.convert import with_edge_index
from graphmend.graph.pairs import pair_of
from graphmend.lab.attacks.pairs import UndirectedGraph
from graphmend.lab.attacks.prbcd import PRBCD
from graphmend.outputs import read_mask

__all__ = ["attack_graph"]


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
    """
    data = with_edge_index(data)
    graph = UndirectedGraph.of(data)
    victims = read_mask(victims, graph.num_nodes, "victims").to(data.x.device)
    known = torch.zeros_like(victims) if known is None else known
    attack = PRBCD(model, rate=rate, nodes=victims, known=known, block_size=block_size, epochs=epochs, seed=seed)
    near = victims[pair_of(graph.pairs, graph.num_nodes)].any(0)
    budget = math.floor(attack.rate * int(near.sum()) + 1e-9)
    return replace(attack, budget=budget, resampling_epochs=max(1, 3 * attack.epochs // 4))(data)
