"""Trial runs of a model nobody has seen before, on a few nodes of its graph wherever that works.

Each trial runs once; its result is kept in the model's ``Wiring``, unless the features are the same at all nodes. The
first layer is looked for on each graph anew, so that what is found does not depend on the graphs that came before; a
source card says where it was on the training graph.
"""

from __future__ import annotations

import copy
import functools
import inspect
import logging
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.report import Abilities
from graphmend.engine.shared_features import SharedFeatures
from graphmend.engine.trials import why_features_are_not_shared
from graphmend.errors import GraphMendError, require
from graphmend.graph.canonical import node_keys
from graphmend.graph.edits import sample, without_edges
from graphmend.model.call import Caller
from graphmend.model.comparing import is_close
from graphmend.model.edge_trials import Outcome, try_way, why_no_way_can_work
from graphmend.model.edge_weights import Way, filtered, native, ways, why_not
from graphmend.model.embedding import Tap, find_tap, named_tap
from graphmend.model.failures import failures_named, first_line
from graphmend.model.first_layer import FirstLayer, find_first_layer, response_of_mean
from graphmend.model.first_run import FirstRun
from graphmend.model.restore import untouched_rng
from graphmend.model.scripted import is_scripted
from graphmend.model.wiring import OwnEmbed, Taps, Wiring

if TYPE_CHECKING:
    from graphmend.model.frozen import FrozenGNN

__all__ = ["Trials"]

_LOG = logging.getLogger(__name__)

FEW_EDGES = 10_000  # whose ends are compared, to see whether the features say anything


class Trials:
    """Finds out how to run a model.

    Args:
        frozen: The frozen model.
        model: The model itself, in eval mode.
        data: The graph.
        wiring: Where results are kept.
        embedding: Name of the module whose output is Z, if the user chose one.
        seed: Seed of the edges that are dropped.
        taps: Where its first layer and Z come from, if that is known.
    """

    def __init__(
        self,
        frozen: FrozenGNN,
        model: nn.Module,
        data: Data,
        wiring: Wiring,
        embedding: str | None,
        seed: int,
        taps: Taps | None = None,
    ) -> None:
        self.frozen, self.model, self.whole, self.wiring = frozen, model, data, wiring
        self._embedding, self._seed = embedding, seed
        self._taps = taps
        self._first_layer: FirstLayer | None = None
        self._small: Data | None = None
        self._way: Way | None = None
        self._own = Wiring()  # for findings about this graph only

    @property
    def data(self) -> Data:
        """The graph that trials run on."""
        if self._small is None:
            self._small = sample(self.whole, self.keys) if self.wiring.runs_on_sample else self.whole
        return self._small

    @functools.cached_property
    def keys(self) -> Tensor:
        """A number for each node that does not depend on the numbering."""
        return node_keys(self.whole.x, self.whole.edge_index)

    @property
    def _half(self) -> Tensor:
        """Every other edge."""
        return torch.arange(self.data.edge_index.size(1), device=self.data.x.device) % 2 == 1

    @functools.cached_property
    def _findings(self) -> Wiring:
        """Where findings go: they last only if an edge that trials leave out lies between nodes that differ."""
        source, target = self.data.edge_index[:, ~self._half][:, :FEW_EDGES]
        return self.wiring if bool((self.data.x[source] != self.data.x[target]).any()) else self._own

    @property
    def forward(self) -> Caller:
        """How the model is called."""
        return Caller(self.model, self.wiring.leave_out, output=self.frozen.output)

    def run_once(self) -> None:
        """Does the model run on the graph at all, and does it write into its input?"""
        if self.wiring.written is None:
            with untouched_rng(self._seed):
                FirstRun(self.frozen, self.model, self.whole, self.wiring).run(lambda: sample(self.whole, self.keys))
        assert self.wiring.written is not None
        require(
            "edge_index" not in self.wiring.written,
            "the model writes into the edge_index it is given; make it work on a copy",
        )

    def way(self) -> Way:
        """The first way in which weight 1 changes nothing and weight 0 equals the edge removed."""
        known = self.wiring.way or self._way
        if known is not None:
            return known
        self._way, reacts = filtered, False
        for way in ways(self.model, self.forward, self.data):
            why_not, reacts = self._outcome(way, self.forward)
            if why_not is None:
                self._way = way
                break
        if self._way is filtered:  # unless the model has failed altogether
            with torch.no_grad(), untouched_rng(self._seed), failures_named(self.model, self.data):
                self._logits()
        if reacts:  # otherwise the trials say nothing, and others are made for the next graph
            self.wiring.way = self._way
        return self._way

    def _outcome(self, way: Way, caller: Caller) -> Outcome:
        return try_way(way, self.model, caller, self.data, self.frozen.fresh, self._seed)

    def why_no_edge_weights(self, remedy: str) -> str:
        """The sentence that says what keeps edges from fading in this model."""
        tried = [self._outcome(way, self.forward).why_not for way in ways(self.model, self.forward, self.data)]
        with untouched_rng(self._seed), failures_named(self.model, self.data):
            general = why_no_way_can_work(self.model, self._logits)
        if general is not None and (tried or is_scripted(self.model)):  # otherwise a layer stands in the way as well
            return f"edges cannot be learned through {type(self.model).__name__} ({general}); {remedy}"
        return why_not(self.model, remedy, next((reason for reason in reversed(tried) if reason is not None), None))

    def _logits(self) -> Tensor:
        with self.frozen.on(self.data):
            return self.frozen.checked_logits(self.forward(self.frozen.fresh(self.data)))

    @torch.no_grad()
    def reads_weights(self) -> bool:
        """Whether a graph's ``edge_weight`` reaches the model, and does what presences do."""
        known = self.wiring if self.wiring.reads_weights is not None else self._findings
        if known.reads_weights is None:
            data, way = self.data, self.way()
            source, target = data.edge_index
            generator = torch.Generator(device=data.x.device).manual_seed(self._seed)
            weight = 0.5 + torch.rand(source.numel(), generator=generator, device=data.x.device).to(data.x.dtype)
            weight = weight.masked_fill(source == target, 1.0)  # what a self-loop weighs is the layer's own business
            graph, own = copy.copy(data), data.get("edge_weight")
            graph.edge_weight = weight if own is None else own * weight.to(own.dtype)
            try:
                with untouched_rng(self._seed):
                    read = self.forward(self.frozen.fresh(graph))
                with untouched_rng(self._seed):
                    expected = way(self.model, self.forward, self.frozen.fresh(data), weight)
                known.reads_weights = is_close(read, expected)
            except Exception as error:
                _LOG.debug("edge weights are not read: %s", first_line(error))
                return False
        return known.reads_weights

    def embedding(self) -> OwnEmbed | Tap:
        """Where Z comes from."""
        if self._taps is not None:
            return self._taps.embedding
        known = self.wiring if self.wiring.embedding is not None else self._findings
        if known.embedding is None:
            known.embedding = self._find_embedding()
        return known.embedding

    def taps(self) -> Taps:
        """Where the first layer and Z come from, found on this graph alone, whatever earlier ones have shown."""
        if self._taps is None:
            self._taps = Taps(self.first_layer(), self._find_embedding())
        return self._taps

    def _find_embedding(self) -> OwnEmbed | Tap:
        with untouched_rng(self._seed), failures_named(self.model, self.data):
            own = self._embedding is None and self._has_own_embed()
            return OwnEmbed() if own else self._find_tap()

    def _has_own_embed(self) -> bool:
        """Whether the model has an ``embed`` method that can be called like the model."""
        method = getattr(self.model, "embed", None)
        if not (inspect.ismethod(method) or isinstance(method, torch.ScriptMethod)):
            return False
        data = copy.copy(self.data)
        try:
            own = Caller(method, self.wiring.leave_out)
            with torch.enable_grad():  # even where only the value of Z is wanted
                data.x = data.x.clone().requires_grad_().clone()
                z = own(data)
        except Exception as error:
            _LOG.warning("the model's own embed is not used, it fails on this graph (%s)", first_line(error))
            return False
        is_nodes = isinstance(z, Tensor) and z.dim() == 2 and z.size(0) == data.x.size(0)
        require(is_nodes, "the model's embed does not return one row per node; name an embedding")
        if not z.requires_grad:
            _LOG.warning("the model's own embed is not used, it has no gradient; does it run under no_grad?")
            return False
        if self.way() is native and self._outcome(native, own).why_not is not None:
            _LOG.warning("the model's own embed is not used, it does not take the edge weights that its forward takes")
            return False
        return True

    def _find_tap(self) -> Tap:
        data, nodes, half = self.data, self.data.x.size(0), self._half

        def run(graph: Data) -> Any:
            with untouched_rng(self._seed):
                return self.forward(self.frozen.fresh(graph))

        def reacts(tap: Tap) -> bool:
            with torch.no_grad():
                whole = tap(self.model, lambda: run(data))
                part = tap(self.model, lambda: run(without_edges(data, half)))
            return not torch.equal(whole, part)

        with torch.no_grad():
            if self._embedding is not None:
                return named_tap(self.model, self._embedding, lambda: run(data), nodes)
            try:
                return find_tap(self.model, lambda: run(data), nodes, reacts)
            except GraphMendError:
                if not torch.equal(run(data), run(without_edges(data, half))):
                    raise
            return find_tap(self.model, lambda: run(data), nodes, lambda _: True)  # it reads no edges at all

    def first_layer(self) -> FirstLayer:
        """Where the first pre-activation comes from."""
        if self._taps is not None:
            return self._taps.first_layer
        if self._first_layer is None:
            self._first_layer = self._find_first_layer()
        return self._first_layer

    def _find_first_layer(self) -> FirstLayer:
        graphs = {True: self.data, False: without_edges(self.data, self._half)}

        def run(x: Tensor, with_all_edges: bool) -> Any:
            graph = copy.copy(graphs[with_all_edges])
            graph.x = x
            return self.forward(self.frozen.fresh(graph))

        with untouched_rng(self._seed), failures_named(self.model, self.data):
            return find_first_layer(self.model, run, self.data.x)

    def first_map(self, whole: Data) -> Tensor:
        """How the mean of the first layer follows a shift of all feature rows, ``(columns, width)``.

        Args:
            whole: The graph, which may have been changed since the trials were made.
        """
        if whole is self.whole:
            data = self.data
        else:
            data = sample(whole, self.keys) if self.wiring.runs_on_sample else whole
        with untouched_rng(self._seed), self.frozen.on(data):
            return response_of_mean(lambda x: self.frozen.first_layer(x, data.edge_index), data.x)

    @torch.no_grad()
    def takes_shared_features(self) -> bool:
        """Whether the model runs on :class:`SharedFeatures`; compiled models, for example, want ordinary tensors."""
        if self.wiring.takes_shared_features is None:
            graph = copy.copy(self.data)
            graph.x = SharedFeatures.of(LinearMaps(self.data.x))
            ones = torch.ones(graph.edge_index.size(1), dtype=graph.x.dtype, device=graph.x.device)
            try:
                with untouched_rng(self._seed):
                    self.way()(self.model, self.forward, self.frozen.fresh(graph), ones)
                self.wiring.takes_shared_features = True
            except Exception as error:
                _LOG.debug("features are not shared: %s", first_line(error))
                self.wiring.takes_shared_features = False
        return self.wiring.takes_shared_features

    @torch.no_grad()
    def stacks_views(self) -> bool:
        """Whether views that go through the model together have the embeddings they have alone."""
        known = self.wiring if self.wiring.stacks_views is not None else self._findings
        if known.stacks_views is None:
            data, generator = self.data, torch.Generator().manual_seed(self._seed)
            order = torch.randperm(data.x.size(0), generator=generator).to(data.x.device)
            factor = torch.rand(data.x.size(0), 1, generator=generator).to(data.x)  # so that sums over nodes differ
            views = []
            for x in (data.x, data.x[order] * factor):
                weight = torch.rand(data.edge_index.size(1), generator=generator).to(data.x)
                views.append(Data(x=x, edge_index=data.edge_index, edge_weight=weight))
            try:
                with untouched_rng(self._seed), self.frozen.on(data):
                    apart = [self.frozen.embed(view.x, view.edge_index, view.edge_weight) for view in views]
                    known.stacks_views = all(map(is_close, apart, self.frozen.embed_stacked(views)))
            except Exception as error:
                _LOG.debug("views are not stacked: %s", first_line(error))
                known.stacks_views = False
        return known.stacks_views

    def abilities(self, surrogate: Any, key: Hashable) -> Abilities:
        """What is known about the model with a loss, after a trial with shared features."""
        wiring = self.wiring if key in self.wiring.abilities else self._findings
        known = wiring.abilities.setdefault(key, Abilities())
        if not known.is_sharing_tried:
            with untouched_rng(self._seed):
                known.why_not_shared = self._why_not_shared(surrogate)
            known.is_sharing_tried = True
        return known

    def _why_not_shared(self, surrogate: Any) -> str | None:
        reason = "it has not been tried"
        for data in {id(graph): graph for graph in (self.data, self.whole)}.values():
            graph = copy.copy(data)
            if self.way() is not filtered:
                generator = torch.Generator().manual_seed(self._seed)
                graph.edge_weight = torch.rand(data.edge_index.size(1), generator=generator).to(data.x)
            try:
                with self.frozen.on(data):
                    return why_features_are_not_shared(self.frozen, surrogate, graph, self._seed)
            except Exception as error:  # a loss for this very graph, or one that does not work at all
                reason = first_line(error)
        return reason
