"""Small sparse patterns of every kind, with values and tolerances, for the tests of the sparse operations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from support.graphs import DEVICES, directed, rng, undirected

N, WIDTH = 9, 4
PATTERNS = {
    "directed": directed(N),
    "undirected": undirected(N),
    "self-loops": directed(N, loops=True),
    "undirected with self-loops": undirected(N, loops=True),
    "dense": directed(N, density=1.1, isolated=0, loops=True),
    "sorted": torch.tensor([[1, 2, 0, 4], [0, 0, 3, 5]]),
    "duplicates": torch.tensor([[1, 1, 0, 1, 4, 4], [2, 2, 3, 2, 4, 4]]),
    "one edge": torch.tensor([[8], [0]]),
    "no edges": torch.empty(2, 0, dtype=torch.long),
}
WITH_EDGES = {name: edges for name, edges in PATTERNS.items() if edges.size(1)}
SPOKES = torch.stack([torch.arange(600) % 300, torch.arange(600) // 300 * 7])  # nodes 0 and 7 have 300 neighbours each
HUBS = {"hubs": SPOKES, "hubs and loops": torch.cat([SPOKES, SPOKES.flip(0), torch.arange(300).repeat(2, 1)], dim=1)}
HUB_NODES = 300

patterns = pytest.mark.parametrize("edge_index", PATTERNS.values(), ids=PATTERNS)
patterns_with_edges = pytest.mark.parametrize("edge_index", WITH_EDGES.values(), ids=WITH_EDGES)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
halves = pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
devices = pytest.mark.parametrize("device", DEVICES)
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


def values_of(edge_index: Tensor, seed: int = 1) -> Tensor:
    return torch.randn(edge_index.size(1), generator=rng(seed), dtype=torch.float64)


def weights_of(edge_index: Tensor, seed: int = 1) -> Tensor:
    return torch.rand(edge_index.size(1), generator=rng(seed), dtype=torch.float64) + 0.1


def features(seed: int = 2, width: int = WIDTH, nodes: int = N) -> Tensor:
    return torch.randn(nodes, width, generator=rng(seed), dtype=torch.float64)


def close(actual: Tensor, expected: Tensor) -> None:
    """Equal up to the rounding of the actual type."""
    tolerance = TOLERANCE[actual.dtype]
    torch.testing.assert_close(actual.double().cpu(), expected.double().cpu(), atol=tolerance, rtol=tolerance)
