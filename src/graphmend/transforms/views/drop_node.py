"""Node dropping."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch_geometric.data import Data

from graphmend.engine.shared_features import scaled_rows
from graphmend.errors import check_fields, real_number


@dataclass(frozen=True)
class DropNode:
    """Set the features of each node to zero with probability ``p``; its edges stay, as in the released GTrans code."""

    p: float = 0.05

    def __post_init__(self) -> None:
        check_fields(self, real_number, "p", low=0, high=1)

    def __call__(self, data: Data, generator: torch.Generator | None = None) -> Data:
        """A copy with some nodes blank."""
        keep = torch.rand(data.x.size(0), generator=generator, device=data.x.device) >= self.p
        out = copy.copy(data)
        out.x = scaled_rows(data.x, keep.to(data.x.dtype).unsqueeze(-1))
        return out
