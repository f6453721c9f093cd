"""Keys for nodes and edges that depend on what these are, not on their position in a list.

Random draws of nodes or edges, and ties between them, are decided by these keys. Then the same graph with its nodes
renumbered, or its edges listed in another order, gets the same answer. All arithmetic is on integers modulo 2^64, where
a sum does not depend on its order.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["EDGES", "edge_keys", "lowest_edges", "mixed", "node_keys", "row_keys", "typical_size"]

STEPS = 2**20  # of the size of a typical row, in steps of which rows are compared
ROUNDS = 2  # how far, in hops, a node's key looks
EDGES = 4_000_000  # at a time
_BLOCK = 250_000  # numbers at a time, few enough to stay in the cache
_FACTORS = (-7046029254386353131, -4417276706812531889, -8796714831421723037)  # odd, their bits look random


@torch.no_grad()
def row_keys(x: Tensor, unit: Tensor | None = None) -> Tensor:
    """A number for each row, the same for equal rows and in every unit; ``(rows,)`` of 64-bit integers.

    Args:
        x: The rows.
        unit: The :func:`typical_size` that tells rows apart, if it is not theirs.
    """
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-(2**62), 2**62, (x.size(1),), generator=generator, dtype=torch.int64) * 2 + 1
    factors = factors.to(x.device)
    unit = typical_size(x) if unit is None else unit
    blocks = torch.split(x.detach(), max(1, _BLOCK // max(1, x.size(1))))
    return mixed(torch.cat([(_in_steps(block, unit) * factors).sum(1) for block in blocks]))


def typical_size(*features: Tensor) -> Tensor:
    """The largest number of a typical row that is not empty."""
    largest = torch.cat([x.detach().abs().amax(1) for x in features])
    return largest[largest > 0].median() if bool((largest > 0).any()) else largest.new_ones(())


def _in_steps(x: Tensor, unit: Tensor) -> Tensor:
    """Features as whole numbers of small steps, the same in every unit but for the last digit."""
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    return (x.to(wide) / unit.to(wide) * STEPS).round_().clamp_(-(2.0**62), 2.0**62).long()


@torch.no_grad()
def node_keys(x: Tensor, edge_index: Tensor, unit: Tensor | None = None) -> Tensor:
    """A number for each node that its row and those around it decide (Weisfeiler and Leman's colours)."""
    keys = row_keys(x, unit)
    for _ in range(ROUNDS):
        around, forth, back = torch.zeros_like(keys), mixed(keys * _FACTORS[0]), mixed(keys * _FACTORS[1])
        for source, target in zip(*(torch.split(end, EDGES) for end in edge_index), strict=True):
            around.index_add_(0, target, forth.index_select(0, source))
            around.index_add_(0, source, back.index_select(0, target))
        keys = mixed(keys * _FACTORS[2] + around)
    return keys


def edge_keys(keys: Tensor, edge_index: Tensor) -> Tensor:
    """A number for each edge from the keys of its ends, the same in both directions."""
    source, target = (keys.index_select(0, end) for end in edge_index)
    return mixed(source + target)


def lowest_edges(keys: Tensor, edge_index: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """The lowest :func:`edge_keys`, ascending, and the positions of their edges; some edges at a time."""
    values, places = keys.new_empty(0), keys.new_empty(0)
    for block in range(0, edge_index.size(1), EDGES):
        found = edge_keys(keys, edge_index[:, block : block + EDGES])
        lowest = found.topk(min(number, found.numel()), largest=False, sorted=True)
        values, places = torch.cat([values, lowest.values]), torch.cat([places, lowest.indices + block])
        best = values.topk(min(number, values.numel()), largest=False, sorted=True)
        values, places = best.values, places[best.indices]
    return values, places


def mixed(keys: Tensor) -> Tensor:
    """Numbers whose every bit depends on every bit of the given ones (the finaliser of SplitMix64)."""
    for shift, factor in zip((30, 27, 31), _FACTORS, strict=True):
        keys = (keys ^ ((keys >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return keys
