"""Who sends to a node, before and after: what changed comes first."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.results.patch import Patch
from graphmend.results.plane import Groups
from graphmend.results.report.facts import EDGES, Neighbour

__all__ = ["Around", "around"]

Array = np.ndarray[Any, np.dtype[Any]]
KEPT, REMOVED, ADDED = range(len(EDGES))


class Around(NamedTuple):
    """Some of the neighbours of a node, and how many there are in all."""

    some: tuple[Neighbour, ...]
    total: int


def around(before: Data, patch: Patch, nodes: list[int], groups: Groups, moved: Tensor, most: int) -> list[Around]:
    """The nodes that send to each of some nodes, themselves excepted.

    Args:
        before: The graph as it was.
        patch: The change.
        nodes: The nodes.
        groups: The predicted classes of all nodes, for the colours.
        moved: How far the features of each node moved.
        most: How many neighbours of each to name.
    """
    wanted = torch.zeros(patch.nodes, dtype=torch.bool)
    wanted[torch.tensor(nodes, dtype=torch.long)] = True
    parts = []
    for kind, (source, target) in (
        (KEPT, before.edge_index),
        (REMOVED, patch.removed_edges()),
        (ADDED, patch.added_edges()),
    ):
        source, target = source.cpu(), target.cpu()
        chosen = wanted[target] & (source != target)
        parts.append(torch.stack([target[chosen], source[chosen], torch.full_like(source[chosen], kind)]))
    edges = torch.cat(parts, 1).numpy()
    edges = edges[:, np.lexsort((-edges[2], edges[1], edges[0]))]  # of one pair, what changed it first
    first = np.ones(edges.shape[1], dtype=bool)
    first[1:] = (edges[:2, 1:] != edges[:2, :-1]).any(0)
    edges = edges[:, first]
    far = moved.numpy()[edges[1]]
    edges = edges[:, np.lexsort((edges[1], -far, edges[2] == KEPT, edges[0]))]
    ends = np.searchsorted(edges[0], nodes, side="right")
    starts = np.searchsorted(edges[0], nodes, side="left")
    distance = moved.numpy()
    return [
        Around(
            tuple(
                Neighbour(int(other), int(groups.after[other]), EDGES[kind], bool(distance[other] > 0))
                for other, kind in edges[1:, start : min(end, start + most)].T
            ),
            int(end - start),
        )
        for start, end in zip(starts, ends, strict=True)
    ]
