"""Small graphs and dense float64 references that several tests share."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

cuda = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"))
DEVICES = ["cpu", cuda]


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def directed(n: int = 9, seed: int = 0, *, density: float = 0.3, loops: bool = False, isolated: int = 1) -> Tensor:
    """Random single edges in random order; the last ``isolated`` nodes have none, loops are at nodes 0 and 2."""
    generator = rng(seed)
    chosen = torch.rand(n, n, generator=generator) < density
    chosen.fill_diagonal_(False)
    live = n - isolated
    chosen[live:] = False
    chosen[:, live:] = False
    if loops:
        chosen[0, 0] = chosen[2, 2] = True
    edges = chosen.nonzero().t()
    return edges[:, torch.randperm(edges.size(1), generator=generator)]


def undirected(n: int = 9, seed: int = 0, *, density: float = 0.2, loops: bool = False, isolated: int = 1) -> Tensor:
    """The same with both directions of every edge."""
    edges = directed(n, seed, density=density, loops=loops, isolated=isolated)
    both = torch.unique(torch.cat([edges, edges.flip(0)], dim=1), dim=1)
    return both[:, torch.randperm(both.size(1), generator=rng(seed))]


def labelled(n: int = 20, seed: int = 0, device: str = "cpu", **options: Any) -> Data:
    """A graph of three classes in turn with five features, of which the label is one, and two masks in turn."""
    y = torch.arange(n) % 3
    x = torch.rand(n, 5, generator=rng(seed)) + torch.nn.functional.one_hot(y, 5)
    train = torch.arange(n) % 2 == 0
    edge_index = undirected(n, seed, **options)
    return Data(x=x, edge_index=edge_index, y=y, train_mask=train, val_mask=~train).to(device)


def pairs(edge_index: Tensor) -> set[tuple[int, int]]:
    """The edges of an undirected graph, each once, with its lower node first."""
    return {(i, j) for i, j in edge_index.t().tolist() if i <= j}


def homophily(graph: Data) -> float:
    """The share of edges between nodes of one class."""
    source, target = graph.edge_index
    return float((graph.y[source] == graph.y[target]).float().mean())


def dense(edge_index: Tensor, n: int, weight: Tensor | None = None) -> Tensor:
    """``A[target, source]`` in float64; repeated edges add up, gradients flow to the weights."""
    weight = torch.ones(edge_index.size(1)) if weight is None else weight
    zeros = torch.zeros(n, n, dtype=torch.float64, device=edge_index.device)
    place = (edge_index[1].long(), edge_index[0].long())
    return zeros.index_put(place, weight.to(zeros), accumulate=True)


def dense_norm(adjacency: Tensor) -> Tensor:
    """``D^-1/2 (A + I) D^-1/2`` with in-degrees; a self-loop of ``A`` is replaced by the one of weight 1."""
    eye = torch.eye(adjacency.size(0), dtype=adjacency.dtype, device=adjacency.device)
    full = adjacency * (1 - eye) + eye
    scale = full.sum(1).rsqrt()
    return scale[:, None] * full * scale[None, :]
