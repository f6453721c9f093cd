"""Runs of a model on a graph in shards, put together again."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.engine.low_rank import Leaves, some_rows
from graphmend.engine.memory import available_memory
from graphmend.errors import require
from graphmend.graph.mapped import MappedGraph
from graphmend.graph.shards import NODE_ROWS, cut, plan, run_cost
from graphmend.model.call import Output
from graphmend.model.reach import reach_of
from graphmend.scratch import ROWS, large_empty

__all__ = ["Rows", "ShardRun", "Sharding", "joined", "put_together"]

Rows = tuple[int, tuple[Tensor, ...]]
"""The first owned node of a shard, and what a run gives for the nodes that it owns."""

SHARE = 0.25  # of the free memory, that a shard may take
MOST = 1 << 30  # bytes that a shard may take, however much is free
ALONE = 1 << 24  # bytes of a run that is over before others have begun


@dataclass(frozen=True)
class ShardRun:
    """A run of a model on one shard: a pure function of the range of nodes that the shard owns.

    It can be sent to another process if ``show`` can be.

    Args:
        graph: The whole graph, with the features to run on.
        hops: How far the halo reaches.
        show: What the model gives for the graph of a shard, some tensors with a row for each of its nodes.
        change: A change of low rank of the features, ``left @ right``, that is not written out.
        leaves: Variables that the features stand for, to be differentiated for.
    """

    graph: MappedGraph
    hops: int
    show: Callable[[Data], tuple[Tensor, ...]]
    change: tuple[Tensor, Tensor] | None = None
    leaves: Leaves | None = None

    def __call__(self, bounds: tuple[int, int]) -> Rows:
        """What the model gives for the owned nodes."""
        offsets = self.graph.offsets()
        assert offsets is not None
        own = copy.copy(self.graph)
        own.x = torch.arange(own.x.size(0)).unsqueeze(1)  # the rows to take
        part, start, owned = next(cut(own, offsets, [bounds], self.hops))
        inside = part.x.view(-1)
        part.x = self.graph.x[inside] if self.leaves is None else some_rows(self.leaves, inside)
        if self.change is not None:
            left, right = self.change
            part.x = torch.addmm(part.x, left[inside], right)
        found = self.show(part)
        fits = all(rows.size(0) == inside.numel() for rows in found)
        require(fits, "the model gives no row per node, so it cannot run in shards")
        return start, tuple(rows[:owned] for rows in found)


class Sharding:
    """In which shards a model runs on mapped graphs; measured when the first one runs.

    Args:
        model: The model in evaluation mode.
        width: Of its widest layer.
        seed: Seed of the trial.
        leave_out: Parameters of the model that are not filled.
        output: Which part of its output counts.
        can_stream: Whether the edges of a mapped graph can stay on the disk while the model runs on all nodes.
    """

    def __init__(
        self,
        model: nn.Module,
        width: int,
        seed: int,
        leave_out: frozenset[str],
        output: Output,
        can_stream: Callable[[], bool],
    ) -> None:
        self.can_stream = can_stream
        self.model, self.width, self.seed, self.leave_out, self.output = model, width, seed, leave_out, output
        self._reach: dict[bool, int | None] = {}
        self._plans: dict[tuple[int, int, int | None], list[tuple[int, int]]] = {}

    def reach(self, graph: MappedGraph) -> int | None:
        """How many hops of halo the model needs."""
        symmetric = graph.is_symmetric
        if symmetric not in self._reach:
            self._reach[symmetric] = reach_of(self.model, graph, symmetric, self.seed, self.leave_out, self.output)
        return self._reach[symmetric]

    def streams(self, graph: Data, x: Tensor) -> bool:
        """Whether a whole run reads the edges of a mapped graph from the disk, a range of targets at a time.

        It needs no halo, so it is preferred where representations of all nodes fit into the memory.
        """
        if not isinstance(graph, MappedGraph) or graph.shards is not None or graph.offsets() is None:
            return False
        free, size = available_memory(torch.device("cpu")), x.element_size()
        cost = run_cost(x.size(0), int(graph.edge_index.size(1)), x.size(1), self.width, size)
        is_large = cost > min(MOST, int(SHARE * free))
        return is_large and x.size(0) * NODE_ROWS * self.width * max(size, 4) <= free and self.can_stream()

    def key(self, run: ShardRun, *more: object) -> str:
        """What tells runs on shards apart that give other numbers: the model, the graph, its features, and ``more``."""
        values = {**self.model.state_dict(), **run.graph.to_dict()}
        left, right = (None, None) if run.change is None else run.change
        tensors = {**values, "left": left, "right": right}
        total = hashlib.sha256(repr((str(self.model), self.seed, self.output, run.hops, more)).encode())
        for name, value in sorted(tensors.items()):
            if isinstance(value, Tensor):
                total.update(f"{name} {value.dtype} {tuple(value.shape)};".encode())
                for part in torch.split(value.detach().reshape(-1), ROWS) if value.numel() else ():
                    total.update(part.contiguous().view(torch.uint8).numpy().tobytes())
            else:
                total.update(f"{name} {value!r};".encode())
        return total.hexdigest()[:32]

    def is_large(self, graph: MappedGraph, factor: int = 1) -> bool:
        """Whether a run on the whole graph, several times as wide as the model, takes more than its share of memory."""
        x, edges = graph.x, int(graph.edge_index.size(1))
        cost = run_cost(x.size(0), edges, x.size(1), factor * self.width, x.element_size())
        return cost > min(factor * MOST, int(SHARE * available_memory(torch.device("cpu"))))

    def shards_for_gradients(self, graph: MappedGraph, factor: int) -> tuple[list[tuple[int, int]], int]:
        """The shards in which a loss can be differentiated, and their hops.

        Args:
            graph: The graph.
            factor: How many times as wide as the model the representations are that it keeps.
        """
        hops, free = self.reach(graph), available_memory(torch.device("cpu"))
        require(hops is not None, "the model cannot run in shards: its output depends on nodes at any distance")
        assert hops is not None
        return plan(graph, hops, factor * self.width, min(MOST, int(SHARE * free)), free), hops

    def ranges(self, graph: Data, x: Tensor) -> tuple[list[tuple[int, int]], int] | None:
        """The shards of a graph with other features, and their hops; ``None`` where it runs as a whole."""
        if not isinstance(graph, MappedGraph) or (torch.is_grad_enabled() and x.requires_grad):
            return None
        if graph.offsets() is None or graph.shards == 1 or self.streams(graph, x):
            return None
        nodes, edges = x.size(0), int(graph.edge_index.size(1))
        free = available_memory(torch.device("cpu"))
        budget = min(MOST, int(SHARE * free))
        cost = run_cost(nodes, edges, x.size(1), self.width, x.element_size())
        least = graph.least_shards if cost > ALONE else 1
        if graph.shards is None and cost <= budget and least == 1:
            return None
        hops = self.reach(graph)
        if hops is None:
            other = "" if graph.is_symmetric else ", or on edges the other way round, which need both directions"
            require(
                graph.shards is None and cost <= free,
                f"the model cannot run in shards: its output depends on nodes at any distance{other}; on the whole "
                f"graph it takes about {cost / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free; use a larger machine",
            )
            return None
        key = (graph.edge_index.data_ptr(), hops, graph.shards or least)
        if key not in self._plans:
            self._plans[key] = plan(graph, hops, self.width, budget, free, least)
        return self._plans[key], hops


def joined(found: Iterable[Rows]) -> tuple[Tensor, ...]:
    """The same as one tensor that can be differentiated, from shards in their order."""
    return tuple(torch.cat(rows) for rows in zip(*(parts for _, parts in found), strict=True))


def put_together(found: Iterable[Rows], nodes: int) -> tuple[Tensor, ...]:
    """What runs give for the nodes that each shard owns, for all nodes; the shards may come in any order."""
    out: tuple[Tensor, ...] = ()
    for start, parts in found:
        if not out:
            out = tuple(large_empty((nodes, *rows.shape[1:]), rows) for rows in parts)
        for whole, rows in zip(out, parts, strict=True):
            whole[start : start + rows.size(0)] = rows
    return out
