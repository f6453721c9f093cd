"""Local search on discrete flips: exchange the least useful ones for pairs with a larger gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmend.lab.attacks.random_block import Block
from graphmend.lab.attacks.target import Target

__all__ = ["exchanged", "improved"]


def improved(target: Target, block: Block, flips: Tensor, tries: int) -> Tensor:
    """The flips after some tries to exchange the least useful of them for the most promising pairs of the block.

    Every try takes one gradient at the discrete graph and keeps the exchange if it does more harm; if not, the next
    one exchanges half as many, beginning with a tenth.

    Args:
        target: The attacked model and nodes.
        block: The node pairs that are considered.
        flips: Mask of the pairs that are flipped.
        tries: Number of exchanges to try.
    """
    most, number = target.harm(block, flips), max(1, int(flips.sum()) // 10)
    for _ in range(tries):
        other = exchanged(flips, target.gradient(block, flips.to(target.x.dtype)), number)
        harm = target.harm(block, other)
        if harm > most:
            flips, most = other, harm
        else:
            number = max(1, number // 2)
    return flips


def exchanged(flips: Tensor, gradient: Tensor, number: int) -> Tensor:
    """Replace up to ``number`` flips with the smallest gradient, each by a pair with a larger one."""
    number = min(number, int(flips.sum()), int((~flips).sum()))
    worst = gradient.masked_fill(~flips, torch.inf).topk(number, largest=False).indices
    best = gradient.masked_fill(flips, -torch.inf).topk(number).indices
    gains = gradient[best] > gradient[worst]
    out = flips.clone()
    out[worst[gains]] = False
    out[best[gains]] = True
    return out
