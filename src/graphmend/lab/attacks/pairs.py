"""Undirected graphs as the sorted numbers of their edges, and random blocks of node pairs."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import check_fields, real_number, require, whole_number
from graphmend.graph.checks import check_graph
from graphmend.graph.edge_flips import pair_number, pair_of, random_numbers

__all__ = ["Block", "UndirectedGraph", "check_budget"]


@dataclass(frozen=True, eq=False)
class UndirectedGraph:
    """The edges of an unweighted undirected graph, each once.

    Args:
        pairs: Sorted pair numbers of the edges.
        loops: Nodes with a self-loop; they stay as they are.
        num_nodes: Number of nodes.
    """

    pairs: Tensor
    loops: Tensor
    num_nodes: int

    @classmethod
    def of(cls, data: Data) -> UndirectedGraph:
        """The edges of ``data``, after a check that it is undirected, unweighted and lists each edge once."""
        check_graph(data)
        weights = [name for name in ("edge_weight", "edge_attr", "edge_type") if data.get(name) is not None]
        require(not weights, f"only edges of unweighted graphs can be flipped, but data has {weights}; remove them")
        (source, target), nodes = data.edge_index, data.x.size(0)
        up, down, loop = source < target, source > target, source == target
        pairs = pair_number(source[up], target[up], nodes).sort().values
        back = pair_number(target[down], source[down], nodes).sort().values
        require(
            torch.equal(pairs, back),
            f"the graph must be undirected ({pairs.numel()} edges go up, {back.numel()} down, and they do not match); "
            "apply torch_geometric.transforms.ToUndirected",
        )
        loops = source[loop].sort().values
        repeated = int((pairs[1:] == pairs[:-1]).sum() + (loops[1:] == loops[:-1]).sum())
        require(repeated == 0, f"edge_index holds {repeated} repeated edges; merge them with data.coalesce()")
        return cls(pairs, loops, nodes)

    @property
    def num_pairs(self) -> int:
        """Number of node pairs, with or without an edge."""
        return self.num_nodes * (self.num_nodes - 1) // 2

    def count(self, rate: float, budget: int | None = None) -> int:
        r"""The budget :math:`n_B = \lfloor \text{rate} \cdot |E| \rfloor` in undirected edges, or ``budget`` itself."""
        return math.floor(rate * self.pairs.numel() + 1e-9) if budget is None else budget

    def positions(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Where each pair stands, or would stand, among the edges, and whether it is there."""
        if self.pairs.numel() == 0:
            return torch.zeros_like(pairs), torch.zeros_like(pairs, dtype=torch.bool)
        place = torch.searchsorted(self.pairs, pairs)
        return place, self.pairs[place.clamp(max=self.pairs.numel() - 1)] == pairs

    def flipped(self, pairs: Tensor) -> UndirectedGraph:
        """The graph with the edges among ``pairs`` (each once) removed and the others added."""
        both, times = torch.unique(torch.cat([self.pairs, pairs]), return_counts=True)
        return UndirectedGraph(both[times == 1], self.loops, self.num_nodes)

    def changes_to(self, other: UndirectedGraph) -> Tensor:
        """The pairs whose flip turns this graph into ``other``."""
        return self.flipped(other.pairs).pairs

    def edge_index(self) -> Tensor:
        """Both directions of every edge, sorted."""
        up = pair_of(self.pairs, self.num_nodes)
        key = torch.cat([up[0] * self.num_nodes + up[1], up[1] * self.num_nodes + up[0]])
        key = torch.cat([key, self.loops * (self.num_nodes + 1)]).sort().values
        return torch.stack([key // self.num_nodes, key % self.num_nodes])

    def put_into(self, data: Data) -> Data:
        """A copy of ``data`` with these edges."""
        out = copy.copy(data)
        out.edge_index = self.edge_index()
        return out


def check_budget(attack: object) -> None:
    """A rate is a fraction of the edges; a budget is a count and takes its place."""
    check_fields(attack, real_number, "rate", low=0, high=1, hint="budget counts edges")
    check_fields(attack, whole_number, "budget", optional=True, hint="rate takes a fraction of the edges")


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
