"""What a frozen model shows of a graph: its first layer, its embedding and its predictions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.cards.moments import Moments, moments
from graphmend.model import FrozenGNN
from graphmend.model.failures import failures_named

__all__ = ["Observation", "observe"]


@dataclass(frozen=True, eq=False)
class Observation:
    """A model's view of a graph.

    Args:
        first: The output of the first layer before any activation.
        z: The embedding.
        logits: The output.
    """

    first: Tensor
    z: Tensor
    logits: Tensor

    @property
    def moments(self) -> Moments:
        """The moments of the first layer."""
        return moments(self.first)


@torch.no_grad()
def observe(frozen: FrozenGNN, data: Data, x: Tensor | None = None) -> Observation:
    """Run the model on a graph, or on the same graph with other features, which may be shared features."""
    x = data.x if x is None else x
    with failures_named(frozen.module, data), frozen.on(data, weights_count=frozen.weights_count):
        first = frozen.first_layer(x, data.edge_index)
        return Observation(first, frozen.embed(x, data.edge_index), frozen(x, data.edge_index))
