"""Numbers for nodes and edges that depend on what they are, not on where they stand in a list.

Whoever draws nodes or edges at random, or breaks a tie between them, does so by these keys. Then the same graph with
its nodes renumbered, or its edges listed in another order, gets the same answer. All arithmetic is that of whole
numbers modulo 2^64, in which a sum does not depend on its order.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["edge_keys", "node_keys", "row_keys"]

ROUNDS = 2  # how far, in hops, a node's key looks
_BLOCK = 250_000  # numbers at a time, few enough to stay in the cache
_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_FACTORS = (-7046029254386353131, -4417276706812531889, -8796714831421723037)  # odd, their bits look random


@torch.no_grad()
def row_keys(x: Tensor) -> Tensor:
    """A number for each row, the same for equal rows; ``(rows,)`` of 64-bit integers."""
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-(2**62), 2**62, (x.size(1),), generator=generator, dtype=torch.int64) * 2 + 1
    factors = factors.to(x.device)
    blocks = torch.split(x.detach(), max(1, _BLOCK // max(1, x.size(1))))
    return _mixed(torch.cat([(_bits(block) * factors).sum(1) for block in blocks]))


def _bits(x: Tensor) -> Tensor:
    """The bits of floating-point numbers as whole numbers of which the lower half says something, too."""
    # adding zero turns -0.0 into 0.0, which is the same number with other bits
    bits = (x + 0.0).view(_WHOLE[x.element_size()]).long()
    return bits ^ (bits >> 32) if x.element_size() == 8 else bits  # those of 1.0 are all among the first twelve


@torch.no_grad()
def node_keys(x: Tensor, edge_index: Tensor) -> Tensor:
    """A number for each node that its row and those around it decide (Weisfeiler and Leman's colours)."""
    keys = row_keys(x)
    source, target = edge_index
    for _ in range(ROUNDS):
        around = torch.zeros_like(keys)
        around.index_add_(0, target, _mixed(keys * _FACTORS[0]).index_select(0, source))
        around.index_add_(0, source, _mixed(keys * _FACTORS[1]).index_select(0, target))
        keys = _mixed(keys * _FACTORS[2] + around)
    return keys


def edge_keys(keys: Tensor, edge_index: Tensor) -> Tensor:
    """A number for each edge from the keys of its ends, the same in both directions."""
    source, target = (keys.index_select(0, end) for end in edge_index)
    return _mixed(_mixed(source) + _mixed(target))


def _mixed(keys: Tensor) -> Tensor:
    """Numbers whose every bit depends on every bit of the given ones (the finaliser of SplitMix64)."""
    for shift, factor in zip((30, 27, 31), _FACTORS, strict=True):
        keys = (keys ^ ((keys >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return keys
