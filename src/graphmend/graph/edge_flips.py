r"""Edge flips: candidates, the relaxation :math:`A \oplus p`, the budget and the discrete graphs; pairs as numbers.

Each pair of nodes :math:`i < j` has a number, counted along the upper triangle.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.autograd import apply
from graphmend.engine.cache import cached
from graphmend.engine.ops import gathered
from graphmend.graph.budget import samples, top
from graphmend.graph.checks import check_no_duplicates

SPACES = ("existing", "random_block")
DIRECTED = ("delete", "reverse")
CANDIDATES = ("sound", "paper")
"""Discrete graphs to choose from: the budget's largest ``p`` and Bernoulli samples of ``p``. ``"sound"`` has the
unflipped graph as well, and a sample beyond the budget loses flips at random until it fits. ``"paper"`` (Algorithm 1,
lines 14-18, and the released code) has no unflipped graph, and rejects a sample beyond the budget."""


@dataclass(eq=False)
class EdgeFlips:
    r"""Edges that may flip, one variable :math:`p_c \in [0, 1]` per candidate, undirected where the graph is.

    The edge list is the graph's own, followed by entries for pairs that do not exist yet. An entry of candidate
    :math:`c` has presence :math:`1 - p_c` if it exists in the graph and :math:`p_c` if not: :math:`A \oplus p`, where
    an explicit mask says which entries exist. Self-loops and frozen edges belong to no candidate.
    """

    edge_index: Tensor  #: (2, E + new) the graph's edges, then those that could be added
    num_edges: int  #: E
    candidate: Tensor  #: (E + new,) candidate of each entry, or -1
    num_candidates: int
    budget: int  #: how many candidates may flip
    p: Tensor  #: (num_candidates,) flip probabilities

    @classmethod
    def of(
        cls,
        edge_index: Tensor,
        num_nodes: int,
        *,
        budget: float | int,
        space: str = "existing",
        block_size: int = 10_000,
        directed: str = "delete",
        frozen: Tensor | None = None,
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator | None = None,
    ) -> EdgeFlips:
        """Set up the candidates of a graph.

        Args:
            edge_index: The graph's edges, each listed once.
            num_nodes: Number of nodes.
            budget: A fraction of the graph's edges (float; undirected edges count once) or a number of them (int).
            space: ``"existing"`` edges only, or those and a ``"random_block"`` of pairs that could be added.
            block_size: How many random pairs without an edge to draw.
            directed: On directed graphs ``"delete"`` removes edges one by one; ``"reverse"`` does what the released
                code does: a pair stored as ``i -> j`` with ``i < j`` is turned into ``j -> i``, others never change.
            frozen: Mask of edges that are never removed.
            dtype: Floating-point type of ``p``.
            generator: Source of randomness for the block.
        """
        adjacency = Adjacency.of(edge_index, num_nodes)
        check_no_duplicates(adjacency)
        source, target = edge_index
        undirected = adjacency.is_symmetric
        free = source != target
        total: float = int(free.sum()) if adjacency.has_loops else free.numel()
        if undirected:
            total //= 2
            candidate, number = _undirected_candidates(adjacency, frozen)
        elif directed == "reverse":
            total = source.numel() / 2  # the released code halves the stored entries of any graph
            candidate, number = _upward_candidates(edge_index, num_nodes, frozen)
        else:
            if frozen is not None:
                free &= ~frozen.to(free.device)
            candidate, number = torch.where(free, free.cumsum(0) - 1, -1), int(free.sum())
        new, new_candidate = edge_index.new_empty((2, 0)), source.new_empty(0)
        if not undirected and directed == "reverse":
            alone = (candidate >= 0) & ~torch.isin(target * num_nodes + source, source * num_nodes + target)
            new, new_candidate = edge_index[:, alone].flip(0), candidate[alone]
        if space == "random_block":
            block = _random_pairs(torch.cat([edge_index, new], dim=1), num_nodes, block_size, undirected, generator)
            ids = number + torch.arange(block.size(1), device=source.device)
            number += block.size(1)
            both = torch.cat([block, block.flip(0)], dim=1) if undirected else block
            new = torch.cat([new, both], dim=1)
            new_candidate = torch.cat([new_candidate, ids.repeat(2) if undirected else ids])
        allowed = budget if isinstance(budget, int) else math.floor(budget * total + 1e-9)
        return cls(
            edge_index=torch.cat([edge_index, new], dim=1) if new.numel() else edge_index,
            num_edges=edge_index.size(1),
            candidate=torch.cat([candidate, new_candidate]),
            num_candidates=number,
            budget=min(int(allowed), number),
            p=torch.zeros(number, dtype=dtype, device=source.device),
        )

    def __post_init__(self) -> None:
        index = torch.int32 if self.candidate.numel() < 2**31 else torch.int64
        self.candidate = self.candidate.to(index)
        self._sign = torch.ones_like(self.candidate, dtype=torch.int8)
        self._sign[: self.num_edges] = -1
        self._sign.masked_fill_(self.candidate < 0, 0)

    def presence(self, p: Tensor | None = None) -> Tensor:
        r"""The relaxed adjacency :math:`A \oplus p` as one presence per entry; a boolean ``p`` is a discrete choice."""
        if p is None:
            return cached(("presence", id(self)), (self.p,), lambda: self.presence(self.p))
        if p.dtype == torch.bool:
            return self._presence_after(p)
        if self.num_candidates == 0:
            there = torch.arange(self.candidate.numel(), device=p.device) < self.num_edges
            return there.to(p.dtype) + p.sum()  # the sum is 0, but gives an edge step a gradient
        out: Tensor = apply(_Presence, self, p)
        return out

    def _presence_after(self, flips: Tensor) -> Tensor:
        """Only the few entries that flip are written; the others are not looked up."""
        entries = self.places.index_select(1, flips.nonzero().view(-1)).long()  # one past the end where there is none
        out = self.p.new_zeros(self.candidate.numel() + 1)
        out[: self.num_edges] = 1.0
        out[entries] = (entries >= self.num_edges).to(out.dtype)
        return out[:-1]

    @functools.cached_property
    def places(self) -> Tensor:
        """The entries of each candidate, at most two, ``(2, num_candidates)``; one past the end where there is none."""
        none, number = self.candidate.numel(), self.num_candidates
        entries = torch.arange(none, dtype=self.candidate.dtype, device=self.candidate.device)
        slots = self.candidate.long().masked_fill(self.candidate < 0, number)  # a last slot that is cut off below
        first, last = entries.new_full((number + 1,), none), entries.new_full((number + 1,), -1)
        first.scatter_reduce_(0, slots, entries, "amin")
        last.scatter_reduce_(0, slots, entries, "amax")
        return torch.stack([first, last.masked_fill_(last == first, none)])[:, :number]

    def discrete(
        self, num_samples: int, generator: torch.Generator | None = None, kind: str = "sound"
    ) -> Iterator[tuple[str, Tensor]]:
        """Discrete flips within the budget by name: one of the :data:`CANDIDATES`."""
        p = self.p.detach().clone()  # the caller may change p between two candidates
        is_flat = self.budget == 0 or not bool((p > 0).any())
        if kind == "sound" or is_flat:
            yield "identity", torch.zeros_like(p, dtype=torch.bool)
        if is_flat:
            return
        yield "top", top(p, self.budget)
        draws = samples(p, self.budget if kind == "sound" else p.numel(), num_samples, generator)
        for k, flips in enumerate(draws, start=1):
            if kind == "sound" or int(flips.sum()) <= self.budget:
                yield f"sample {k}", flips

    def changes(self, flips: Tensor) -> tuple[Tensor, Tensor]:
        """Positions of the removed edges, and the added edges ``(2, m)``, of a discrete choice of candidates."""
        if self.num_candidates == 0:
            return self.candidate.new_empty(0), self.edge_index[:, :0]
        flipped = flips.index_select(0, self.candidate.clamp(min=0)) & (self.candidate >= 0)
        removed = flipped[: self.num_edges].nonzero().view(-1)
        return removed, self.edge_index[:, self.num_edges :][:, flipped[self.num_edges :]]


class _Presence(torch.autograd.Function):
    """``1 - p`` for edges, ``p`` for others, 1 without a candidate; the gradient gathers instead of scattering."""

    @staticmethod
    def forward(ctx: Any, flips: EdgeFlips, p: Tensor) -> Tensor:
        ctx.flips = flips
        out = gathered(p, flips.candidate.clamp(min=0)).mul_(flips._sign)
        out[: flips.num_edges] += 1
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        signed = F.pad(grad * ctx.flips._sign, (0, 1))  # a zero for candidates with one entry only
        first, second = ctx.flips.places
        return None, gathered(signed, first).add_(gathered(signed, second))


def _undirected_candidates(adjacency: Adjacency, frozen: Tensor | None) -> tuple[Tensor, int]:
    """One candidate per pair, numbered by its lower and then its higher node; -1 for loops and frozen pairs."""
    upper = adjacency.row < adjacency.col
    if frozen is not None:
        marked = adjacency.order(frozen.to(upper.device))
        upper &= ~(marked | adjacency.transposed(marked))
    rank = (upper.cumsum(0) - 1).masked_fill_(~upper, -1).to(adjacency.row.dtype)
    rank = torch.maximum(rank, adjacency.transposed(rank))
    inverse = adjacency.inverse_perm
    number = upper.numel() // 2 if frozen is None and not adjacency.has_loops else int(upper.sum())
    return (rank if inverse is None else rank.index_select(0, inverse)), number


def _upward_candidates(edge_index: Tensor, num_nodes: int, frozen: Tensor | None) -> tuple[Tensor, int]:
    """The released code's candidates on a directed graph: pairs stored from the lower to the higher node."""
    source, target = edge_index
    pair = torch.minimum(source, target) * num_nodes + torch.maximum(source, target)
    free = (source != target) & torch.isin(pair, pair[source < target])
    if frozen is not None:
        free &= ~torch.isin(pair, pair[frozen.to(pair.device)])
    keys, inverse = torch.unique(pair[free], return_inverse=True)
    candidate = torch.full_like(source, -1)
    candidate[free] = inverse
    return candidate, keys.numel()


def _random_pairs(
    edge_index: Tensor, num_nodes: int, size: int, undirected: bool, generator: torch.Generator | None
) -> Tensor:
    """``size`` random pairs without an edge between them, or all there are."""
    source, target = edge_index[:, edge_index[0] != edge_index[1]]
    ordered = num_nodes * (num_nodes - 1)
    if undirected:
        up, total = source < target, ordered // 2
        taken = pair_number(source[up], target[up], num_nodes)
    else:  # row by row, without the diagonal
        taken, total = source * (num_nodes - 1) + target - (target > source).long(), ordered
    generator = torch.Generator(device=edge_index.device) if generator is None else generator
    taken = torch.unique(taken)
    numbers = random_numbers(min(size, total - taken.numel()), total, generator, taken)
    if undirected:
        return pair_of(numbers, num_nodes)
    row, column = numbers // max(num_nodes - 1, 1), numbers % max(num_nodes - 1, 1)
    return torch.stack([row, column + (column >= row).long()])


def pair_number(i: Tensor, j: Tensor, num_nodes: int) -> Tensor:
    r"""The number :math:`i (2n - i - 1) / 2 + j - i - 1` of the pair :math:`i < j` in an upper triangle."""
    return i * (2 * num_nodes - i - 1) // 2 + j - i - 1


def pair_of(number: Tensor, num_nodes: int) -> Tensor:
    """The pairs ``(2, m)`` with the given numbers; the rounding of the square root is corrected, so they are exact."""
    width = 2 * num_nodes - 1
    i = ((width - (width**2 - 8 * number.double()).clamp(min=0).sqrt()) / 2).long().clamp(0, max(num_nodes - 2, 0))
    i = i - (i * (width - i) // 2 > number).long()
    i = i + ((i + 1) * (width - i - 1) // 2 <= number).long()
    return torch.stack([i, number - i * (width - i) // 2 + i + 1])


def random_numbers(count: int, total: int, generator: torch.Generator, without: Tensor | None = None) -> Tensor:
    """``count`` different numbers below ``total``, none of them in ``without`` (sorted), uniformly, sorted.

    At least ``count`` numbers must be left; memory is proportional to ``count`` and ``without``.
    """
    device, taken = generator.device, 0 if without is None else without.numel()
    drawn = torch.empty(0, dtype=torch.long, device=device)
    if (
        2 * (count + taken) >= total
    ):  # if so many are wanted that listing all numbers is cheaper than drawing until enough are new
        drawn = torch.arange(total, device=device)
        drawn = drawn if without is None else drawn[~_is_in(drawn, without)]
    while drawn.numel() < count:
        missing = count - drawn.numel()
        more = torch.randint(total, (missing + missing // 8 + 64,), generator=generator, device=device)
        drawn = torch.unique(torch.cat([drawn, more if without is None else more[~_is_in(more, without)]]))
    if drawn.numel() == count:
        return drawn
    order = torch.randperm(drawn.numel(), generator=generator, device=device)
    return drawn[order[:count].sort().values]


def _is_in(values: Tensor, ordered: Tensor) -> Tensor:
    if ordered.numel() == 0:
        return torch.zeros_like(values, dtype=torch.bool)
    return ordered[torch.searchsorted(ordered, values).clamp(max=ordered.numel() - 1)] == values
