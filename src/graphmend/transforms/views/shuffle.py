"""Feature shuffling: the negative sample of the contrastive loss."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch_geometric.data import Data

from graphmend.engine.shared_features import shuffled


@dataclass(frozen=True)
class Shuffle:
    """Permute the feature rows over the nodes (Veličković et al., "Deep Graph Infomax", ICLR 2019)."""

    def __call__(self, data: Data, generator: torch.Generator | None = None) -> Data:
        """A copy in which every node has the features of a random other one."""
        order = torch.randperm(data.x.size(0), generator=generator, device=data.x.device)
        out = copy.copy(data)
        out.x = shuffled(data.x, order)
        return out
