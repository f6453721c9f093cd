"""What an adapter is given to work on, and what it wants to change."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.adapters.missing import Filling
from graphmend.cards.source_card import SourceCard
from graphmend.engine.engine import Engine
from graphmend.engine.memory import check_memory
from graphmend.engine.report import Report
from graphmend.errors import require
from graphmend.graph.edge_flips import EdgeFlips
from graphmend.graph.limits import Limits
from graphmend.graph.relaxed import RelaxedGraph
from graphmend.model import FrozenGNN
from graphmend.results.history import History
from graphmend.results.verdict import Verdict
from graphmend.surrogates.base import Surrogate

__all__ = ["Change", "Task"]


@dataclass
class Change:
    """What an adapter wants to change; whatever is ``None`` stays as it is.

    Args:
        x: New features.
        removed: Positions of the edges that go.
        added: Edges that come, ``(2, m)``.
        logits: The model's output on the changed graph, if the adapter knows it.
        report: How it was computed.
        edge_weight: New weights, one per edge of the changed graph: those that stay, then those that come.
        verdict: Why, if a gate decided.
        alternative: The change that was considered and not made.
        menders: Names of the menders that an alternative comes from.
    """

    x: Tensor | None = None
    removed: Tensor | None = None
    added: Tensor | None = None
    logits: Tensor | None = None
    report: Report | None = None
    edge_weight: Tensor | None = None
    verdict: Verdict | None = None
    alternative: Change | None = None
    menders: tuple[str, ...] = ()


@dataclass
class Task:
    """What an adapter works on.

    Args:
        model: The caller's model, to be read only, or the adapter's own copy if it ``changes_model``.
        data: The graph, to be read only; its missing values are filled.
        limits: What may not change.
        seed: Seed of everything random.
        generator: Source of everything random, seeded.
        history: Where steps and discrete graphs are noted.
        mode: ``"auto"``, or ``"eager"`` for the plain way.
        card: The source card, if the caller has one.
        filling: What was missing and is filled, if something was.
    """

    model: nn.Module
    data: Data
    limits: Limits
    seed: int
    generator: torch.Generator
    history: History
    mode: str = "auto"
    card: SourceCard | None = None
    filling: Filling | None = None
    frozen: FrozenGNN | None = None  #: the frozen model, for adapters that leave it as it is

    def relaxed(self, flips: EdgeFlips | None = None) -> RelaxedGraph:
        """The graph with its features, and edges that may flip, as variables, if they fit into the memory."""
        frozen = self.require_frozen()
        entries = (self.data if flips is None else flips).edge_index.size(1)
        check_memory(self.data.x, entries, frozen.width)
        return RelaxedGraph(self.data, flips, weighted=frozen.takes_edge_weights)

    def engine(self, surrogate: Surrogate, graph: RelaxedGraph) -> Engine:
        """An engine for a loss on the variables of a graph."""
        frozen, entries = self.require_frozen(), graph.edge_index.size(1)
        surrogate = surrogate.prepare(frozen, self.data, self.seed)
        key = surrogate.signature()
        abilities = frozen.abilities(surrogate, key) if self.mode == "auto" else None
        if graph.x.is_cuda:
            frozen.prepare(graph.edge_index)
            graph.prepare()
        sizes = (graph.x.shape, graph.x.dtype, graph.x.device, entries, None if graph.p is None else graph.p.numel())
        return Engine(
            frozen,
            surrogate,
            graph,
            generator=self.generator,
            seed=self.seed,
            abilities=abilities,
            kernels=(frozen.signature, key, *sizes),
            hidden=frozen.width,
            mode=self.mode,
        )

    def require_card(self, adapter: object) -> SourceCard:
        """The source card."""
        name = type(adapter).__name__
        require(
            self.card is not None,
            f"{name} compares the graph with the one the model was trained on and needs a source card; "
            "make one with graphmend.card(model, train_data) and pass card=...",
        )
        assert self.card is not None
        return self.card

    def judged(self, rows: Tensor) -> Tensor:
        """Those of the rows, a mask, that had a value; one that was missing as a whole has nothing to be judged by."""
        return rows if self.filling is None else rows & ~self.filling.empty_rows

    @property
    def given(self) -> Data:
        """The graph as the caller has it, in which values may be missing."""
        if self.filling is None:
            return self.data
        out = copy.copy(self.data)
        out.x = self.filling.given
        return out

    def within_limits(self, x: Tensor) -> Tensor:
        """New features brought into the limits, in place."""
        project = self.limits.projection(self.data.x)
        if project is not None:
            project(x)
            self.limits.finish(x, self.data.x)
        return x

    def require_frozen(self) -> FrozenGNN:
        """The frozen model."""
        require(self.frozen is not None, "an adapter that changes the model has no frozen one; use task.model")
        assert self.frozen is not None
        return self.frozen
