"""Finding out how to run any model, by trial runs on a few nodes of its graph wherever that works.

A probe knows a model and a graph, and nothing about what they are used for. Each trial runs once, when its result is
first needed; the result is kept in the model's ``Wiring``, unless the features are the same at all nodes. The first
layer is found anew on each graph, so that it does not depend on earlier graphs; a source card says where it was on the
training graph.
"""

from __future__ import annotations

import copy
import functools
import inspect
import logging
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.shared_features import SharedFeatures
from graphmend.errors import GraphMendError, require
from graphmend.graph.canonical import node_keys
from graphmend.graph.edge_lists import number_of_graphs
from graphmend.graph.edits import sample, without_edges
from graphmend.model.call import LABELS_ARE_KEPT, Caller, Output, fresh, scores_of
from graphmend.model.comparing import is_close
from graphmend.model.edge_trials import Outcome, try_weighting, why_no_weighting_can_work
from graphmend.model.edge_weights import Weighting, filtered, native, weightings, why_not
from graphmend.model.embedding import Tap, find_tap, named_tap
from graphmend.model.failures import cannot_run, failures_named, first_line
from graphmend.model.first_layer import FirstLayer, find_first_layer
from graphmend.model.restore import untouched_rng
from graphmend.model.scripted import is_scripted
from graphmend.model.wiring import OwnEmbed, Taps, Wiring

__all__ = ["Probe"]

_LOG = logging.getLogger(__name__)

FEW_EDGES = 10_000  # whose ends are compared, to see whether features vary


class Probe:
    """Finds out how to run a model.

    Args:
        model: The model, in eval mode.
        data: The graph.
        wiring: Where results are kept.
        embedding: Name of the module whose output is Z, if the user chose one.
        seed: Seed of the edges that are dropped.
        taps: Where its first layer and Z come from, if that is known.
        output: Which part of what it returns has the scores.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        wiring: Wiring,
        embedding: str | None,
        seed: int,
        taps: Taps | None = None,
        output: Output = None,
    ) -> None:
        self.model, self.whole, self.wiring = model, data, wiring
        self._embedding, self._seed = embedding, seed
        self._taps, self._output = taps, output
        self._first_layer: FirstLayer | None = None
        self._small: Data | None = None
        self._weighting: Weighting | None = None
        self._own = Wiring()  # for findings about this graph only

    @property
    def data(self) -> Data:
        """The graph that trials run on."""
        if self._small is None:
            self._small = self.sampled(self.whole)
        return self._small

    @functools.cached_property
    def keys(self) -> Tensor:
        """A number for each node that does not depend on the numbering."""
        return node_keys(self.whole.x, self.whole.edge_index)

    @property
    def _half(self) -> Tensor:
        """Every other edge."""
        return torch.arange(self.data.edge_index.size(1), device=self.data.x.device) % 2 == 1

    def sampled(self, data: Data) -> Data:
        """A few nodes of a graph, which may have been changed since, if the model runs on a few nodes."""
        if self._small is not None and data is self.whole:
            return self._small
        return sample(data, self.keys) if self.wiring.runs_on_sample else data

    @functools.cached_property
    def findings(self) -> Wiring:
        """Where findings are kept: beyond this graph only if an edge that trials leave out joins nodes that differ."""
        source, target = self.data.edge_index[:, ~self._half][:, :FEW_EDGES]
        return self.wiring if bool((self.data.x[source] != self.data.x[target]).any()) else self._own

    @property
    def forward(self) -> Caller:
        """How the model is called."""
        return Caller(self.model, self.wiring.leave_out, output=self._output)

    def fresh(self, data: Data) -> Data:
        """A copy of a graph for the model to keep."""
        return fresh(data, self.wiring.written or ())

    def run_once(self) -> None:
        """Find out whether the model runs on the graph at all, and whether it writes into its input."""
        if self.wiring.written is None:
            with untouched_rng(self._seed):
                self._run_first()
        assert self.wiring.written is not None
        require(
            "edge_index" not in self.wiring.written,
            "the model writes into the edge_index it is given; make it work on a copy",
        )

    def _run_first(self) -> None:
        """How the model is called, whether it runs on a sample, and what it writes into."""
        try:
            self.wiring.written = self._written_attributes(self.forward, sample(self.whole, self.keys))
            self.wiring.runs_on_sample = True
        except Exception as error:  # a model for this very graph, or one that does not run
            _LOG.debug("no trials on a sample: %s", first_line(error))
            self.wiring.runs_on_sample = False
            self.wiring.written = self._written_on_the_whole_graph()

    def _written_on_the_whole_graph(self) -> tuple[str, ...]:
        try:
            return self._written_attributes(self.forward, self.whole)
        except GraphMendError:
            raise
        except Exception as error:
            written = self._written_without_edge_attr(error)
            if written is None:
                require(not self._runs_with_labels(), LABELS_ARE_KEPT)
                raise GraphMendError(cannot_run(self.model, self.whole, error)) from error
            return written

    def _runs_with_labels(self) -> bool:
        """Whether the model would run if it were given the labels."""
        if self.whole.get("y") is None:
            return False
        try:
            self._written_attributes(Caller(self.model, output=self._output, shows_labels=True), self.whole)
        except Exception as error:  # labels were not the reason
            _LOG.debug("with labels: %s", first_line(error))
            return False
        return True

    def _written_without_edge_attr(self, error: Exception) -> tuple[str, ...] | None:
        """Many models have an ``edge_attr`` parameter that only layers made with ``edge_dim`` can take."""
        bare = Caller(self.model, leave_out=frozenset({"edge_attr"}), output=self._output)
        if self.whole.get("edge_attr") is None or bare.extra == self.forward.extra:
            return None
        try:
            written = self._written_attributes(bare, self.whole)
        except Exception as again:  # edge_attr was not the reason
            _LOG.debug("without edge_attr: %s", first_line(again))
            return None
        _LOG.warning("the model is called without edge_attr, which it cannot take (%s)", first_line(error))
        self.wiring.leave_out = bare.leave_out
        return written

    @torch.no_grad()
    def _written_attributes(self, caller: Caller, graph: Data) -> tuple[str, ...]:
        data = copy.copy(graph)
        tensors = {name: value.clone() for name, value in data.to_dict().items() if isinstance(value, Tensor)}
        data.update(tensors)
        scores_of(caller(data), graph.x.size(0), number_of_graphs(graph))
        return tuple(name for name, tensor in tensors.items() if tensor._version > 0)

    def weighting(self) -> Weighting:
        """The first weighting in which weight 1 changes nothing and weight 0 equals the edge removed."""
        known = self.wiring.weighting or self._weighting
        if known is not None:
            return known
        self._weighting, reacts = filtered, False
        for weighting in weightings(self.model, self.forward, self.data):
            why_not, reacts = self._outcome(weighting, self.forward)
            if why_not is None:
                self._weighting = weighting
                break
        if self._weighting is filtered:  # unless the model has failed completely
            with torch.no_grad(), untouched_rng(self._seed), failures_named(self.model, self.data):
                self._logits()
        if reacts:  # otherwise the trials say nothing, and others are made for the next graph
            self.wiring.weighting = self._weighting
        return self._weighting

    def _outcome(self, weighting: Weighting, caller: Caller) -> Outcome:
        return try_weighting(weighting, self.model, caller, self.data, self.fresh, self._seed)

    def why_no_edge_weights(self, remedy: str) -> str:
        """The sentence that says what keeps edges from fading in this model."""
        tried = [
            self._outcome(weighting, self.forward).why_not
            for weighting in weightings(self.model, self.forward, self.data)
        ]
        with untouched_rng(self._seed), failures_named(self.model, self.data):
            general = why_no_weighting_can_work(self.model, self._logits)
        if general is not None and (tried or is_scripted(self.model)):  # otherwise a layer is in the way as well
            return f"edges cannot be learned through {type(self.model).__name__} ({general}); {remedy}"
        return why_not(self.model, remedy, next((reason for reason in reversed(tried) if reason is not None), None))

    def _logits(self) -> Tensor:
        return scores_of(self.forward(self.fresh(self.data)), self.data.x.size(0), number_of_graphs(self.data))

    @torch.no_grad()
    def reads_weights(self) -> bool:
        """Whether a graph's ``edge_weight`` reaches the model, and does what presences do."""
        known = self.wiring if self.wiring.reads_weights is not None else self.findings
        if known.reads_weights is None:
            data, weighting = self.data, self.weighting()
            source, target = data.edge_index
            generator = torch.Generator(device=data.x.device).manual_seed(self._seed)
            weight = 0.5 + torch.rand(source.numel(), generator=generator, device=data.x.device).to(data.x.dtype)
            weight = weight.masked_fill(source == target, 1.0)  # how a self-loop is weighted is up to the layer
            graph, own = copy.copy(data), data.get("edge_weight")
            graph.edge_weight = weight if own is None else own * weight.to(own.dtype)
            try:
                with untouched_rng(self._seed):
                    read = self.forward(self.fresh(graph))
                with untouched_rng(self._seed):
                    expected = weighting(self.model, self.forward, self.fresh(data), weight)
                known.reads_weights = is_close(read, expected)
            except Exception as error:
                _LOG.debug("edge weights are not read: %s", first_line(error))
                return False
        return known.reads_weights

    def embedding(self) -> OwnEmbed | Tap:
        """Where Z comes from."""
        if self._taps is not None:
            return self._taps.embedding
        known = self.wiring if self.wiring.embedding is not None else self.findings
        if known.embedding is None:
            known.embedding = self._find_embedding()
        return known.embedding

    def visible_embedding(self) -> Tap | None:
        """The tap that takes Z while the whole model runs; ``None`` if Z needs a run of its own."""
        source = self.embedding()
        if isinstance(source, Tap):
            return None if source.tail else source
        known = self.wiring if self.wiring.is_own_embed_traced else self.findings
        if not known.is_own_embed_traced:
            known.own_embed_tap, known.is_own_embed_traced = self._trace_own_embed(), True
        return known.own_embed_tap

    @torch.no_grad()
    def _trace_own_embed(self) -> Tap | None:
        """The layer whose output equals that of the model's own ``embed``, on all edges and on half of them."""
        own = Caller(self.model.embed, self.wiring.leave_out)  # type: ignore[arg-type]
        try:
            tap = self._find_tap()
            for graph in (self.data, without_edges(self.data, self._half)):
                with untouched_rng(self._seed):
                    z = own(self.fresh(graph))
                with untouched_rng(self._seed):
                    seen = tap(self.model, lambda data=graph: self.forward(self.fresh(data)))  # type: ignore[misc]
                if tap.tail or seen.shape != z.shape or not is_close(seen, z):
                    return None
        except Exception as error:
            _LOG.debug("the model's own embed is run by itself: %s", first_line(error))
            return None
        return tap

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
            with torch.enable_grad():  # even if only the value of Z is wanted
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
        if self.weighting() is native and self._outcome(native, own).why_not is not None:
            _LOG.warning("the model's own embed is not used, it does not take the edge weights that its forward takes")
            return False
        return True

    def _find_tap(self) -> Tap:
        data, nodes, half = self.data, self.data.x.size(0), self._half

        def run(graph: Data) -> Any:
            with untouched_rng(self._seed):
                return self.forward(self.fresh(graph))

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
            return self.forward(self.fresh(graph))

        with untouched_rng(self._seed), failures_named(self.model, self.data):
            return find_first_layer(self.model, run, self.data.x)

    @torch.no_grad()
    def takes_shared_features(self) -> bool:
        """Whether the model runs on :class:`SharedFeatures`; compiled models, for example, want ordinary tensors."""
        if self.wiring.takes_shared_features is None:
            graph = copy.copy(self.data)
            graph.x = SharedFeatures.of(LinearMaps(self.data.x))
            ones = torch.ones(graph.edge_index.size(1), dtype=graph.x.dtype, device=graph.x.device)
            try:
                with untouched_rng(self._seed):
                    self.weighting()(self.model, self.forward, self.fresh(graph), ones)
                self.wiring.takes_shared_features = True
            except Exception as error:
                _LOG.debug("features are not shared: %s", first_line(error))
                self.wiring.takes_shared_features = False
        return self.wiring.takes_shared_features
