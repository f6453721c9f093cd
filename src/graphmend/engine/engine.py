"""The engine: losses, steps and predictions of one graph, as fast as its model and its loss allow.

An algorithm says what it wants (:meth:`Engine.descend`, :meth:`Engine.loss`, :meth:`Engine.predict`); the engine knows
how to get it quickly. It looks at what a model and a loss can do, never at what they are: sharing the products of the
features is tried on a few nodes and compared with plain computation (:mod:`graphmend.engine.trials`), recording is
tried when the first steps are taken and the first replay is compared with a plain call, and both findings are kept for
the next graph of the same model. With ``mode="eager"`` all of it is off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.contracts import Backbone, Surrogate
from graphmend.engine.cuda_graphs import Recorder
from graphmend.engine.linear_maps import LinearMaps, RowGradient
from graphmend.engine.memory import give_back_if_scarce, keeping_memory
from graphmend.engine.optimizers import EdgeStep, FeatureStep
from graphmend.engine.report import Abilities, Measured, Report, Stopped
from graphmend.engine.shared_features import SharedFeatures
from graphmend.engine.trials import scalar, with_clones
from graphmend.engine.tuning import RECORDED_ENTRIES
from graphmend.errors import GraphMendError, ModelFailedError, require

__all__ = ["MODES", "Engine", "Variables"]

MODES = ("auto", "eager")
T = TypeVar("T")


class Variables(Protocol):
    """A relaxed graph: what is learned, and the graph that it stands for."""

    x: Tensor  #: the features, a leaf

    @property
    def p(self) -> Tensor | None:
        """The edge variables, a leaf, or ``None`` if edges stay."""
        ...

    def presence(self, flips: Tensor | None = None) -> Tensor | None:
        """One weight per edge of the current ``p``, or of a discrete choice."""
        ...

    def as_data(self, x: Tensor, presence: Tensor | None) -> Data:
        """The graph with these features and edge weights."""
        ...


@dataclass
class _Loss:
    total: Tensor
    terms: dict[str, Tensor]
    maps: LinearMaps | None = field(default=None)


class Engine:
    """Computes for one graph; use it as a context manager.

    Args:
        model: The frozen model. Recordings live as long as its ``module``; ``stacked_views`` goes into the report.
        surrogate: The loss.
        graph: The variables.
        generator: Source of the views.
        seed: Seed of the views under which discrete graphs are compared.
        abilities: What is known about model and loss.
        kernels: A key that differs if other GPU kernels are needed.
        hidden: Width of the model's representations, for an estimate of the memory.
        mode: ``"auto"``, or ``"eager"`` for plain computation.
    """

    def __init__(
        self,
        model: Backbone,
        surrogate: Surrogate,
        graph: Variables,
        *,
        generator: torch.Generator,
        seed: int = 0,
        abilities: Abilities | None = None,
        kernels: tuple[Any, ...] = (),
        hidden: int = 1,
        mode: str = "auto",
    ) -> None:
        self.model, self.surrogate, self.graph = model, surrogate, graph
        self.generator, self.seed, self.hidden, self.mode = generator, seed, hidden, mode
        self.abilities = Abilities() if abilities is None else abilities
        is_auto = mode == "auto"
        shares = is_auto and self.abilities.is_sharing_tried and self.abilities.why_not_shared is None
        self._maps = LinearMaps(graph.x) if shares else None
        self._edges = graph.as_data(graph.x, None).edge_index.size(1)
        may_record = is_auto and graph.x.is_cuda and self._edges < RECORDED_ENTRIES
        module = getattr(model, "module", None)
        if may_record and isinstance(module, nn.Module) and self.abilities.why_not_recorded is None:
            self._recorder: Recorder | None = Recorder(module, [generator], kernels)
        else:
            self._recorder = None
        self._was_recorded = self._are_maps_recorded = False
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if self.mode == "auto":
            self._stack.enter_context(keeping_memory(self.graph.x, self._edges, self.hidden))
        if self._recorder is not None:
            self._stack.callback(self._recorder.forget)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @property
    def is_recording(self) -> bool:
        """Whether steps are recorded, or will be as soon as their kernels have run once."""
        return self._recorder is not None and self._recorder.failure is None

    def report(self) -> Report:
        """How everything so far was computed."""
        reasons = {}
        if self._maps is None:
            otherwise = "it has not been tried" if self.mode == "auto" else f"mode is {self.mode!r}"
            reasons["shared_features"] = self.abilities.why_not_shared or otherwise
        elif not self._maps.is_used:
            reasons["shared_features"] = "no linear map of the features that narrows them comes first in the model"
        if not self._was_recorded and self.graph.x.is_cuda:
            reasons["recorded"] = self._why_not_recorded()
        stacked = bool(getattr(self.model, "stacked_views", False))
        return Report(self._maps is not None and self._maps.is_used, stacked, self._was_recorded, reasons)

    def _why_not_recorded(self) -> str:
        if self.mode != "auto":
            return f"mode is {self.mode!r}"
        if self._edges >= RECORDED_ENTRIES:
            return "the graph is large"
        failure = None if self._recorder is None else self._recorder.failure
        return self.abilities.why_not_recorded or failure or "too few steps were taken"

    def descend(self, step: FeatureStep | EdgeStep) -> Measured:
        """Take a step down the loss along ``step.variable``; the loss is that before the step."""
        with self._wanting_gradients(step.variable):
            loss = self._recorded_loss()
            values = self._run(step.kind, lambda: self._follow(loss, step))
        give_back_if_scarce()
        return Measured(tuple(loss.terms), values.clone() if self.is_recording else values)

    @torch.no_grad()
    def loss(self, flips: Tensor | None) -> Tensor:
        """The loss of a discrete graph, under the same views for all; the variables stay as they are."""
        give_back_if_scarce()
        self.generator.manual_seed(self.seed)
        p = self.graph.p
        if not self.is_recording or p is None or flips is None:
            return self._loss(self.graph.presence(flips)).total
        kept = p.clone()  # a recording reads p from where it is
        p.copy_(flips)
        try:
            return self._run("loss", self._loss).total.clone()
        finally:
            p.copy_(kept)

    @torch.no_grad()
    def loss_before(self, x: Tensor) -> Tensor:
        """The loss of the graph as it was, with the features ``x``, under the views of :meth:`loss`."""
        p, kept = self.graph.p, self.graph.x.clone()
        self.graph.x.copy_(x)
        self.features_changed()
        try:
            return self.loss(None if p is None else torch.zeros_like(p))
        finally:
            self.graph.x.copy_(kept)
            self.features_changed()

    @torch.no_grad()
    def predict(self, flips: Tensor | None) -> Tensor:
        """The model's output on the graph with a discrete choice of edges."""
        if self._recorder is not None:
            self._recorder.forget()
            self._maps = None if self._maps is None else LinearMaps(self.graph.x)
        graph = self.graph.as_data(self._features(), self.graph.presence(flips))
        try:
            return self.model(graph.x, graph.edge_index, graph.get("edge_weight"))
        except ModelFailedError as error:
            raise Stopped(str(error)) from error
        except (GraphMendError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise Stopped(f"the model failed on the mended graph with {type(error).__name__}: {error}") from error

    def features_changed(self) -> None:
        """Tell the engine that the features were changed from outside."""
        if self._maps is not None:
            self._maps.clear()

    def _features(self) -> Tensor:
        return self.graph.x if self._maps is None else SharedFeatures.of(self._maps)

    def _loss(self, presence: Tensor | None = None) -> _Loss:
        """The loss of the relaxed graph, or of one with other edge weights."""
        if self._maps is not None:
            if self.is_recording or self._are_maps_recorded:  # recorded products belong only to their recording
                self._maps, self._are_maps_recorded = LinearMaps(self.graph.x), self.is_recording
            self._maps.begin_loss()
        presence = self.graph.presence() if presence is None else presence
        graph = self.graph.as_data(self._features(), presence)
        tensors = {} if self.abilities.is_pure else with_clones(graph)
        try:
            terms = self.surrogate.terms(self.model, graph, self.generator)
            require(len(terms) > 0, "the surrogate has no terms; return at least one")
            scalars = {name: scalar(value, graph.x.device) for name, value in terms.items()}
        except ModelFailedError as error:
            raise Stopped(str(error)) from error
        except (GraphMendError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise Stopped(f"the surrogate failed with {type(error).__name__}: {error}") from error
        written = [name for name, (tensor, version) in tensors.items() if tensor._version != version]
        if written:
            raise Stopped(f"the surrogate writes into data.{written[0]}; let it work on a copy")
        self.abilities.is_pure = True
        total = torch.stack(list(scalars.values())).sum()
        return _Loss(total, {name: value.detach() for name, value in scalars.items()}, self._maps)

    def _follow(self, loss: _Loss, step: FeatureStep | EdgeStep) -> Tensor:
        """Differentiate, take the step, and collect the numbers."""
        with self._keeping_the_recorded_loss(step.variable):
            if isinstance(step, FeatureStep):
                norm = self._follow_features(loss, step)
            else:
                norm = self._follow_edges(loss, step)
        with torch.no_grad():
            flipped = norm.new_zeros(()) if self.graph.p is None else self.graph.p.sum()
            return torch.stack([*loss.terms.values(), norm, flipped])

    def _follow_features(self, loss: _Loss, step: FeatureStep) -> Tensor:
        keep, maps = self.is_recording, loss.maps

        def differentiate(total: Tensor) -> RowGradient:
            if maps is not None:
                return maps.gradient(total, retain_graph=keep)
            return RowGradient(
                torch.autograd.grad(total, step.variable, allow_unused=True, retain_graph=keep)[0], None, None
            )

        gradient = _differentiated(loss.total, "features; set feature_steps=0", differentiate)
        if maps is None or maps is not self._maps or keep or step.project is not None:
            norm = step.take(gradient)
            self.features_changed()
            return norm
        return step.take(gradient, maps.refresh)

    @contextmanager
    def _keeping_the_recorded_loss(self, variable: Tensor) -> Iterator[None]:
        """Inside, a variable may change and a recorded loss can still be differentiated.

        A replay reads the variable's new values, so what autograd saved is never out of date. Autograd cannot know that
        and refuses to go through tensors that were changed since the recording, of which it keeps count.
        """
        if not self.is_recording:
            yield
            return
        with torch.autograd._unsafe_preserve_version_counter(variable):  # type: ignore[attr-defined]
            yield

    def _follow_edges(self, loss: _Loss, step: EdgeStep) -> Tensor:
        p, keep = step.variable, self.is_recording
        if p.numel() == 0:  # no edge may change
            return p.new_zeros(())

        def differentiate(total: Tensor) -> Tensor | None:
            return torch.autograd.grad(total, p, allow_unused=True, retain_graph=keep)[0]

        gradient = _differentiated(loss.total, "edges; set edge_steps=0", differentiate)
        return step.take(torch.zeros_like(p) if gradient is None else gradient)

    @contextmanager
    def _wanting_gradients(self, variable: Tensor) -> Iterator[None]:
        """Inside, the loss can be differentiated along a variable; one recorded loss serves features and edges."""
        both = [self.graph.x] if self.graph.p is None else [self.graph.x, self.graph.p]
        variables = both if self.is_recording else [variable]
        for tensor in variables:
            tensor.requires_grad_(True)
        try:
            yield
        finally:
            for tensor in variables:
                tensor.requires_grad_(False)

    def _run(self, name: str, function: Callable[[], T]) -> T:
        """Call a function, or replay it."""
        if self._recorder is None:
            return function()
        result = self._recorder(name, function)
        self._was_recorded = self._was_recorded or self._recorder.has_recordings
        if self._recorder.failure is not None:
            self._was_recorded = False
            if self._recorder.is_failure_lasting:
                self.abilities.why_not_recorded = self._recorder.failure
        return result

    def _recorded_loss(self) -> _Loss:
        """The loss; the first one that is replayed for a model is compared with a plain call."""
        is_new = self.is_recording and not self.abilities.is_recording_verified
        generators = [self.generator, torch.cuda.default_generators[self.graph.x.get_device()]] if is_new else []
        before = [generator.get_state() for generator in generators]
        loss = self._run("loss", self._loss)
        if not (is_new and self._was_recorded and self._recorder is not None):
            return loss
        after, replayed = [generator.get_state() for generator in generators], float(loss.total.detach())
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)
        plain = self._loss()
        difference = abs(float(plain.total.detach()) - replayed)
        for generator, state in zip(generators, after, strict=True):
            generator.set_state(state)
        if not math.isfinite(difference):  # nothing can be compared, and the step will be refused
            return loss
        if difference <= 1e-4 * max(1.0, abs(replayed)):
            self.abilities.is_recording_verified = True
            return loss
        self._was_recorded = False
        self._recorder.give_up(f"a replayed loss differs from a plain one by {difference:.1e}")
        self.abilities.why_not_recorded = self._recorder.failure
        del loss, plain  # they belong to the stream of the recording, which the next loss must not depend on
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)
        return self._loss()


def _differentiated(loss: Tensor, what: str, differentiate: Callable[[Tensor], T]) -> T:
    if not loss.requires_grad:
        raise Stopped(f"the surrogate loss does not depend on the graph's {what}")
    try:
        with torch.autograd.set_multithreading_enabled(False):  # waking another thread for a GPU takes longer
            return differentiate(loss)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise Stopped(f"the surrogate has no gradient: {type(error).__name__}: {error}") from error
