"""How similar the two ends of each edge are."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["LEVELS", "similarity"]

LEVELS = (0.05, 0.1, 0.2, 0.3, 0.5)
"""The quantiles of similarity that a source card keeps."""

BLOCK = 4_000_000  # numbers gathered at a time


@torch.no_grad()
def similarity(u: Tensor, edge_index: Tensor) -> Tensor:
    r"""The cosine :math:`u_i^\top u_j / (\lVert u_i \rVert \lVert u_j \rVert)` at the two ends of each edge."""
    unit = u / torch.linalg.vector_norm(u, dim=1, keepdim=True).clamp(min=1e-12)
    size = max(1, BLOCK // max(1, u.size(1)))
    ends = zip(*(end.split(size) for end in edge_index), strict=True)
    parts = [(unit.index_select(0, a) * unit.index_select(0, b)).sum(1) for a, b in ends]
    return torch.cat(parts) if parts else u.new_zeros(0)
