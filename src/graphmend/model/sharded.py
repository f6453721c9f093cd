"""Runs of a model on a graph in shards, put together again."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.engine.low_rank import rows_of
from graphmend.engine.memory import available_memory
from graphmend.errors import require
from graphmend.graph.mapped import MappedGraph
from graphmend.graph.shards import cut, plan, run_cost
from graphmend.model.call import Output
from graphmend.model.reach import reach_of

__all__ = ["Part", "Sharding", "put_together"]

Part = tuple[Data, int, int]
"""The graph of a shard, its first owned node, and how many it owns."""

SHARE = 0.25  # of the free memory, that a shard may take
MOST = 1 << 30  # bytes that a shard may take, however much is free


class Sharding:
    """In which shards a model runs on mapped graphs; measured when the first one runs.

    Args:
        model: The model in evaluation mode.
        width: Of its widest layer.
        seed: Seed of the trial.
        leave_out: Parameters of the model that are not filled.
        output: Which part of its output counts.
    """

    def __init__(self, model: nn.Module, width: int, seed: int, leave_out: frozenset[str], output: Output) -> None:
        self.model, self.width, self.seed, self.leave_out, self.output = model, width, seed, leave_out, output
        self._reach: dict[bool, int | None] = {}
        self._plans: dict[tuple[int, int, int | None], list[tuple[int, int]]] = {}

    def reach(self, graph: MappedGraph) -> int | None:
        """How many hops of halo the model needs."""
        symmetric = graph.is_symmetric
        if symmetric not in self._reach:
            self._reach[symmetric] = reach_of(self.model, graph, symmetric, self.seed, self.leave_out, self.output)
        return self._reach[symmetric]

    def parts(self, graph: Data, x: Tensor) -> Iterator[Part] | None:
        """The shards of a graph with other features; ``None`` where it runs as a whole."""
        if not isinstance(graph, MappedGraph) or (torch.is_grad_enabled() and x.requires_grad):
            return None
        offsets = graph.offsets()
        if offsets is None or graph.shards == 1:
            return None
        nodes, edges = x.size(0), int(graph.edge_index.size(1))
        free = available_memory(torch.device("cpu"))
        budget = min(MOST, int(SHARE * free))
        cost = run_cost(nodes, edges, x.size(1), self.width, x.element_size())
        if graph.shards is None and cost <= budget:
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
        key = (graph.edge_index.data_ptr(), hops, graph.shards)
        if key not in self._plans:
            self._plans[key] = plan(graph, hops, self.width, budget, free)
        return self._cut(graph, offsets, x, self._plans[key], hops)

    @staticmethod
    def _cut(
        graph: MappedGraph, offsets: Tensor, x: Tensor, ranges: list[tuple[int, int]], hops: int
    ) -> Iterator[Part]:
        own = copy.copy(graph)
        own.x = torch.arange(x.size(0)).unsqueeze(1)  # the rows to take
        for part, start, owned in cut(own, offsets, ranges, hops):
            part.x = rows_of(x, part.x.view(-1))
            yield part, start, owned


def put_together(parts: Iterator[Part], nodes: int, run: Callable[[Data], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """What a run gives for the nodes that each shard owns, for all nodes."""
    out: tuple[Tensor, ...] = ()
    for part, start, owned in parts:
        found = run(part)
        if not out:
            out = tuple(rows.new_empty((nodes, *rows.shape[1:])) for rows in found)
        for whole, rows in zip(out, found, strict=True):
            require(rows.size(0) == part.x.size(0), "the model gives no row per node, so it cannot run in shards")
            whole[start : start + owned] = rows[:owned]
    return out
