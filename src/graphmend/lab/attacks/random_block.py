r"""A random block of node pairs and the relaxed graph :math:`A \oplus p` over it."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmend.graph.pairs import pair_of, random_numbers
from graphmend.lab.attacks.pairs import UndirectedGraph

__all__ = ["Block"]


class Block:
    r"""Node pairs with one flip probability :math:`p` each, and the edge list of the graph they are relaxed on.

    The list holds the graph's edges, then the block's pairs without an edge, then the reverse of both, then self-loops.
    It is built once per block; later only weights change. A pair with an edge has the weight :math:`1 - p`, one
    without has :math:`p`. An explicit mask distinguishes the two, so that :math:`p = 0` is no special case.

    Args:
        graph: The graph under attack.
        pairs: Sorted pair numbers, each once.
    """

    def __init__(self, graph: UndirectedGraph, pairs: Tensor) -> None:
        place, self.exists = graph.positions(pairs)
        new = (~self.exists).cumsum(0) - 1
        self.graph, self.pairs = graph, pairs
        self._slot = torch.where(self.exists, place, graph.pairs.numel() + new)
        up = pair_of(torch.cat([graph.pairs, pairs[~self.exists]]), graph.num_nodes)
        self._size = up.size(1)
        self.edge_index = torch.cat([up, up.flip(0), graph.loops.expand(2, -1)], dim=1)

    @classmethod
    def random(cls, graph: UndirectedGraph, size: int, generator: torch.Generator) -> Block:
        """``size`` random pairs, or all pairs if there are no more."""
        return cls(graph, random_numbers(min(size, graph.num_pairs), graph.num_pairs, generator))

    @property
    def is_whole(self) -> bool:
        """Whether the block holds every pair of nodes."""
        return self.pairs.numel() == self.graph.num_pairs

    def weight(self, p: Tensor) -> Tensor:
        """The weights of ``edge_index`` for the flip probabilities ``p``."""
        weight = p.new_ones(self._size)
        weight[self._slot] = torch.where(self.exists, 1 - p, p)
        return torch.cat([weight, weight, p.new_ones(self.graph.loops.numel())])

    def gradient(self, weight_gradient: Tensor) -> Tensor:
        """The gradient for ``p`` from that for :meth:`weight`: both directions, with the opposite sign for edges."""
        both = weight_gradient[: self._size] + weight_gradient[self._size : 2 * self._size]
        by_pair = both.index_select(0, self._slot)
        return torch.where(self.exists, -by_pair, by_pair)

    def resample(self, p: Tensor, generator: torch.Generator) -> tuple[Block, Tensor]:
        """Keep the pairs with the largest ``p > 0``, at most half of the block, and draw the others afresh."""
        size = self.pairs.numel()
        kept = p.topk(min(size // 2, int((p > 0).sum()))).indices
        order = self.pairs[kept].argsort()
        kept = kept[order]
        new = random_numbers(size - kept.numel(), self.graph.num_pairs, generator, self.pairs[kept])
        pairs, order = torch.cat([self.pairs[kept], new]).sort()
        return Block(self.graph, pairs), torch.cat([p[kept], p.new_zeros(new.numel())])[order]
