"""Algorithm 1 of GTrans: alternate feature and edge steps, then choose a discrete graph."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.cuda_graphs import Recorder
from graphmend.engine.memory import relieve
from graphmend.engine.optimizers import EDGE_UPDATES, FeatureAdam, Update
from graphmend.engine.shared_features import Rows
from graphmend.errors import GraphMendError, require
from graphmend.frozen import FrozenGNN
from graphmend.graph.budget import RECORDABLE
from graphmend.graph.checks import is_finite
from graphmend.graph.edge_flips import EdgeFlips
from graphmend.graph.limits import Limits
from graphmend.nn import GAT, GCN, GPR, SAGE
from graphmend.progress import track
from graphmend.results.adaptation import Adaptation, Step, unchanged
from graphmend.results.history import Candidates, Steps, Stopped
from graphmend.results.patch import Patch
from graphmend.surrogates import Contrastive, Supervised, Surrogate, surrogate_of
from graphmend.surrogates.base import Scaled, Sum
from graphmend.transforms.views.drop_edge import DropEdge

if TYPE_CHECKING:
    from graphmend.adapters.gtrans import GTrans

_LOG = logging.getLogger(__name__)

T = TypeVar("T")


def _is_known(surrogate: Surrogate) -> bool:
    if isinstance(surrogate, Sum):
        return all(map(_is_known, surrogate.parts))
    return _is_known(surrogate.part) if isinstance(surrogate, Scaled) else type(surrogate) in (Contrastive, Supervised)


class _Loss(NamedTuple):
    total: Tensor
    terms: dict[str, Tensor]
    rows: Rows  #: the features it was computed from


class Run:
    """One adaptation of one graph."""

    def __init__(
        self,
        settings: GTrans,
        frozen: FrozenGNN,
        data: Data,
        limits: Limits,
        seed: int,
        callback: Callable[[Step], None] | None,
    ) -> None:
        self.settings, self.frozen, self.data, self.limits, self.seed = settings, frozen, data, limits, seed
        self.surrogate = surrogate_of(settings.surrogate)
        self.generator = torch.Generator(device=data.x.device).manual_seed(seed)
        self.x = data.x.detach().clone(memory_format=torch.contiguous_format)  # X' = X + dX, a leaf
        self.flips = self._edge_flips() if settings.edge_steps > 0 else None
        self.rows = Rows.of(self.x)  # the same with its linear maps
        self.shares = _is_known(self.surrogate)  # a stranger may look for gradients of its own
        self.edge_index = data.edge_index if self.flips is None else self.flips.edge_index
        self.record = self._recorder()
        self.renews = not (self.record.enabled or limits.bind_features())  # X'W is computed as soon as X' is
        needs_ones = self.flips is None and (self.record.enabled or frozen.is_faster_with_weights())
        self.ones = self.x.new_ones(data.edge_index.size(1)) if needs_ones else None
        if self.record.enabled:  # what is worked out when first asked for must not be asked for in a recording
            _ = Adjacency.of(self.edge_index, self.x.size(0)).inverse_perm, self.flips and self.flips.places
        self.steps, self.candidates = Steps(callback), Candidates()

    def adapt(self, progress: bool) -> Adaptation:
        """Run it."""
        start = time.perf_counter()
        self.watched = progress or self.steps.callback is not None or self.settings.time_limit is not None
        try:
            with closing(track(range(self.settings.steps), "mending", progress)) as steps:
                self._learn(steps, start)
            chosen = self._discretise()
            self.record.forget()
            patch, mended = Patch.make(self.data, self.x, *self._changes(chosen))
            logits = self._predict(mended, chosen)
        except Stopped as stopped:
            _LOG.warning("the graph is left as it was: %s", stopped)
            return unchanged(
                self.frozen,
                self.data,
                history=self.steps.read_so_far,
                candidates=self.candidates.read(),
                reason=str(stopped),
                seconds=time.perf_counter() - start,
            )
        finally:
            self.record.forget()
        return Adaptation(
            self.frozen.model,
            mended,
            logits,
            patch,
            self.steps.read(),
            self.candidates.read(),
            seconds=time.perf_counter() - start,
        )

    def _learn(self, steps: Iterable[int], start: float) -> None:
        """Lines 4 to 13 of Algorithm 1."""
        s = self.settings
        update_x = FeatureAdam(self.x, s.lr_feature) if s.feature_steps > 0 else None
        update_p = EDGE_UPDATES[s.edge_update](self.flips.p, s.lr_edge) if self.flips is not None else None
        try:
            for t in steps:
                if s.time_limit is not None and time.perf_counter() - start > s.time_limit:
                    _LOG.info("stopped after %d of %d steps: time_limit is %s s", t, s.steps, s.time_limit)
                    break
                if t % (s.feature_steps + s.edge_steps) < s.feature_steps:
                    assert update_x is not None
                    kind, (terms, found) = "feature", self._feature_step(update_x)
                else:
                    assert self.flips is not None and update_p is not None
                    kind, (terms, found) = "edge", self._edge_step(self.flips, update_p)
                ahead = self.record.enabled and not self.watched
                self.steps.note(t, kind, terms, found, time.perf_counter() - start, ahead=ahead)
                relieve()
        except Stopped:
            self.steps.read()  # an earlier one may have been the reason
            raise
        self.steps.read()

    def _feature_step(self, update: FeatureAdam) -> tuple[Iterable[str], Tensor]:
        """Lines 6 to 8: names of the loss's terms; their values, and the norm of the gradient that was followed."""
        with self._wanting_gradients(self.x):
            loss = self.record("loss", self._loss)
            found = self.record("feature", lambda: self._follow_features(loss, update))
        self.rows = Rows.of(self.x, loss.rows if self.renews else None)
        return loss.terms, found

    def _follow_features(self, loss: _Loss, update: FeatureAdam) -> Tensor:
        ask = partial(loss.rows.gradient, again=self.record.enabled)
        gradient = self._following("features; set feature_steps=0", loss.total, ask)
        norm = update.step(gradient, loss.rows.renew if self.renews else None)
        with torch.no_grad():
            self.limits.project(self.x, self.data.x)
        return torch.stack([*loss.terms.values(), norm])

    def _edge_step(self, flips: EdgeFlips, update: Update) -> tuple[Iterable[str], Tensor]:
        """Lines 9 to 12: the same, and how many edges flip."""
        with self._wanting_gradients(flips.p):
            loss = self.record("loss", self._loss)
            found = self.record("edge", lambda: self._follow_edges(loss, flips, update))
        return loss.terms, found

    def _follow_edges(self, loss: _Loss, flips: EdgeFlips, update: Update) -> Tensor:
        p = flips.p
        if p.numel() == 0:  # no edge may change
            return torch.stack([*loss.terms.values(), p.new_zeros(()), p.new_zeros(())])
        gradient = partial(torch.autograd.grad, inputs=p, allow_unused=True, retain_graph=self.record.enabled)
        found = self._following("edges; set edge_steps=0", loss.total, gradient)[0]
        found = torch.zeros_like(p) if found is None else found
        update(found)
        flips.step_back()
        with torch.no_grad():
            return torch.stack([*loss.terms.values(), torch.linalg.vector_norm(found), p.sum()])

    @contextmanager
    def _wanting_gradients(self, variable: Tensor) -> Iterator[None]:
        """Inside, the loss can be followed along a variable; once recorded, along features and edges."""
        both = [self.x] if self.flips is None else [self.x, self.flips.p]
        variables = both if self.record.enabled else [variable]
        for wanting in variables:
            wanting.requires_grad_(True)
        try:
            yield
        finally:
            for wanting in variables:
                wanting.requires_grad_(False)

    def _loss(self) -> _Loss:
        """The loss of the relaxed graph."""
        known = None if self.record.enabled else self.rows  # a recording has to begin with X'
        rows = Rows.of(self.x, known) if self.x.requires_grad else self.rows
        presence = self.ones if self.flips is None else self.flips.presence()
        terms = self._terms(self._graph(rows, presence), self.generator)
        total = torch.stack(list(terms.values())).sum()
        return _Loss(total, {name: value.detach() for name, value in terms.items()}, rows)

    def _following(self, what: str, loss: Tensor, gradient: Callable[[Tensor], T]) -> T:
        if not loss.requires_grad:
            raise Stopped(f"the surrogate loss does not depend on the graph's {what}")
        try:
            with torch.autograd.set_multithreading_enabled(False):  # another thread would have to be woken for a GPU
                return gradient(loss)
        except Exception as error:
            raise Stopped(f"the surrogate has no gradient: {type(error).__name__}: {error}") from error

    def _discretise(self) -> Tensor | None:
        """Lines 14 to 21 of Algorithm 1: among discrete flips within budget, those with the lowest loss."""
        if self.limits.binary is not None and any(step.kind == "feature" for step in self.steps.read()):
            self.limits.finish(self.x, self.data.x)
            self.rows = Rows.of(self.x)
        if not is_finite(self.x):
            raise Stopped("the mended features are not finite; take a smaller lr_feature")
        if self.flips is None:
            return None
        draws = torch.Generator(device=self.x.device)
        draws.set_state(self.generator.get_state())
        for name, flips in self.flips.discrete(self.settings.num_samples, draws):
            self.candidates.note(name, flips, self._score(self.flips, flips), ahead=self.record.enabled)
        self.candidates.read()
        if self.candidates.best is None:
            raise Stopped("the surrogate loss of every discrete graph is not finite")
        return self.candidates.best[1]

    @torch.no_grad()
    def _score(self, edges: EdgeFlips, flips: Tensor) -> Tensor:
        """The loss of a discrete graph, and how many edges flip."""
        relieve()
        edges.become(flips)
        self.generator.manual_seed(self.seed)  # the same views for all
        loss = self.record("loss", self._loss).total
        return torch.stack([loss.double(), flips.sum(dtype=torch.float64)])

    def _changes(self, flips: Tensor | None) -> tuple[Tensor, Tensor]:
        """Positions of the edges that go, and the edges that come."""
        none = self.data.edge_index[:, :0]
        return (none[0], none) if self.flips is None or flips is None else self.flips.changes(flips)

    def _terms(self, graph: Data, generator: torch.Generator) -> dict[str, Tensor]:
        try:
            with self._precision():
                terms = self.surrogate.terms(self.frozen, graph, generator)
            require(len(terms) > 0, "the surrogate has no terms; return at least one")
            return {name: torch.as_tensor(value, device=graph.x.device).reshape(()) for name, value in terms.items()}
        except GraphMendError:
            raise
        except Exception as error:
            raise Stopped(f"the surrogate failed with {type(error).__name__}: {error}") from error

    def _precision(self) -> AbstractContextManager[object]:
        if self.settings.activations == "float32":
            return nullcontext()  # whatever the caller has chosen
        return torch.autocast(self.x.device.type, torch.bfloat16, cache_enabled=False)

    @torch.no_grad()
    def _predict(self, mended: Data, flips: Tensor | None) -> Tensor:
        """Logits on the mended graph; to our own backbones, an edge of weight 0 is none."""
        if self.frozen.is_ours:
            presence = None
            if self.flips is not None and flips is not None:
                self.flips.become(flips)
                presence = self.flips.presence()
            logits = self.frozen(self.rows, self.edge_index, presence)
        else:
            graph = copy.copy(mended)
            graph.x = self.rows
            logits = self.frozen.predict(graph)
        finite = logits.isfinite()
        if not bool(finite.all()) and not torch.equal(finite, self.frozen.predict(self.data).isfinite()):
            raise Stopped("the model's output on the mended graph is not finite; take a smaller lr_feature")
        return logits

    def _recorder(self) -> Recorder:
        """Recordings are for our own backbones and loss, on graphs so small that launching takes the longer part."""
        known = type(self.surrogate) is Contrastive and type(self.surrogate.view) is DropEdge
        known = known and type(self.frozen.model) in (GCN, SAGE, GPR, GAT) and self.frozen.views_along == 1
        if not (self.x.is_cuda and known and self.edge_index.size(1) < RECORDABLE and self.limits.is_empty()):
            return Recorder(self.frozen.model, [], (), enabled=False)
        adjacency = Adjacency.of(self.edge_index, self.x.size(0))
        shape = (str(self.frozen.model), self.x.shape, self.x.dtype, self.x.device, self.edge_index.size(1))
        hubs = [pattern.hubs.numel() for pattern in (adjacency.pattern, adjacency.transpose)]
        kernels = (adjacency.is_symmetric, adjacency.perm is None, *hubs)
        about = (self.surrogate, self.flips and self.flips.num_candidates, self.settings.activations)
        return Recorder(self.frozen.model, [self.generator], (*shape, *kernels, *about), enabled=True)

    def _graph(self, rows: Rows, presence: Tensor | None) -> Data:
        graph = copy.copy(self.data)
        graph.edge_index = self.edge_index
        if self.shares:
            graph.x, graph.edge_weight = rows, presence
        else:
            graph.x, graph.edge_weight = self.x, None if presence is None else presence.clone()
        return graph

    def _edge_flips(self) -> EdgeFlips:
        s = self.settings
        return EdgeFlips.of(
            self.data.edge_index,
            self.x.size(0),
            budget=s.budget,
            space=s.space,
            block_size=s.block_size,
            directed=s.directed,
            frozen=self.limits.frozen_edges,
            dtype=self.x.dtype,
            generator=self.generator,
        )
