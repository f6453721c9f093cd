"""The shell of every adapter: check, freeze or copy, adapt, predict; and if that fails, change nothing and say why."""

from __future__ import annotations

import copy
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.adapters.missing import Filling
from graphmend.adapters.rerun import Rerun
from graphmend.adapters.task import Change, Task
from graphmend.cards.source_card import SourceCard
from graphmend.engine.engine import MODES
from graphmend.engine.report import Report, Stopped
from graphmend.errors import GraphMendError, one_of, require, seed_number, shown, switch
from graphmend.graph.batches import refuse_sampled
from graphmend.graph.checks import check_graph, first_entry, is_finite
from graphmend.graph.convert import with_edge_index
from graphmend.graph.limits import Limits
from graphmend.model import FrozenGNN
from graphmend.model.restore import private, untouched_rng
from graphmend.results.adaptation import Adaptation
from graphmend.results.history import History, Step
from graphmend.results.patch import Patch
from graphmend.results.questions import Alternative

if TYPE_CHECKING:
    from graphmend.adapters.sequence import Sequence

__all__ = ["Adapter", "Change", "Task"]

_LOG = logging.getLogger(__name__)


class Adapter(ABC):
    """Base of adapters: a new one writes :meth:`adapt`, and has checks, restoring, history and patches from here."""

    changes_model: ClassVar[bool] = False  #: whether ``adapt`` is given a copy of the model to change
    fills_missing: bool = False  #: whether it takes graphs with missing values (NaN), which are filled before ``adapt``
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
            gradient is not finite, the graph is returned unchanged with the reason. Where values are missing (NaN)
            and the adapter fills them, they are filled first, whatever happens then.
        """
        data = with_edge_index(data)
        has_missing = check_graph(data, missing_allowed=True)
        if has_missing:
            self._require_filling(data.x)
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
        device, filling = data.x.device, None
        if has_missing:
            filling, data = Filling.of(data, card, limits.to(device)), copy.copy(data)
            data.x = filling.x
        with torch.cuda.device_of(data.x), private(data) as data:  # type: ignore[no-untyped-call]
            generator = torch.Generator(device=device).manual_seed(seed)
            history = History(device, callback, progress)
            task = Task(model, data, limits.to(device), seed, generator, history, mode, card, filling)
            embedding = self.embedding if card is None else card.embedding
            if self.changes_model:
                result = self._with_changed_model(task)
            else:
                taps = None if card is None else card.taps
                with FrozenGNN(model, data, embedding=embedding, seed=seed, mode=mode, taps=taps) as frozen:
                    task.frozen = frozen
                    result = _finish(task, frozen, self.attempt(task), self._remedy)
            return replace(result, rerun=Rerun.of(model, data.x, embedding, seed, mode))

    @property
    def _name(self) -> str:
        return f"{type(self).__name__}()"

    @property
    def _remedy(self) -> str:
        """What to do where numbers become too large for their type."""
        has_steps = hasattr(self, "lr_feature")
        return "take a smaller lr_feature" if has_steps else "use float32 or features of a smaller size"

    def _require_filling(self, x: Tensor) -> None:
        """Raise unless the adapter fills missing values; the message says how to have them filled."""
        if self.fills_missing:
            return
        missing = x.isnan()
        in_turn, before = f"use Impute() >> {self._name}", "mend with Impute() first and pass the result's data"
        remedy = before if self.changes_model else in_turn
        first = f"x holds {int(missing.sum())} missing values, first {first_entry(x, missing)}"
        require(False, f"{first}, and {self._name} does not fill them; {remedy}")

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
            return _finish(task, frozen, change, self._remedy)

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


def _finish(task: Task, frozen: FrozenGNN, change: Change | Stopped, remedy: str) -> Adaptation:
    """The changed graph with its logits, or the unchanged one if there is a reason.

    Args:
        task: What the adapter worked on.
        frozen: The model to predict with.
        change: What the adapter wants to change, or why it stopped.
        remedy: What to do where numbers become too large for their type.
    """
    if isinstance(change, Change):
        try:
            return _changed(task, frozen, change, remedy)
        except Stopped as stopped:
            change = stopped
    reason = str(change) if task.filling is None else f"{change}; only {task.filling.sentence}"
    _LOG.warning("the graph is left as it was: %s", reason)
    return _changed(task, frozen, Change(), remedy, reason=reason)


@torch.no_grad()
def _changed(task: Task, frozen: FrozenGNN, change: Change, remedy: str, reason: str | None = None) -> Adaptation:
    data, history = task.data, task.history
    none = data.edge_index[:, :0]
    x = _features(task, change)
    if x is not None and not is_finite(x):
        raise Stopped(f"the mended features are not finite; {remedy}")
    removed, weight = none[0] if change.removed is None else change.removed, change.edge_weight
    if weight is not None and not bool(weight.isfinite().all()):
        raise Stopped("the new edge weights are not finite")
    patch, mended = Patch.make(task.given, x, removed, none if change.added is None else change.added, weight)
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
        raise Stopped(f"the model's output on the mended graph is not finite; {remedy}")
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
        filled=None if task.filling is None else Patch.make(task.given, data.x, none[0], none)[0],
    )


def _features(task: Task, change: Change) -> Tensor | None:
    """The new features; those in which missing values are filled where the change has none."""
    if change.x is not None:
        return change.x.detach()
    return None if task.filling is None else task.data.x


def _alternative(task: Task, frozen: FrozenGNN, change: Change) -> Alternative | None:
    """The version of the graph that an adapter considered and did not choose."""
    other = change.alternative
    if other is None:
        return None
    none = task.data.edge_index[:, :0]
    x = _features(task, other)
    if x is not None and not is_finite(x):
        return None
    patch, mended = Patch.make(task.given, x, none[0] if other.removed is None else other.removed, none)
    logits = frozen.predict(mended) if other.logits is None else other.logits
    is_change = other.x is not None or other.removed is not None
    return Alternative(logits, patch, frozen.node_keys, is_change, other.menders)
