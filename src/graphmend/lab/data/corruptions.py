"""Harm to a graph that knows no model: abnormal features, and random edges, the control for every attack."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import check_fields, choose, real_number, require, seed_number
from graphmend.graph.checks import check_features
from graphmend.graph.convert import with_edge_index
from graphmend.graph.edge_flips import random_numbers
from graphmend.lab.attacks.pairs import UndirectedGraph, check_budget
from graphmend.outputs import read_mask

__all__ = ["KINDS", "FeatureNoise", "RandomEdges"]


@dataclass(frozen=True, eq=False)
class FeatureNoise:
    r"""Replace the features of a share of the nodes.

    Of the :math:`n` candidate nodes the first :math:`\lfloor \text{ratio} \cdot n \rfloor` of a seeded permutation are
    replaced, and all further random numbers come from the same NumPy generator. The default,
    :math:`\mathcal{N}(0, \sigma^2)` noise, is that of the abnormal-feature experiments of
    `GTrans <https://arxiv.org/abs/2210.03561>`_. The result marks the nodes in a boolean ``abnormal``. The input is
    left as it was.

    Args:
        nodes: Mask of the candidate nodes, or ``None`` for all nodes.
        ratio: Share of the candidates that is replaced, in [0, 1].
        scale: Standard deviation of Gaussian noise.
        seed: Seed of the permutation and of the noise; the global generators are not touched.
        kind: ``"gaussian"`` noise; ``"swap"``, the replaced nodes exchange their features along a random cycle, so
            that every row of features is still there; ``"marginal"``, each value drawn from its own column; ``"zero"``;
            or ``"scale"``, the features times ``factor``.
        factor: The factor of ``"scale"``.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.lab.data import FeatureNoise
        >>> data = Data(x=torch.zeros(10, 2), edge_index=torch.zeros(2, 0, dtype=torch.long))
        >>> int(FeatureNoise(ratio=0.35)(data).abnormal.sum())
        3
    """

    nodes: Tensor | None = field(default=None, repr=False)
    ratio: float = 0.3
    scale: float = 1.0
    seed: int = 0
    _: KW_ONLY
    kind: str = "gaussian"
    factor: float = 10.0

    def __post_init__(self) -> None:
        choose("kind of feature noise", self.kind, KINDS)
        check_fields(self, real_number, "ratio", low=0, high=1)
        check_fields(self, real_number, "scale", low=0, hint="1 is standard normal noise")
        check_fields(self, real_number, "factor", hint="10 makes features ten times as large")
        check_fields(self, seed_number, "seed", bits=32)
        if self.nodes is not None:
            object.__setattr__(self, "nodes", read_mask(self.nodes, name="nodes"))

    def __call__(self, data: Data) -> Data:
        """A copy of ``data`` with the new features in ``x`` and the marks in ``abnormal``."""
        check_features(data)
        x: Tensor = data.x
        size = x.size(0)
        nodes = None if self.nodes is None else read_mask(self.nodes, size, "nodes")
        candidates = np.arange(size) if nodes is None else nodes.nonzero().view(-1).cpu().numpy()
        rng = np.random.RandomState(self.seed)
        count = math.floor(self.ratio * len(candidates) + 1e-9)  # so that 0.3 * 10 gives 3 despite rounding errors
        chosen = torch.from_numpy(rng.permutation(candidates)[:count]).to(x.device)
        changed = copy.copy(data)
        changed.x = x.index_copy(0, chosen, KINDS[self.kind](self, x, chosen, rng))
        changed.abnormal = torch.zeros(size, dtype=torch.bool, device=x.device).index_fill(0, chosen, True)
        return changed


def _gaussian(noise: FeatureNoise, x: Tensor, chosen: Tensor, rng: Any) -> Tensor:
    return torch.from_numpy(noise.scale * rng.standard_normal((chosen.numel(), x.size(1)))).to(x)


def _swap(noise: FeatureNoise, x: Tensor, chosen: Tensor, rng: Any) -> Tensor:
    require(
        chosen.numel() != 1,
        f"swap exchanges the features of at least two nodes (got 1 at ratio {noise.ratio}); raise ratio or widen nodes",
    )
    return x.index_select(0, chosen.roll(1))  # the nodes are in random order, so this is a random cycle


def _marginal(noise: FeatureNoise, x: Tensor, chosen: Tensor, rng: Any) -> Tensor:
    rows = torch.from_numpy(rng.randint(x.size(0), size=(chosen.numel(), x.size(1)))).to(chosen)
    return x.gather(0, rows)


def _zero(noise: FeatureNoise, x: Tensor, chosen: Tensor, rng: Any) -> Tensor:
    return x.new_zeros((chosen.numel(), x.size(1)))


def _scale(noise: FeatureNoise, x: Tensor, chosen: Tensor, rng: Any) -> Tensor:
    return noise.factor * x.index_select(0, chosen)


KINDS: dict[str, Callable[[FeatureNoise, Tensor, Tensor, Any], Tensor]] = {
    "gaussian": _gaussian,
    "swap": _swap,
    "marginal": _marginal,
    "zero": _zero,
    "scale": _scale,
}


@dataclass(frozen=True)
class RandomEdges:
    r"""Add undirected edges between random pairs of nodes without one.

    There are :math:`\lfloor \text{rate} \cdot |E| \rfloor` new edges. The harm of an attack beyond this control is due
    to the choice of its edges. The input is left as it was.

    Args:
        rate: Number of new edges as a fraction of the undirected edges.
        budget: The same as a number of undirected edges, instead of ``rate``.
        seed: Seed of the pairs; the global generators are not touched.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend.lab.data import RandomEdges
        >>> data = Data(x=torch.ones(4, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
        >>> RandomEdges(budget=2)(data).num_edges
        6
    """

    rate: float = 0.1
    budget: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_budget(self)
        check_fields(self, seed_number, "seed")

    def __call__(self, data: Data) -> Data:
        """A copy of ``data`` with more edges, sorted and in both directions."""
        data = with_edge_index(data)
        graph = UndirectedGraph.of(data)
        count, free = graph.count(self.rate, self.budget), graph.num_pairs - graph.pairs.numel()
        require(count <= free, f"{count} edges cannot be added, as only {free} pairs have none; lower rate or budget")
        generator = torch.Generator(device=data.x.device).manual_seed(self.seed)
        return graph.flipped(random_numbers(count, graph.num_pairs, generator, graph.pairs)).put_into(data)
