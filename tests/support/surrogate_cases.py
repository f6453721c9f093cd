"""A graph and models that the tests of all surrogates share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.lab.backbones import build
from support.graphs import rng, undirected

N, IN, OUT = 12, 4, 3


def graph(**more: Any) -> Data:
    x = torch.randn(N, IN, generator=rng(), dtype=torch.float64)
    return Data(x=x, edge_index=undirected(N, 1), y=torch.arange(N) % OUT, **more)


def model(name: str = "gcn", out: int = OUT) -> nn.Module:
    torch.manual_seed(0)
    return build(name, IN, 8, out).double().eval()


def some() -> Tensor:
    return torch.arange(N) % 2 == 0
