"""A structure attack on a trained model: the graph that an adversary would leave behind."""

from __future__ import annotations

import copy
import math
import warnings

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.errors import GraphMendError, require

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
    """The undirected graph after a PR-BCD evasion attack on the predictions of ``model`` at the victims.

    `Projected randomised block coordinate descent <https://arxiv.org/abs/2110.14038>`_ with the tanh-margin loss, in
    PyG's implementation, adds and removes edges against the trained weights. It aims at the model's own clean
    predictions, and at true labels only where ``known`` allows, so no other label is read. Model, data and torch's
    generators are left as they were; the same seed gives the same graph.

    Args:
        model: A trained module called as ``model(x, edge_index, edge_weight)``.
        data: An unweighted, undirected graph without repeated edges.
        victims: Boolean mask of the nodes whose predictions are attacked.
        rate: Budget: the number of undirected edges flipped at most, as a fraction of those with a victim at an end.
        seed: Seed of the random blocks and of the final samples.
        epochs: Gradient steps; the block of candidate pairs is resampled during the first three quarters.
        known: Boolean mask of the nodes whose true labels the attacker knows, typically the training nodes.
        block_size: Node pairs considered at a time.

    Returns:
        A copy of ``data`` with another ``edge_index`` (sorted, both directions).
    """
    require(0 <= rate <= 1, f"rate must be in [0, 1] (got {rate})")
    require(epochs >= 1, f"epochs must be at least 1 (got {epochs})")
    fits = victims.dtype == torch.bool and tuple(victims.shape) == (data.num_nodes,)
    require(fits, f"victims must be a boolean mask of shape ({data.num_nodes},) (got shape {tuple(victims.shape)})")
    require(
        data.edge_weight is None and data.edge_attr is None,
        "the attack flips edges of unweighted graphs, but data has edge_weight or edge_attr; remove them first",
    )
    require(
        data.is_undirected() and data.edge_index.unique(dim=1).size(1) == data.edge_index.size(1),
        "the attack needs an undirected graph without repeated edges; apply torch_geometric.transforms.ToUndirected",
    )
    row, col = data.edge_index
    budget = math.floor(rate * int(((row < col) & (victims[row] | victims[col])).sum()) + 1e-9)
    require(block_size > budget, f"block_size must exceed the budget of {budget} edges (got {block_size})")
    attacked = copy.copy(data)
    if budget == 0:
        return attacked
    frozen = copy.deepcopy(model).eval().requires_grad_(False)
    cuda = [data.x.device] if data.x.is_cuda else []
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(seed)
        if cuda:
            torch.cuda.manual_seed(seed)
        edge_index = _attack(frozen, data, victims, known, budget, epochs, block_size)
    attacked.edge_index = edge_index
    return attacked


def _attack(
    frozen: nn.Module, data: Data, victims: Tensor, known: Tensor | None, budget: int, epochs: int, block_size: int
) -> Tensor:
    with warnings.catch_warnings():  # importing torch_geometric.contrib says that it is experimental
        warnings.simplefilter("ignore")
        from torch_geometric.contrib.nn import PRBCDAttack
    with torch.no_grad():
        labels = frozen(data.x, data.edge_index).argmax(dim=-1)
    if known is not None:
        labels = torch.where(known, data.y.reshape(-1), labels)
    resampling = max(1, 3 * epochs // 4)
    prbcd = PRBCDAttack(frozen, block_size, epochs, resampling, loss="tanh_margin", is_undirected=True, log=False)
    try:
        edge_index, _ = prbcd.attack(data.x, data.edge_index, labels, budget, idx_attack=victims)
    except RuntimeError as error:
        raise GraphMendError(f"the attack failed with a budget of {budget} edges ({error}); lower the rate") from error
    found: Tensor = edge_index
    return found
