"""The call of an adapter, the base class that saves work, and several adapters as one.

An adapter has to keep the contract :class:`graphmend.contracts.Adapter`: it has ``propose(case) -> Proposal``, and
attributes that say what it needs (:class:`~graphmend.adapters.case.Needs`). Any such class works everywhere; the base
class makes it callable by itself and adds ``>>``.
"""

from __future__ import annotations

import copy
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeGuard, Unpack, cast

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.adapters.case import Case, Needs, Options, finish, prepare
from graphmend.contracts import Adapter as AdapterContract
from graphmend.engine.report import Report, Stopped
from graphmend.errors import GraphMendError, listed, require, shown
from graphmend.graph.checks import is_finite
from graphmend.graph.edits import attributes_of_added, with_edge_changes
from graphmend.graph.limits import Limits
from graphmend.outputs import TASKS
from graphmend.results.adaptation import Adaptation
from graphmend.results.proposal import Proposal
from graphmend.results.verdict import Verdict

__all__ = ["Adapter", "Sequence", "call", "check_adapter"]

_LOG = logging.getLogger(__name__)


def call(
    adapter: AdapterContract | Callable[..., Adaptation], model: nn.Module, data: Data, **options: Unpack[Options]
) -> Adaptation:
    """Prepare a case, let the adapter propose, and finish: the whole of a call."""
    if not proposes(adapter):
        return cast(Callable[..., Adaptation], adapter)(model, data, **options)
    needs = Needs.of(adapter)
    with prepare(model, data, needs, **options) as case:
        return finish(case, _attempt(adapter, case), needs)


def _attempt(adapter: AdapterContract, case: Case) -> Proposal | Stopped:
    """What an adapter proposes, or why it stopped; the numbers of all steps have been read."""
    try:
        proposal = adapter.propose(case)
        case.history.read()
        case.history.candidates()
    except Stopped as stopped:
        try:
            case.history.read()  # the true reason may lie in an earlier step
        except Stopped as earlier:
            return earlier
        return stopped
    if proposal.sentence and proposal.verdict is None:
        _LOG.debug("%s: %s", type(adapter).__name__, proposal.sentence)
    return proposal


def proposes(adapter: object) -> TypeGuard[AdapterContract]:
    """Whether something keeps the contract of an adapter."""
    return callable(getattr(adapter, "propose", None)) and not isinstance(adapter, type)


def check_adapter(adapter: Any) -> Any:
    """An adapter, or a function ``(model, data, **options) -> Adaptation``; an error for everything else."""
    if _is_usable(adapter):
        return adapter
    raise GraphMendError(
        f"an adapter is one of graphmend.adapters, or has propose(case) -> Proposal (got {shown(adapter)})"
    )


def _is_usable(adapter: object) -> bool:
    return proposes(adapter) or (callable(adapter) and not isinstance(adapter, type))


@dataclass(frozen=True)
class _Called:
    """A function ``(model, data, **options) -> Adaptation`` as an adapter."""

    function: Callable[..., Adaptation]

    def propose(self, case: Case) -> Proposal:
        """The change that the function has made."""
        options: Options = {"limits": case.limits, "seed": case.seed, "mode": case.mode}
        if case.card is not None:
            options["card"] = case.card
        if case.named_task is not None:
            options["task"] = case.named_task
        if case.output is not None:
            options["output"] = case.output
        result = self.function(case.original, case.data, **options)
        name = getattr(self.function, "__name__", type(self.function).__name__)
        require(
            result.model is case.original,
            f"{name} changes the model and cannot be in a sequence, whose members share one frozen model; "
            "call it by itself and give the others its result.model",
        )
        if result.reason is not None:
            raise Stopped(result.reason)
        return result.as_proposal()


class Adapter(ABC):
    """Base class of adapters: write :meth:`propose`, and the adapter can be called and joined with others by ``>>``.

    Example:
        >>> from dataclasses import dataclass
        >>> import graphmend
        >>> from graphmend.adapters import Adapter, Proposal
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import GCN
        >>> @dataclass(frozen=True)
        ... class Halve(Adapter):
        ...     # Features of half the size.
        ...     def propose(self, case):
        ...         return Proposal(x=case.within_limits(case.data.x / 2))
        >>> data, model = embedded("wine").test[0], GCN(13, 16, num_layers=2, out_channels=3)
        >>> graphmend.mend(model, data, Halve()).patch.num_rows
        178
    """

    changes_model: ClassVar[bool] = False  #: whether ``propose`` is given a copy of the model to change
    uses_card: ClassVar[bool] = True  #: whether it looks at a source card
    needs: ClassVar[str] = ""  #: what it needs beyond a model and a graph, as part of a sentence
    fills_missing: bool = False  #: whether it takes graphs with missing values (NaN), which are then filled first
    embedding: str | None = None  #: name of the module whose output is Z, see :class:`~graphmend.FrozenGNN`

    @property
    def tasks(self) -> tuple[str, ...]:
        """What the model's rows may be, of :data:`graphmend.outputs.TASKS`."""
        return TASKS

    @abstractmethod
    def propose(self, case: Case) -> Proposal:
        """Find a change; raise :class:`Stopped` with the reason if none can be found."""

    def __call__(self, model: nn.Module, data: Data, **options: Unpack[Options]) -> Adaptation:
        """Adapt; ``model``, ``data`` and all random number generators are left as they were.

        Args:
            model: A trained model, any PyG module.
            data: The test graph. Only a surrogate that was given a label mask reads labels.
            options: ``limits`` (what may not change), ``seed`` (of everything random), ``progress`` (show a progress
                bar), ``callback`` (called after every step), ``mode`` (``"eager"`` computes plainly, without sharing,
                stacking or recording anything; results agree to float rounding), ``card`` (what the model saw when it
                was trained, from :func:`graphmend.card`), ``output`` (which part of what the model returns has the
                scores: a name such as ``"logits"``, or a position) and ``task`` (what the model's rows are, if that
                cannot be determined: ``"classes"``, ``"labels"``, ``"numbers"`` or ``"embedding"``).

        Returns:
            The adapted graph with its logits, history and reversible patch. If the surrogate fails or a loss or
            gradient is not finite, the graph is returned unchanged with the reason. Missing values (NaN) are filled
            first if the adapter fills them, whatever happens afterwards.
        """
        return call(self, model, data, **options)

    def __rshift__(self, other: Any) -> Sequence:
        """``first >> second``: one adapter that runs both, one after the other."""
        return Sequence(self, other) if _is_usable(other) else NotImplemented

    def __rrshift__(self, other: Any) -> Sequence:
        """The same if the first one does not have our base class."""
        return Sequence(other, self) if _is_usable(other) else NotImplemented

    @property
    def label(self) -> str:
        """The adapter as it is written, for messages."""
        return f"{type(self).__name__}()"


@dataclass(frozen=True, init=False)
class Sequence(Adapter):
    r"""Run adapters one after another, each on the graph that the previous ones left.

    ``Impute() >> Align()`` is ``Sequence(Impute(), Align())``. The result is that of one adapter, with one patch from
    the caller's graph to the last one and one history. If a member stops, nothing is changed at all, and the reason
    names it. All members share one frozen model; if one of them names an ``embedding``, all use it. Missing values are
    filled before the first member begins, if that member fills them: ``Impute() >> GTrans()``. The verdict of a gate
    among the members is kept, but not the version of the graph that the gate did not choose, so there are no questions
    to ask.

    Args:
        members: The adapters. Those that change the model cannot be among them.

    Example:
        >>> from graphmend.adapters import GTrans, Impute, Sequence
        >>> both = Impute() >> GTrans()
        >>> isinstance(both, Sequence), [type(member).__name__ for member in both.members]
        (True, ['Impute', 'GTrans'])
    """

    members: tuple[AdapterContract, ...]

    def __init__(self, *members: Any) -> None:
        require(len(members) > 0, "a sequence needs at least one adapter, such as Sequence(Impute(), Align())")
        flat: list[AdapterContract] = []
        for given in map(check_adapter, members):
            member = given if proposes(given) else _Called(given)
            flat += member.members if isinstance(member, Sequence) else (member,)
        needs = [Needs.of(member) for member in flat]
        for one in needs:
            require(
                not one.changes_model,
                f"{one.name} changes the model and cannot be in a sequence, whose members share one frozen model; "
                "call it by itself and give the others its result.model",
            )
        names = {one.embedding for one in needs} - {None}
        require(
            len(names) < 2,
            f"the members of a sequence share one embedding, but name {listed(names)}; leave all but one of them out",
        )
        object.__setattr__(self, "members", tuple(flat))
        object.__setattr__(self, "embedding", next(iter(names), None))
        object.__setattr__(self, "fills_missing", needs[0].fills_missing)

    @property
    def label(self) -> str:
        """All members as they are written."""
        return " >> ".join(Needs.of(member).name for member in self.members)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that all members serve."""
        return tuple(task for task in TASKS if all(task in Needs.of(member).tasks for member in self.members))

    @property
    def remedy(self) -> str:
        """What to do where numbers become too large for their type."""
        return " or ".join(dict.fromkeys(Needs.of(member).remedy for member in self.members))

    def propose(self, case: Case) -> Proposal:
        """Each member proposes on the graph that the previous ones left."""
        total, proposal = _Total(case.data), Proposal()
        for member in self.members:
            name = type(member).__name__
            if total.num_edges == 0:
                raise Stopped(f"{name}: the adapters before it have removed all edges")
            proposal = self._proposed(member, case, total)
            if proposal.x is not None and not is_finite(proposal.x):
                raise Stopped(f"{name}: the mended features are not finite")
            total.take(proposal)
        return total.proposal(proposal.logits)

    @staticmethod
    def _proposed(member: AdapterContract, case: Case, total: _Total) -> Proposal:
        graph = total.graph()
        history, generator = case.history.part(), torch.Generator(device=graph.x.device).manual_seed(case.seed)
        part = replace(case, data=graph, limits=total.limits(case.limits), generator=generator, history=history)
        try:
            with case.require_frozen().on(graph, weights_count=total.has_new_weights):
                proposal = _attempt(member, part)
        finally:
            case.history.include(history)
        if isinstance(proposal, Stopped):
            raise Stopped(f"{type(member).__name__}: {proposal}") from proposal
        return proposal


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
        self._engine = Report()
        self._verdict: Verdict | None = None  #: of a gate among the members

    @property
    def num_edges(self) -> int:
        """Edges of the changed graph: those that stay in their order, then those that were added."""
        return self._kept.numel() + int(self._added.size(1))

    @property
    def has_new_weights(self) -> bool:
        """Whether a member has changed edge weights."""
        return self._weight is not None

    def take(self, proposal: Proposal) -> None:
        """Apply another change."""
        self._x = self._x if proposal.x is None else proposal.x.detach()
        self._engine = self._engine if proposal.engine == Report() else proposal.engine
        if proposal.verdict is not None:  # its next step may name questions, which only the gate's own result has
            self._verdict = replace(proposal.verdict, next_step="")
        if proposal.removed is not None:
            keep = torch.ones(self.num_edges, dtype=torch.bool, device=self._kept.device)
            keep[proposal.removed] = False
            old = self._kept.numel()
            self._weight = None if self._weight is None else self._weight[keep]
            self._kept, self._added = self._kept[keep[:old]], self._added[:, keep[old:]]
        if proposal.added is not None:
            self._added = torch.cat([self._added, proposal.added], dim=1)
            if self._weight is not None:
                self._weight = torch.cat([self._weight, self._weight.new_ones(proposal.added.size(1))])
        self._weight = self._weight if proposal.edge_weight is None else proposal.edge_weight.detach()

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

    def proposal(self, logits: Tensor | None) -> Proposal:
        """All changes as one, with the logits if they are known."""
        return Proposal(
            self._x,
            self._removed,
            self._added,
            self._weight,
            logits,
            verdict=self._verdict,
            engine=self._engine,
        )
