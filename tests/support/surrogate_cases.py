"""A graph and models that the tests of all surrogates share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.lab.backbones import build
from support.graphs import rng, undirected

N, IN, OUT = 12, 5, 3


def graph(dtype: torch.dtype = torch.float64, **more: Any) -> Data:
    x = torch.randn(N, IN, generator=rng(), dtype=torch.float64).to(dtype)
    return Data(x=x, edge_index=undirected(N, 1, density=0.3), y=torch.arange(N) % OUT, **more)


def training_graph() -> Data:
    """Another one, on which representations have other moments."""
    return Data(x=1.5 * graph().x.flip(0) + 0.4, edge_index=graph().edge_index)


def weights(data: Data) -> Tensor:
    """Edge weights, every third of which is 0."""
    weight = 0.2 + 0.8 * torch.rand(data.edge_index.size(1), generator=rng(3), dtype=torch.float64)
    return (weight * (torch.arange(weight.numel()) % 3 > 0)).to(data.x.dtype)


def model(name: str = "gcn", out: int = OUT) -> nn.Module:
    torch.manual_seed(0)
    return build(name, IN, 8, out).double().eval().requires_grad_(False)


def some() -> Tensor:
    return torch.arange(N) % 2 == 0


class Fixed(nn.Module):
    """Returns the same embedding and logits for every graph, so that a loss sees nothing but these and the graph."""

    def __init__(self, out: Tensor) -> None:
        super().__init__()
        self.out = out

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.out

    embed = forward


def most_kept_numbers(compute: Callable[[], Any]) -> int:
    """The size of the largest tensor that autograd keeps of a computation."""
    kept: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        compute()
    return max(kept)
