"""The shell of every adapter: check, freeze or copy, adapt, predict; and if that fails, change nothing and say why."""

from __future__ import annotations

import copy
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.adapters.rerun import Rerun
from graphmend.cards.source_card import SourceCard
from graphmend.engine.engine import MODES, Engine
from graphmend.engine.memory import check_memory
from graphmend.engine.report import Report, Stopped
from graphmend.errors import GraphMendError, one_of, require, seed_number, shown, switch
from graphmend.frozen import FrozenGNN
from graphmend.frozen.restore import private, untouched_rng
from graphmend.graph.batches import refuse_sampled
from graphmend.graph.checks import check_graph, is_finite
from graphmend.graph.convert import with_edge_index
from graphmend.graph.edge_flips import EdgeFlips
from graphmend.graph.limits import Limits
from graphmend.graph.relaxed import RelaxedGraph
from graphmend.results.adaptation import Adaptation
from graphmend.results.history import History, Step
from graphmend.results.patch import Patch
from graphmend.results.questions import Alternative
from graphmend.results.verdict import Verdict
from graphmend.surrogates.base import Surrogate

if TYPE_CHECKING:
    from graphmend.adapters.sequence import Sequence

__all__ = ["Adapter", "Change", "Task"]

_LOG = logging.getLogger(__name__)


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
        data: The graph, to be read only.
        limits: What may not change.
        seed: Seed of everything random.
        generator: Source of everything random, seeded.
        history: Where steps and discrete graphs are noted.
        mode: ``"auto"``, or ``"eager"`` for the plain way.
        card: The source card, if the caller has one.
    """

    model: nn.Module
    data: Data
    limits: Limits
    seed: int
    generator: torch.Generator
    history: History
    mode: str = "auto"
    card: SourceCard | None = None
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


class Adapter(ABC):
    """Base of adapters: a new one writes :meth:`adapt`, and has checks, restoring, history and patches from here."""

    changes_model: ClassVar[bool] = False  #: whether ``adapt`` is given a copy of the model to change
    embedding: str | None = None  #: name of the module whose output is Z, see :class:`~graphmend.FrozenGNN`

    @abstractmethod
    def adapt(self, task: Task) -> Change:
        """Find a change; raise :class:`Stopped` with the reason if there is none to be had."""

    def __rshift__(self, other: Adapter) -> Sequence:
        """``first >> second``: both, one after the other, as one adapter."""
        from graphmend.adapters.sequence import Sequence

        return Sequence(self, other) if isinstance(other, Adapter) else NotImplemented

    def __call__(
        self,
        model: nn.Module,
        data: Data,
        *,
        limits: Limits | None = None,
        seed: int = 0,
        progress: bool = False,
        callback: Callable[[Step], None] | None = None,
        mode: str = "auto",
        card: SourceCard | None = None,
    ) -> Adaptation:
        """Adapt; ``model``, ``data`` and all random number generators are left as they were.

        Args:
            model: A trained model, any PyG module.
            data: The test graph. Labels are read only by a surrogate that was given a label mask.
            limits: What may not change.
            seed: Seed of everything random.
            progress: Show a progress bar.
            callback: Called after every step.
            mode: ``"eager"`` computes the plain way, without sharing, stacking or recording anything; the results are
                the same to float rounding.
            card: What the model saw when it was trained, from :func:`graphmend.card`.

        Returns:
            The adapted graph with its logits, history and reversible patch. If the surrogate fails or a loss or
            gradient is not finite, the graph is returned unchanged with the reason.
        """
        data = with_edge_index(data)
        check_graph(data)
        refuse_sampled(data)
        limits = Limits() if limits is None else limits
        require(isinstance(limits, Limits), f"limits must be a graphmend.Limits (got {type(limits).__name__})")
        limits.check(data)
        seed = seed_number("seed", seed)
        one_of("mode", mode, MODES)
        switch("progress", progress)
        require(
            callback is None or callable(callback), f"callback must be a function of a step (got {shown(callback)})"
        )
        if card is not None:
            require(isinstance(card, SourceCard), f"card must be a graphmend.SourceCard (got {type(card).__name__})")
            card.check(model, data)
            same = self.embedding in (None, card.embedding)
            require(
                same,
                f"the source card was made with the embedding {card.embedding!r}, this adapter has {self.embedding!r}; "
                "use the same for both",
            )
            card = card.to(data.x.device, data.x.dtype)
        device = data.x.device
        with torch.cuda.device_of(data.x), private(data) as data:  # type: ignore[no-untyped-call]
            generator = torch.Generator(device=device).manual_seed(seed)
            history = History(device, callback, progress)
            task = Task(model, data, limits.to(device), seed, generator, history, mode, card)
            embedding = self.embedding if card is None else card.embedding
            if self.changes_model:
                result = self._with_changed_model(task)
            else:
                taps = None if card is None else card.taps
                with FrozenGNN(model, data, embedding=embedding, seed=seed, mode=mode, taps=taps) as frozen:
                    task.frozen = frozen
                    result = _finish(task, frozen, self.attempt(task))
            return replace(result, rerun=Rerun.of(model, data.x, embedding, seed, mode))

    def _with_changed_model(self, task: Task) -> Adaptation:
        original = task.model
        with FrozenGNN(original, task.data, embedding=self.embedding, seed=task.seed, mode=task.mode):
            _LOG.debug("the model runs on this graph, so a copy of it can be changed")
        try:
            with torch.inference_mode(False), torch.no_grad():  # else the weights of a scripted copy are no leaves
                task.model = copy.deepcopy(original)
                for own, given in zip(task.model.parameters(), original.parameters(), strict=True):
                    own.requires_grad_(given.requires_grad)
        except Exception as error:
            raise GraphMendError(
                f"the model cannot be copied ({error}), but {type(self).__name__} changes it"
            ) from error
        with untouched_rng(task.seed), torch.inference_mode(False), torch.enable_grad():
            change = self.attempt(task)
        model = original if isinstance(change, Stopped) else task.model
        with FrozenGNN(model, task.data, embedding=self.embedding, seed=task.seed, mode=task.mode) as frozen:
            return _finish(task, frozen, change)

    def attempt(self, task: Task) -> Change | Stopped:
        """:meth:`adapt`, with the reason returned where it stops; all steps have been read."""
        try:
            change = self.adapt(task)
            task.history.read()
            task.history.candidates()
        except Stopped as stopped:
            try:
                task.history.read()  # an earlier step may have been the true reason
            except Stopped as earlier:
                return earlier
            return stopped
        return change


def _finish(task: Task, frozen: FrozenGNN, change: Change | Stopped) -> Adaptation:
    """The changed graph with its logits, or the unchanged one if there is a reason."""
    if isinstance(change, Change):
        try:
            return _changed(task, frozen, change)
        except Stopped as stopped:
            change = stopped
    _LOG.warning("the graph is left as it was: %s", change)
    return _changed(task, frozen, Change(), reason=str(change))


@torch.no_grad()
def _changed(task: Task, frozen: FrozenGNN, change: Change, reason: str | None = None) -> Adaptation:
    data, history = task.data, task.history
    none = data.edge_index[:, :0]
    x = None if change.x is None else change.x.detach()
    if x is not None and not is_finite(x):
        raise Stopped("the mended features are not finite; take a smaller lr_feature")
    removed, weight = none[0] if change.removed is None else change.removed, change.edge_weight
    if weight is not None and not bool(weight.isfinite().all()):
        raise Stopped("the new edge weights are not finite")
    patch, mended = Patch.make(data, x, removed, none if change.added is None else change.added, weight)
    try:
        logits = change.logits
        if logits is None:
            logits = frozen.predict(mended, weights_count=weight is not None)
    except GraphMendError as error:
        if reason is not None:  # it is not because of the change
            raise
        raise Stopped(str(error)) from error
    finite = logits.isfinite()
    if reason is None and not bool(finite.all()) and not torch.equal(finite, frozen.predict(data).isfinite()):
        raise Stopped("the model's output on the mended graph is not finite; take a smaller lr_feature")
    return Adaptation(
        frozen.model,
        mended,
        logits,
        patch,
        history.finished_steps,
        history.candidates(),
        reason=reason,
        seconds=history.seconds,
        engine=change.report or Report(),
        verdict=change.verdict,
        alternative=_alternative(task, frozen, change),
    )


def _alternative(task: Task, frozen: FrozenGNN, change: Change) -> Alternative | None:
    """The version of the graph that an adapter considered and did not choose."""
    other = change.alternative
    if other is None:
        return None
    none = task.data.edge_index[:, :0]
    x = None if other.x is None else other.x.detach()
    if x is not None and not is_finite(x):
        return None
    patch, mended = Patch.make(task.data, x, none[0] if other.removed is None else other.removed, none)
    logits = frozen.predict(mended) if other.logits is None else other.logits
    is_change = other.x is not None or other.removed is not None
    return Alternative(logits, patch, frozen.node_keys, is_change, other.menders)
