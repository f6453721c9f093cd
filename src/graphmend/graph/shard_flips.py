r"""Edge flips of a mapped graph: one variable for each edge, owned by the shard of its target, under one budget.

The variables :math:`p` stand where the edges stand. The two directions of an undirected edge share that of the first
one. Nothing is sorted or copied: each range of targets is read, and what ranges tell each other are single numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from graphmend.errors import require
from graphmend.graph.mapped import MappedGraph
from graphmend.scratch import ROWS, large_empty

__all__ = ["ShardFlips"]

STEPS = 200  # of the search for the shift of the projection, at most
CLOSE = 1e-12  # of the budget


class ShardFlips:
    """The edges of a mapped graph that may flip.

    Args:
        graph: The graph, whose edges are sorted by target and then by source.
        budget: How many edges may flip: a fraction of them or a number; undirected edges count once.
        frozen: Mask of edges that are never removed.
    """

    def __init__(self, graph: MappedGraph, budget: float | int, frozen: Tensor | None = None) -> None:
        offsets = graph.offsets()
        assert offsets is not None
        self.source, self.target = graph.edge_index
        self.edges = self.source.numel()
        self.blocks = [slice(start, min(self.edges, start + ROWS)) for start in range(0, self.edges, ROWS)]
        self._check_no_duplicates()
        self.variable = self._shared(offsets) if graph.is_symmetric else self._own()
        total = sum(int((self.source[at] != self.target[at]).sum()) for at in self.blocks)
        total = total // 2 if graph.is_symmetric else total
        if frozen is not None:
            self._freeze(frozen)
        number = sum(int((self.variable[at] == self._places(at)).sum()) for at in self.blocks)
        allowed = budget if isinstance(budget, int) else math.floor(budget * total + 1e-9)
        self.budget = min(int(allowed), number)
        self.p = large_empty((self.edges,), graph.x).zero_()

    @staticmethod
    def _places(at: slice) -> Tensor:
        return torch.arange(at.start, at.stop)

    def _check_no_duplicates(self) -> None:
        for at in self.blocks:
            now = slice(max(1, at.start), at.stop)
            before = slice(now.start - 1, now.stop - 1)
            same = (self.source[now] == self.source[before]) & (self.target[now] == self.target[before])
            if bool(same.any()):
                edge = now.start + int(same.nonzero()[0])
                require(
                    False,
                    f"edge {edge} of the graph, {int(self.source[edge])} -> {int(self.target[edge])}, is listed more "
                    "than once; pack the graph again from edges that are there once",
                )

    def _own(self) -> Tensor:
        """The variable of each edge of a directed graph: its own; -1 for self-loops."""
        out = large_empty((self.edges,), self.source)
        for at in self.blocks:
            out[at] = self._places(at).masked_fill(self.source[at] == self.target[at], -1)
        return out

    def _shared(self, offsets: Tensor) -> Tensor:
        """The same of an undirected graph: that of the first of both directions, found among the target's own edges."""
        out = large_empty((self.edges,), self.source)
        for at in self.blocks:
            source, target, place = self.source[at], self.target[at], self._places(at)
            low, high = offsets[source], offsets[source + 1]
            while bool((low < high).any()):  # where the edges into the source name the target
                middle = (low + high) // 2
                is_before = (self.source[middle.clamp(max=self.edges - 1)] < target) & (low < high)
                high = torch.where(is_before, high, torch.minimum(middle, high))
                low = torch.where(is_before, middle + 1, low)
            out[at] = torch.minimum(place, low).masked_fill(source == target, -1)
        return out

    def _freeze(self, frozen: Tensor) -> None:
        """Take both directions of the frozen edges out."""
        is_frozen = large_empty((self.edges,), self.source, torch.bool).zero_()
        for at in self.blocks:
            chosen = self.variable[at][frozen[at]]
            is_frozen[chosen[chosen >= 0]] = True
        for at in self.blocks:
            own = self.variable[at]
            self.variable[at] = own.masked_fill((own >= 0) & is_frozen[own.clamp(min=0)], -1)

    def presence(self, edges: Tensor, flips: Tensor | None = None) -> Tensor:
        """The presence of some edges, :math:`1 - p`, or 0 for those that are flipped in a discrete choice."""
        own = self.variable[edges]
        p = self.p if flips is None else flips
        flipped: Tensor = p[own.clamp(min=0)].to(self.p.dtype).masked_fill(own < 0, 0.0)
        return 1.0 - flipped

    def add_gradient(self, out: Tensor, edges: Tensor, gradient: Tensor) -> None:
        """Add the gradient for the presences of some edges to that of the variables."""
        own = self.variable[edges]
        out.index_add_(0, own[own >= 0], -gradient[own >= 0])

    @torch.no_grad()
    def project_(self) -> None:
        r"""The projection onto the budget (:func:`graphmend.graph.budget.project`), in place.

        :math:`\sum_s \sum_{c \in s} \Pi_{[0,1]}(p_c - \gamma) = B`: each shard adds its part for the :math:`\gamma` of
        the iteration, so an iteration exchanges one number and its slope. At the end the sum is within the budget.
        """
        if self.budget <= 0:
            self.p.zero_()
            return
        clipped, _ = self._sum(0.0)
        gamma = 0.0
        if clipped > self.budget:
            upper = max(float(self.p[at].max()) for at in self.blocks)
            lower = 0.0
            for _ in range(STEPS):
                total, slope = self._sum(gamma)
                if total > self.budget:
                    lower = gamma
                else:
                    upper = gamma
                if total <= self.budget and self.budget - total <= CLOSE * self.budget:
                    break
                if upper - lower <= 1e-15 * max(1.0, upper):
                    break
                step = gamma + (total - self.budget) / slope if slope else math.inf
                gamma = step if lower < step < upper else 0.5 * (lower + upper)
            gamma = upper
        for at in self.blocks:
            self.p[at] = (self.p[at].double() - gamma).clamp_(0.0, 1.0).to(self.p.dtype)

    def _sum(self, gamma: float) -> tuple[float, int]:
        total, slope = 0.0, 0
        for at in self.blocks:
            shifted = self.p[at].double() - gamma
            slope += int(((shifted > 0.0) & (shifted < 1.0)).sum())
            total += float(shifted.clamp_(0.0, 1.0).sum())
        return total, slope

    @torch.no_grad()
    def discrete(self, number: int, generator: torch.Generator, kind: str) -> Iterator[tuple[str, Tensor]]:
        """Discrete flips within the budget by name, as :meth:`graphmend.graph.edge_flips.EdgeFlips.discrete` has them.

        A choice is a mask with one entry per edge, true at the variables that flip.
        """
        is_flat = self.budget == 0 or not any(bool((self.p[at] > 0).any()) for at in self.blocks)
        if kind == "sound" or is_flat:
            yield "identity", self._mask(torch.empty(0, dtype=torch.long))
        if is_flat:
            return
        yield "top", self._mask(self._top())
        for k in range(1, number + 1):
            drawn = torch.cat([self._drawn(at, generator) for at in self.blocks])
            surplus = drawn.numel() - self.budget
            if surplus > 0 and kind == "sound":
                drawn = drawn[torch.randperm(drawn.numel(), generator=generator)[surplus:]]
            if drawn.numel() <= self.budget:
                yield f"sample {k}", self._mask(drawn)

    def _drawn(self, at: slice, generator: torch.Generator) -> Tensor:
        p = self.p[at]
        drawn: Tensor = (torch.rand(p.numel(), generator=generator, dtype=p.dtype) < p).nonzero().view(-1)
        return drawn + int(at.start)

    def _top(self) -> Tensor:
        """The variables with the largest values above 0, as many as the budget allows."""
        values, places = self.p.new_empty(0), torch.empty(0, dtype=torch.long)
        for at in self.blocks:
            own = (self.p[at] > 0).nonzero().view(-1) + at.start
            values, places = torch.cat([values, self.p[own]]), torch.cat([places, own])
            best = values.topk(min(self.budget, values.numel()))
            values, places = best.values, places[best.indices]
        return places

    def _mask(self, variables: Tensor) -> Tensor:
        out = large_empty((self.edges,), self.p, torch.bool).zero_()
        out[variables] = True
        return out

    def removed(self, flips: Tensor) -> Tensor:
        """The positions of the edges that go, both directions of each."""
        found = []
        for at in self.blocks:
            own = self.variable[at]
            found.append(((own >= 0) & flips[own.clamp(min=0)]).nonzero().view(-1) + at.start)
        return torch.cat(found)
