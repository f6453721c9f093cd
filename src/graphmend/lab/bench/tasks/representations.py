"""The hidden representation of a graph, in evaluation mode."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.model import FrozenGNN

__all__ = ["embedding"]


@torch.no_grad()
def embedding(model: nn.Module, data: Data) -> Tensor:
    """Z, the second-last layer after its activation, one row per node."""
    with FrozenGNN(model, data) as frozen, torch.no_grad():
        return frozen.embed(data.x, data.edge_index, data.get("edge_weight"))
