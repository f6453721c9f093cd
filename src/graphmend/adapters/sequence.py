"""Sequence: several adapters one after another, as one."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.adapters.base import Adapter, Change, Task
from graphmend.engine.report import Report, Stopped
from graphmend.errors import listed, require
from graphmend.graph.checks import is_finite
from graphmend.graph.edits import attributes_of_added, with_edge_changes
from graphmend.graph.limits import Limits
from graphmend.results.verdict import Verdict

__all__ = ["Sequence"]


@dataclass(frozen=True, init=False)
class Sequence(Adapter):
    r"""Run adapters one after another, each on the graph that the ones before it left.

    ``Impute() >> Align()`` is ``Sequence(Impute(), Align())``. The result is that of one adapter: one patch from the
    caller's graph to the last one, one history. If a member stops, nothing is changed at all, and the reason names it.
    All members share one frozen model; if some of them name an ``embedding``, it is that of all. Missing values are
    filled before the first member begins, if that one fills them: ``Impute() >> GTrans()``. The verdict of a gate among
    them is kept, but not the version of the graph that it did not choose, so there are no questions to ask.

    Args:
        members: The adapters. Those that change the model cannot be among them.

    Example:
        >>> from graphmend.adapters import GTrans, Identity
        >>> [type(member).__name__ for member in (Identity() >> GTrans() >> Identity()).members]
        ['Identity', 'GTrans', 'Identity']
    """

    members: tuple[Adapter, ...]

    def __init__(self, *members: Adapter) -> None:
        require(len(members) > 0, "a sequence needs at least one adapter, such as Sequence(Impute(), Align())")
        flat: list[Adapter] = []
        for member in members:
            kind = type(member).__name__
            require(isinstance(member, Adapter), f"the members of a sequence are adapters (got {kind})")
            require(
                not member.changes_model,
                f"{kind} changes the model and cannot be in a sequence, whose members share one frozen model; "
                "call it by itself and give the others its result.model",
            )
            flat += member.members if isinstance(member, Sequence) else (member,)
        names = {member.embedding for member in flat} - {None}
        require(
            len(names) < 2,
            f"the members of a sequence share one embedding, but name {listed(names)}; leave all but one of them out",
        )
        object.__setattr__(self, "members", tuple(flat))
        object.__setattr__(self, "embedding", next(iter(names), None))
        object.__setattr__(self, "fills_missing", flat[0].fills_missing)

    @property
    def _name(self) -> str:
        return " >> ".join(member._name for member in self.members)

    @property
    def _remedy(self) -> str:
        return " or ".join(dict.fromkeys(member._remedy for member in self.members))

    def adapt(self, task: Task) -> Change:
        """Each member on what the ones before it left."""
        total, change = _Total(task.data), Change()
        for member in self.members:
            if total.num_edges == 0:
                raise Stopped(f"{type(member).__name__}: the adapters before it have removed all edges")
            change = self._attempt_on(member, task, total)
            if change.x is not None and not is_finite(change.x):
                raise Stopped(f"{type(member).__name__}: the mended features are not finite")
            total.take(change)
        return total.change(change.logits)

    @staticmethod
    def _attempt_on(member: Adapter, task: Task, total: _Total) -> Change:
        graph = total.graph()
        history, generator = task.history.part(), torch.Generator(device=graph.x.device).manual_seed(task.seed)
        part = replace(task, data=graph, limits=total.limits(task.limits), generator=generator, history=history)
        try:
            with task.require_frozen().on(graph, weights_count=total.has_new_weights):
                change = member.attempt(part)
        finally:
            task.history.include(history)
        if isinstance(change, Stopped):
            raise Stopped(f"{type(member).__name__}: {change}") from change
        return change


class _Total:
    """All changes so far as one change of the original graph.

    Args:
        data: The original graph.
    """

    def __init__(self, data: Data) -> None:
        self.data = data
        self._x: Tensor | None = None
        self._kept = torch.arange(data.edge_index.size(1), device=data.x.device)  #: positions in the original list
        self._added = data.edge_index[:, :0]
        self._weight: Tensor | None = None  #: of the edges that stay and of those that were added
        self._report: Report | None = None
        self._verdict: Verdict | None = None  #: of a gate among the members

    @property
    def num_edges(self) -> int:
        """Edges of the changed graph: those that stay in their order, then those that were added."""
        return self._kept.numel() + int(self._added.size(1))

    @property
    def has_new_weights(self) -> bool:
        """Whether a member has changed edge weights."""
        return self._weight is not None

    def take(self, change: Change) -> None:
        """Change the changed graph further."""
        self._x = self._x if change.x is None else change.x.detach()
        self._report = self._report if change.report is None else change.report
        if change.verdict is not None:  # what to do next may name questions, which only its own result has
            self._verdict = replace(change.verdict, next_step="")
        if change.removed is not None:
            keep = torch.ones(self.num_edges, dtype=torch.bool, device=self._kept.device)
            keep[change.removed] = False
            old = self._kept.numel()
            self._weight = None if self._weight is None else self._weight[keep]
            self._kept, self._added = self._kept[keep[:old]], self._added[:, keep[old:]]
        if change.added is not None:
            self._added = torch.cat([self._added, change.added], dim=1)
            if self._weight is not None:
                self._weight = torch.cat([self._weight, self._weight.new_ones(change.added.size(1))])
        self._weight = self._weight if change.edge_weight is None else change.edge_weight.detach()

    @property
    def _removed(self) -> Tensor:
        gone = torch.ones(self.data.edge_index.size(1), dtype=torch.bool, device=self._kept.device)
        gone[self._kept] = False
        return gone.nonzero().view(-1)

    def graph(self) -> Data:
        """The changed graph."""
        if self._kept.numel() == self.data.edge_index.size(1) == self.num_edges:
            out = copy.copy(self.data)
        else:
            out = with_edge_changes(self.data, self._removed, attributes_of_added(self.data, self._added))
        out.x = self.data.x if self._x is None else self._x
        if self._weight is not None:
            out.edge_weight = self._weight
        return out

    def limits(self, limits: Limits) -> Limits:
        """The limits with the frozen edges where they are now."""
        if limits.frozen_edges is None:
            return limits
        new = limits.frozen_edges.new_zeros(self._added.size(1))
        return replace(limits, frozen_edges=torch.cat([limits.frozen_edges[self._kept], new]))

    def change(self, logits: Tensor | None) -> Change:
        """All of it as one change, with the logits if they are known."""
        return Change(self._x, self._removed, self._added, logits, self._report, self._weight, verdict=self._verdict)
