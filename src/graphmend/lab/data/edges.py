"""Edge lists from numbered node pairs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphmend.files.files import Array

__all__ = ["undirected"]


def undirected(keys: Array, nodes: int, *, sort_by_row: bool = True) -> Tensor:
    """``edge_index`` with both directions of every edge, sorted, without duplicates and self-loops.

    Graphs of :math:`10^8` stored edges pass through here, so arrays are filled in place.

    Args:
        keys: The edges as ``source * nodes + target``, in any order and direction.
        nodes: Number of nodes.
        sort_by_row: Sort by source, then target; otherwise by target, then source.

    Example:
        >>> undirected(np.array([1, 2, 4]), 3)  # 0 -> 1, 0 -> 2 and a self-loop at 1
        tensor([[0, 0, 1, 2],
                [1, 2, 0, 0]])
    """
    both = np.empty(2 * keys.size, np.int64)
    both[: keys.size] = keys
    np.remainder(keys, nodes, out=both[keys.size :])
    both[keys.size :] *= nodes
    both[keys.size :] += keys // nodes
    both.sort()
    wanted = both % (nodes + 1) != 0  # i * nodes + j is a multiple of nodes + 1 exactly where i = j
    wanted[1:] &= both[1:] != both[:-1]
    if not wanted.all():
        both = both[wanted]
    edge_index = np.empty((2, both.size), np.int64)
    first, second = edge_index if sort_by_row else edge_index[::-1]
    np.floor_divide(both, nodes, out=first)
    np.remainder(both, nodes, out=second)
    return torch.from_numpy(edge_index)
