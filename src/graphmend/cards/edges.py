"""How similar the two ends of each edge are, and which classes edges connect."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmend.cards.rows import BLOCK

__all__ = ["LEVELS", "pair_counts", "similarity"]

LEVELS = (0.05, 0.1, 0.2, 0.3, 0.5)
"""The quantiles of similarity that a source card keeps."""


@torch.no_grad()
def similarity(u: Tensor, edge_index: Tensor) -> Tensor:
    r"""The cosine :math:`u_i^\top u_j / (\lVert u_i \rVert \lVert u_j \rVert)` at the two ends of each edge."""
    parts = [F.cosine_similarity(a, b, dim=1, eps=1e-12) for a, b in _both_ends(u, edge_index)]
    return torch.cat(parts) if parts else u.new_zeros(0)


@torch.no_grad()
def pair_counts(probability: Tensor, edge_index: Tensor) -> Tensor:
    r"""Edges from class :math:`a` to class :math:`b`, :math:`n_{ab} = \sum_{j \to i} p_{ja}\, p_{ib}`.

    Args:
        probability: Of each class at each node, ``(nodes, classes)``; 0 and 1 count predicted classes.
        edge_index: The edges :math:`j \to i`.
    """
    total = probability.new_zeros(probability.size(1), probability.size(1), dtype=torch.float64)
    for source, target in _both_ends(probability, edge_index):
        total += (source.t() @ target).double()
    return total.to(probability.dtype)


def _both_ends(rows: Tensor, edge_index: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The rows at the sources and at the targets of the edges, some edges at a time."""
    size = max(1, BLOCK // max(1, rows.size(1)))
    for source, target in zip(*(end.split(size) for end in edge_index), strict=True):
        yield rows.index_select(0, source), rows.index_select(0, target)
