"""One call of an adapter: :func:`prepare` makes the case, the adapter proposes, :func:`finish` makes the result.

Every fact about the call is computed once and lives in the case: the graph is checked and copied, missing values are
filled, the model is frozen and tried out. An adapter sees nothing but the case.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from os import PathLike
from typing import Self, TypedDict

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.adapters.missing import Filling
from graphmend.adapters.rerun import Rerun
from graphmend.cards.source_card import SourceCard
from graphmend.engine.engine import MODES, Engine
from graphmend.engine.memory import check_memory
from graphmend.engine.report import Stopped
from graphmend.errors import GraphMendError, one_of, require, seed_number, shown, switch
from graphmend.files.digest import unchanged
from graphmend.graph.batches import refuse_sampled
from graphmend.graph.checks import check_graph, first_entry, is_finite
from graphmend.graph.convert import with_edge_index
from graphmend.graph.edge_flips import EdgeFlips
from graphmend.graph.limits import Limits
from graphmend.graph.mapped import on_disk
from graphmend.graph.relaxed import RelaxedGraph
from graphmend.graph.tasks import check_task, task_of
from graphmend.model import FrozenGNN
from graphmend.model.call import Output, is_encoder
from graphmend.model.restore import private, untouched_rng
from graphmend.outputs import TASKS, Task
from graphmend.results.adaptation import Adaptation
from graphmend.results.fingerprint import fingerprint_of
from graphmend.results.history import History, Step
from graphmend.results.patch import Patch
from graphmend.results.proposal import Proposal
from graphmend.surrogates.base import Surrogate

__all__ = ["Case", "Needs", "Options", "check_options", "finish", "prepare"]

_LOG = logging.getLogger(__name__)


class Options(TypedDict, total=False):
    """What a call takes besides the model and the graph, see :func:`graphmend.mend`."""

    limits: Limits | None
    seed: int
    progress: bool
    callback: Callable[[Step], None] | None
    mode: str
    card: SourceCard | str | PathLike[str] | None
    output: Output
    task: str | None


@dataclass(frozen=True)
class Needs:
    """What an adapter declares: its name, what it is given, and what it needs.

    Args:
        name: The adapter as it is written, for messages.
        changes_model: Whether it is given a copy of the model to change, and no frozen model.
        fills_missing: Whether missing values (NaN) are filled for it.
        embedding: Name of the module whose output is Z.
        tasks: The tasks that it serves, of :data:`graphmend.outputs.TASKS`.
        remedy: What to do where numbers become too large for their type.
    """

    name: str
    changes_model: bool = False
    fills_missing: bool = False
    embedding: str | None = None
    tasks: tuple[str, ...] = TASKS
    remedy: str = "use float32 or features of a smaller size"

    @classmethod
    def of(cls, adapter: object) -> Self:
        """Read the attributes of an adapter; one without any needs nothing."""
        return cls(
            name=getattr(adapter, "label", f"{type(adapter).__name__}()"),
            changes_model=bool(getattr(adapter, "changes_model", False)),
            fills_missing=bool(getattr(adapter, "fills_missing", False)),
            embedding=getattr(adapter, "embedding", None),
            tasks=tuple(getattr(adapter, "tasks", TASKS)),
            remedy=getattr(adapter, "remedy", cls.remedy),
        )


@dataclass
class Case:
    """What an adapter works on.

    Args:
        original: The caller's model.
        data: The graph, to be read only; its missing values are filled.
        limits: What may not change.
        seed: Seed of everything random.
        generator: Source of everything random, seeded.
        history: Where steps and discrete graphs are noted.
        mode: ``"auto"``, or ``"eager"`` for the plain way.
        card: The source card, if the caller has one.
        filling: What was missing and is now filled, if anything was.
        embedding: Name of the module whose output is Z, if one was named.
        progress: Whether to show a progress bar.
        output: Which part of what the model returns has the scores.
        named_task: The task that the caller named.

    Example:
        >>> import graphmend
        >>> from graphmend.adapters import Case, Proposal
        >>> from graphmend.lab.data import embedded
        >>> from torch_geometric.nn import GCN
        >>> class ShowCase:
        ...     # Prints some facts and changes nothing.
        ...     def propose(self, case: Case):
        ...         print(case.data.num_nodes, case.seed, tuple(case.frozen.predict(case.data).shape))
        ...         return Proposal()
        >>> data, model = embedded("wine").test[0], GCN(13, 16, num_layers=2, out_channels=3)
        >>> _ = graphmend.mend(model, data, ShowCase(), seed=7)
        178 7 (178, 3)
    """

    original: nn.Module
    data: Data
    limits: Limits
    seed: int
    generator: torch.Generator
    history: History
    mode: str = "auto"
    card: SourceCard | None = None
    filling: Filling | None = None
    embedding: str | None = None
    progress: bool = False
    output: Output = None
    named_task: str | None = None
    frozen: FrozenGNN | None = None  #: the frozen model, for adapters that leave it as it is
    changed: nn.Module | None = None  #: a copy of the model, for adapters that change it
    _task: Task | None = None

    @property
    def model(self) -> nn.Module:
        """The caller's model, to be read only, or the adapter's own copy if it ``changes_model``."""
        return self.original if self.changed is None else self.changed

    def task(self, output: Tensor) -> Task:
        """What the model's rows are, according to the card, the caller, or the first output that is seen."""
        if self.card is not None:
            return self.card.known_task
        if self._task is None:
            self._task = task_of([output], [self.data], named=self.named_task, encodes=is_encoder(self.original))
        return self._task

    def require_served(self, needs: Needs, output: Callable[[], Tensor]) -> None:
        """Raise unless the adapter serves the model's task; if it serves all of them, the model does not run."""
        if set(TASKS) <= set(needs.tasks):
            return
        task = self.task(output()).known()
        require(
            str(task) in needs.tasks,
            f"{needs.name} serves the task {' or '.join(needs.tasks)}, but the model's is {task}; use the gate, or "
            "name another task=",
        )

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the graph as the caller has it."""
        return fingerprint_of(self.given)

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
        """The rows of a mask that had at least one value; where all were missing, there is nothing to judge."""
        return rows if self.filling is None else rows & ~self.filling.empty_rows

    @property
    def given(self) -> Data:
        """The caller's graph, in which values may be missing."""
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
        require(self.frozen is not None, "an adapter that changes the model has no frozen one; use case.model")
        assert self.frozen is not None
        return self.frozen

    def freeze(self, model: nn.Module, *, uses_card: bool = False) -> FrozenGNN:
        """Freeze a model for this graph; with a card, first layer and embedding are those that the card names."""
        taps = self.card.taps if uses_card and self.card is not None else None
        return FrozenGNN(
            model, self.data, embedding=self.embedding, seed=self.seed, mode=self.mode, taps=taps, output=self.output
        )


def check_options(options: Options) -> None:
    """Raise unless the options that can be checked without a graph are valid for :func:`prepare`."""
    for name in options.keys() - Options.__annotations__.keys():
        raise TypeError(f"mend() got an unexpected keyword argument {name!r}")
    limits, callback = options.get("limits"), options.get("callback")
    is_limits = limits is None or isinstance(limits, Limits)
    require(is_limits, f"limits must be a graphmend.Limits (got {type(limits).__name__})")
    seed_number("seed", options.get("seed", 0))
    one_of("mode", options.get("mode", "auto"), MODES)
    switch("progress", options.get("progress", False))
    check_task(options.get("task"))
    require(callback is None or callable(callback), f"callback must be a function of a step (got {shown(callback)})")


@contextmanager
def prepare(
    model: nn.Module,
    data: Data,
    needs: Needs,
    *,
    limits: Limits | None = None,
    seed: int = 0,
    progress: bool = False,
    callback: Callable[[Step], None] | None = None,
    mode: str = "auto",
    card: SourceCard | str | PathLike[str] | None = None,
    output: Output = None,
    task: str | None = None,
) -> Iterator[Case]:
    """Check everything, copy what has to be copied, and freeze the model; arguments as in :func:`graphmend.mend`.

    ``model``, ``data`` and all random number generators are left as they were, even after an exception.
    """
    data = with_edge_index(data)
    has_missing = check_graph(data, missing_allowed=True)
    if has_missing:
        _require_filling(data.x, needs)
    refuse_sampled(data)
    given: Options = {"limits": limits, "seed": seed, "progress": progress, "callback": callback, "mode": mode}
    check_options({**given, "task": task})
    limits, seed = Limits() if limits is None else limits, int(seed)
    limits.check(data)
    with unchanged(model):
        card = None if card is None else _fitting(card, model, data, needs, task)
        device = data.x.device
        limits, filling = limits.to(device), None
        if has_missing:
            with on_disk(data):
                filling, data = Filling.of(data, card, limits), copy.copy(data)
            data.x = filling.x
        generator = torch.Generator(device=device).manual_seed(seed)
        history = History(device, callback, progress)
        embedding = needs.embedding if card is None else card.embedding
        output = _chosen_output(output, card)
        with torch.cuda.device_of(data.x), private(data) as data, on_disk(data):  # type: ignore[no-untyped-call]
            known = "no source card" if card is None else f"a source card of {card.nodes} nodes"
            sizes = data.x.size(0), data.edge_index.size(1)
            _LOG.debug("%s: %d nodes, %d edge entries, %s", needs.name, *sizes, known)
            settings = (seed, generator, history, mode, card, filling, embedding, progress, output, task)
            case = Case(model, data, limits, *settings)
            if needs.changes_model:
                with case.freeze(model) as frozen:
                    _LOG.debug("%s: the model runs on this graph, so a copy of it can be changed", needs.name)
                    case.require_served(needs, partial(frozen.predict, data))
                case.changed = _copied(model, needs)
                with untouched_rng(seed), torch.inference_mode(False), torch.enable_grad():
                    yield case
            else:
                with case.freeze(model, uses_card=True) as case.frozen:
                    case.require_served(needs, partial(case.frozen.predict, data))
                    yield case


def finish(case: Case, proposal: Proposal | Stopped, needs: Needs) -> Adaptation:
    """The changed graph with its logits, or the unchanged one if there is a reason.

    Args:
        case: What the adapter worked on.
        proposal: What the adapter wants to change, or why it stopped.
        needs: What the adapter declares.
    """
    model = case.original if isinstance(proposal, Stopped) else case.model
    with case.freeze(model) if case.frozen is None else nullcontext(case.frozen) as frozen:
        if isinstance(proposal, Proposal):
            try:
                result = _changed(case, frozen, proposal, needs)
                if _LOG.isEnabledFor(logging.INFO):
                    _LOG.info("%s: %s: %s", needs.name, result.decision, result.sentence)
                return result
            except Stopped as stopped:
                proposal = stopped
        reason = str(proposal) if case.filling is None else f"{proposal}; only {case.filling.sentence}"
        _LOG.warning("%s: the graph is left as it was: %s", needs.name, reason)
        return _changed(case, frozen, Proposal(), needs, reason=reason)


@torch.no_grad()
def _changed(case: Case, frozen: FrozenGNN, proposal: Proposal, needs: Needs, reason: str | None = None) -> Adaptation:
    x = _features(case, proposal)
    if x is not None and not is_finite(x):
        raise Stopped(f"the mended features are not finite; {needs.remedy}")
    weight = proposal.edge_weight
    if weight is not None and not bool(weight.isfinite().all()):
        raise Stopped("the new edge weights are not finite")
    patch, mended = Patch.make(case.given, x, proposal.removed, proposal.added, weight, before=case.fingerprint)
    try:
        logits = proposal.logits
        if logits is None:
            logits = frozen.predict(mended, weights_count=weight is not None)
    except GraphMendError as error:
        if reason is not None:  # it is not because of the change
            raise
        raise Stopped(str(error)) from error
    finite = logits.isfinite()
    if reason is None and not bool(finite.all()) and not torch.equal(finite, frozen.predict(case.data).isfinite()):
        raise Stopped(f"the model's output on the mended graph is not finite; {needs.remedy}")
    filled = None if case.filling is None else Patch.make(case.given, case.data.x, before=case.fingerprint)[0]
    return Adaptation(
        frozen.model,
        mended,
        logits,
        patch,
        case.history.finished_steps,
        case.history.candidates(),
        reason=reason,
        seconds=case.history.seconds,
        engine=proposal.engine,
        verdict=proposal.verdict,
        alternative=_alternative(case, frozen, proposal.alternative),
        rerun=Rerun.of(case.original, case.data.x, case.embedding, case.seed, case.mode, case.output),
        filled=filled,
        task=case.task(logits),
    )


def _features(case: Case, proposal: Proposal) -> Tensor | None:
    """The new features; without any in the proposal, those in which missing values are filled."""
    if proposal.x is not None:
        return proposal.x.detach()
    return None if case.filling is None else case.data.x


def _alternative(case: Case, frozen: FrozenGNN, other: Proposal | None) -> Proposal | None:
    """The version of the graph that an adapter considered but did not choose, with the model's output on it."""
    if other is None or (other.x is not None and not is_finite(other.x)):
        return None
    if other.logits is None:
        changed = Patch.make(case.given, _features(case, other), other.removed, other.added, before=case.fingerprint)[1]
        other = replace(other, logits=frozen.predict(changed))
    return other


def _fitting(
    card: SourceCard | str | PathLike[str], model: nn.Module, data: Data, needs: Needs, task: str | None
) -> SourceCard:
    """The card on the graph's device, if it belongs to this model, graph and adapter."""
    card = SourceCard.of(card)
    card.check(model, data)
    require(
        needs.embedding in (None, card.embedding),
        f"the source card was made with the embedding {card.embedding!r}, this adapter has {needs.embedding!r}; "
        "use the same for both",
    )
    own = card.known_task.kind
    require(
        task in (None, own),
        f"the source card was made with task={own!r}, not {task!r}; leave task= out, or make a card with task={task!r}",
    )
    return card.to(data.x.device, data.x.dtype)


def _chosen_output(output: Output, card: SourceCard | None) -> Output:
    """The part of the model's output that was chosen, in this call or when the card was made."""
    if card is None or output == card.output:
        return output
    require(
        output is None,
        f"the source card was made with output={card.output!r}, this call has output={output!r}; use the same for both",
    )
    return card.output


def _require_filling(x: Tensor, needs: Needs) -> None:
    """Raise unless the adapter fills missing values; the message says how to have them filled."""
    if needs.fills_missing:
        return
    missing = x.isnan()
    in_turn, before = f"use Impute() >> {needs.name}", "mend with Impute() first and pass the result's data"
    remedy = before if needs.changes_model else in_turn
    first = f"x holds {int(missing.sum())} missing values, first {first_entry(x, missing)}"
    require(False, f"{first}, and {needs.name} does not fill them; {remedy}")


def _copied(model: nn.Module, needs: Needs) -> nn.Module:
    """A copy of the model to change."""
    try:
        with torch.inference_mode(False), torch.no_grad():  # otherwise the weights of a scripted copy are not leaves
            changed = copy.deepcopy(model)
            for own, given in zip(changed.parameters(), model.parameters(), strict=True):
                own.requires_grad_(given.requires_grad)
    except Exception as error:
        raise GraphMendError(f"the model cannot be copied ({error}), but {needs.name} changes it") from error
    return changed
