"""FrozenGNN: any PyG model as a backbone, left exactly as it was."""

from __future__ import annotations

import copy
import functools
import logging
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy
from torch_geometric.data import Data

from graphmend.engine.adjacency import Adjacency
from graphmend.engine.cache import cached, caching, sharing_gradients
from graphmend.engine.engine import MODES
from graphmend.engine.low_rank import leaves_of, parts_of
from graphmend.engine.memory import keeping_memory
from graphmend.engine.report import Abilities
from graphmend.engine.shared_features import SharedFeatures, as_tensor, stacked
from graphmend.engine.tuning import KEPT_BYTES, STACKED_ENTRIES
from graphmend.errors import UnsupportedLayerError, listed, one_of, require, seed_number, text
from graphmend.graph.checks import check_structure
from graphmend.graph.edge_lists import number_of_graphs
from graphmend.graph.edits import canonical, with_more_edges
from graphmend.graph.mapped import MappedGraph
from graphmend.model.call import Caller, Output, check_output_name, fresh, scores_of
from graphmend.model.edge_weights import Weighting, are_streamed, filtered, patched, patched_plainly
from graphmend.model.embedding import Tap, tapped
from graphmend.model.failures import failures_named
from graphmend.model.first_layer import response_of_mean
from graphmend.model.probe import Probe
from graphmend.model.restore import frozen_model, plain, untouched_rng
from graphmend.model.restoring import Restoring, finishes
from graphmend.model.sharded import Sharding, ShardRun, joined, put_together
from graphmend.model.trials import stacks_views, why_not_shared
from graphmend.model.wiring import Taps, Wiring, signature, wiring_of
from graphmend.wrappers import unwrapped

__all__ = ["FrozenGNN", "Observation", "check_model"]

_LOG = logging.getLogger(__name__)
_Shards = tuple[list[tuple[int, int]], int]


class Observation(NamedTuple):
    """What a model shows of a graph.

    Args:
        first: The output of the first layer before any activation.
        z: The embedding.
        logits: The output.

    Example:
        >>> from graphmend.model import Observation
        >>> seen = Observation(first=[[0.5, 0.1]], z=[[0.5]], logits=[[1.0, 0.0]])
    """

    first: Tensor
    z: Tensor
    logits: Tensor


def check_model(model: Any) -> None:
    """Raise unless something is a model whose weights have values."""
    require(isinstance(model, nn.Module), f"the model must be a torch.nn.Module (got {type(model).__name__})")
    tensors = [*model.named_parameters(), *model.named_buffers()]
    lazy = listed(name for name, tensor in tensors if is_lazy(tensor))
    require(not lazy, f"the model has never run: {lazy} have no values yet; load its weights first")
    empty = listed(name for name, tensor in tensors if tensor.is_meta)
    require(not empty, f"the model is on the meta device: {empty} have no values; load its weights first")


class FrozenGNN:
    """A trained model with the backbone contract: logits, an embedding Z, and exact edge weights.

    The model is called as ``forward(x, edge_index)``, with ``edge_weight`` or ``edge_attr`` besides, or as
    ``forward(data)``, and returns logits, log-softmax or a single binary logit per node. Use it as a context manager:
    inside, the model is in eval mode without parameter gradients and the global generators are seeded; at the end, even
    after an exception, model and generators are as they were. A model that writes into its input gets a copy of it;
    otherwise it gets your tensors themselves. The generators belong to the whole process: while a block is open, other
    threads that open one, or mend, wait until it ends.

    Args:
        model: Any ``nn.Module``.
        data: The graph; its further attributes are passed on to a model that asks for them.
        embedding: Name of the module whose output is Z. By default, Z comes from the model's own ``embed`` method, or
            is the node-level input of the last layer that runs.
        seed: For models that draw random numbers even in eval mode.
        mode: ``"eager"`` runs every view by itself.
        taps: Where the first layer and Z come from, see :attr:`taps`; by default they are found on this graph.
        output: Which part of what the model returns has the scores: a key or an attribute (``"logits"``), or a
            position (``0``), for a model that returns a dictionary or a tuple.

    Example:
        >>> import torch
        >>> import torch_geometric as pyg
        >>> from graphmend import FrozenGNN
        >>> data = pyg.data.Data(x=torch.rand(3, 4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
        >>> with FrozenGNN(pyg.nn.GraphSAGE(4, 16, num_layers=2, out_channels=2), data) as frozen:
        ...     frozen.embed(data.x, data.edge_index).shape
        torch.Size([3, 16])
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        *,
        embedding: str | None = None,
        seed: int = 0,
        mode: str = "auto",
        taps: Taps | None = None,
        output: Output = None,
    ) -> None:
        check_model(model)
        check_structure(data)
        embedding = None if embedding is None else text("embedding", embedding)
        one_of("mode", mode, MODES)
        given = type(taps).__name__
        require(taps is None or isinstance(taps, Taps), f"taps must be those of a FrozenGNN or a card (got {given})")
        self.model = model
        self.module = unwrapped(model)  #: the model that is run
        self.output = check_output_name(output)
        self.stacked_views = False  #: whether views went through the model together
        self._data = plain(data)
        self._presence: Tensor | None = None  #: weights of its edges that the model itself does not read
        self._embedding, self._seed, self._mode = embedding, seed_number("seed", seed), mode
        self._given_taps = taps
        self._given_wiring: Wiring | None = None
        self._stack: Restoring | None = None

    def __enter__(self) -> Self:
        require(self._stack is None, "this FrozenGNN is already open; use it in one with block at a time")
        with Restoring() as stack:
            stack.callback(self.__dict__.pop, "_probe", None)  # it refers to a graph
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(untouched_rng(self._seed))
            stack.enter_context(frozen_model(self.module))
            stack.enter_context(caching())
            if self._mode == "auto":
                graph = self._data
                stack.enter_context(keeping_memory(graph.x, graph.edge_index.size(1), self.width, KEPT_BYTES))
            taps = self._given_taps
            self.signature = (signature(self.module, self._data, self._embedding), self.output)
            self._wiring = self._given_wiring or wiring_of(self.module, self.signature)
            self._probe = Probe(self.module, self._data, self._wiring, self._embedding, self._seed, taps, self.output)
            self._probe.run_once()
            if self._embedding is not None:  # so that a wrong name is an error even if Z is not needed
                self._probe.embedding()
            self._forward = self._probe.forward
            self._stack, self._thread = stack.pop_all(), threading.get_ident()
        return self

    @finishes
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._stack is not None
        stack, self._stack = self._stack, None
        stack.__exit__(kind, error, trace)

    def __call__(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Logits. ``edge_weight`` is the presence of each edge, on top of the weight the graph itself gives it."""
        forward = self._caller()
        shards = self._shards(x, edge_index, edge_weight)
        if shards is not None:
            return self._in_shards(x, shards, "logits")[0]
        with failures_named(self.module, self._data):
            return self._scores(self._ready(forward, x, edge_index, edge_weight)())

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The representation Z, one row per node."""
        forward, source = self._caller(), self._probe.embedding()
        shards = self._shards(x, edge_index, edge_weight)
        if shards is not None:
            return self._in_shards(x, shards, "z")[0]
        with failures_named(self.module, self._data):
            if isinstance(source, Tap):
                return source(self.module, self._ready(forward, x, edge_index, edge_weight))
            own: Any = self.module.embed
            return self._ready(Caller(own, forward.leave_out), x, edge_index, edge_weight)()  # type: ignore[no-any-return]

    def first_layer(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The output of the first layer before any normalisation or activation, one row per node."""
        forward, source = self._caller(), self._probe.first_layer()
        shards = self._shards(x, edge_index, edge_weight)
        if shards is not None:
            return self._in_shards(x, shards, "first")[0]
        with failures_named(self.module, self._data):
            return source.tap(self.module, self._ready(forward, x, edge_index, edge_weight))

    @torch.no_grad()
    def observe(self, data: Data, x: Tensor | None = None) -> Observation:
        """What the model shows of a graph, in one run of it where that is possible.

        Args:
            data: The graph.
            x: Other features for it, which may be shared features.
        """
        forward, first, z_tap = self._caller(), self._probe.first_layer().tap, self._probe.visible_embedding()
        together = [first] if z_tap is None else [first, z_tap]
        x = data.x if x is None else x
        with failures_named(self.module, data), self.on(data, weights_count=self.weights_count):
            shards = self._shards(x, data.edge_index, None)
            if shards is not None:
                return Observation(*self._in_shards(x, shards, "all"))
            run = self._ready(forward, x, data.edge_index, None)
            logits, (shown, *z) = tapped(self.module, together, run)
            return Observation(shown, z[0] if z else self.embed(x, data.edge_index), self._scores(logits))

    def _shards(self, x: Tensor, edge_index: Tensor, presence: Tensor | None) -> _Shards | None:
        """The shards of a mapped graph that is too large for one run, and their hops; ``None`` for all others."""
        data = self._data
        if presence is not None or not isinstance(data, MappedGraph) or edge_index.shape != data.edge_index.shape:
            return None
        return self.sharding.ranges(data, x)

    def _in_shards(self, x: Tensor, shards: _Shards, name: str) -> tuple[Tensor, ...]:
        """What the model gives, run on one shard after the other, or by others at the same time."""
        graph, (ranges, hops), leaves = copy.copy(self._data), shards, leaves_of(x)
        graph.x, change = (leaves.like, None) if leaves is not None else parts_of(x)
        if self._presence is not None:
            graph.edge_weight = self._presence
        counts, others = self.weights_count, graph.workers is not None and leaves is None
        show: Callable[[Data], tuple[Tensor, ...]] = functools.partial(self._shown, name, counts)
        if others:
            taps = None if name == "logits" else self._probe.taps()
            wiring = replace(
                self._wiring, weighting=self._probe.weighting(), abilities={}
            )  # found here, not on each shard anew
            settings = {"embedding": self._embedding, "seed": self._seed, "taps": taps, "output": self.output}
            show = functools.partial(_alone, self.model, name, counts, wiring, settings)
        run = ShardRun(graph, hops, show, change, leaves)
        if leaves is not None:
            return joined(map(run, ranges))
        key = None if graph.keep is None else self.sharding.key(run, name, self._embedding, self._given_taps)
        return put_together(graph.over(run, ranges, key), x.size(0))

    def _shown(self, name: str, weights_count: bool, data: Data) -> tuple[Tensor, ...]:
        """The outputs of the method with that name on a graph that may be another one."""
        with self.on(data, weights_count=weights_count):
            if name == "all":
                return tuple(self.observe(data))
            runs: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"z": self.embed, "first": self.first_layer}
            return (runs.get(name, self)(data.x, data.edge_index),)

    @functools.cached_property
    def sharding(self) -> Sharding:
        """The shards in which the model runs on mapped graphs."""
        leave_out, output = self._wiring.leave_out, self.output
        return Sharding(self.module, self.width, self._seed, leave_out, output, self._can_stream)

    def _can_stream(self) -> bool:
        """Whether the edges of a mapped graph can stay on the disk: all layers are sums that read them once."""
        return self._probe.weighting() in (patched, patched_plainly) and are_streamed(self.module)

    @property
    def taps(self) -> Taps:
        """Where the first layer and Z come from: as given, or as found on this graph alone.

        From the first access on, :meth:`first_layer` and :meth:`embed` take them from there.
        """
        self._caller()
        return self._probe.taps()

    @property
    def node_keys(self) -> Tensor:
        """A number for each node of the graph that does not depend on the numbering, to break ties by."""
        return self._probe.keys

    def canonical(self, data: Data) -> Data:
        """A copy of the graph, which may have been changed since, in an order that does not depend on the numbering."""
        return canonical(data, self.node_keys)

    @property
    def first_map(self) -> Tensor:
        """How the mean of the first layer follows a shift of all feature rows, ``(columns, width)``."""
        self._caller()
        data = self._probe.sampled(self._data)
        with untouched_rng(self._seed), self.on(data):
            return response_of_mean(lambda x: self.first_layer(x, data.edge_index), data.x)

    @property
    def first_norm(self) -> nn.Module | None:
        """The batch normalisation behind the first layer, if there is one."""
        self._caller()
        name = self._probe.first_layer().norm
        return None if name is None else self.module.get_submodule(name)

    @contextmanager
    def dropping(self) -> Iterator[None]:
        """Inside, the model drops at random whatever it drops in training; normalisations stay as they are.

        State that modules update in training, such as running statistics of their own, is restored at the end.
        """
        with frozen_model(self.module):
            for module in self.module.modules():
                module.training = not isinstance(module, _NormBase)
            yield

    def embed_views(self, graphs: Sequence[Data]) -> Sequence[Tensor]:
        """Z of several views of one graph; if operations are short, the views go through the model together."""
        self._caller()
        if self._may_stack(graphs) and self._stacks_views():
            self.stacked_views = True
            self._wiring.numbers_of_views.add(len(graphs))
            return self.embed_stacked(graphs)
        with sharing_gradients():
            return [self.embed(graph.x, graph.edge_index, graph.get("edge_weight")) for graph in graphs]

    def embed_stacked(self, graphs: Sequence[Data]) -> Sequence[Tensor]:
        """Z of several views as one graph of disjoint copies."""
        first, number = graphs[0], len(graphs)
        nodes = first.x.size(0)
        edge_index = Adjacency.of(first.edge_index, nodes).copies(first.edge_index, number)
        copies = Data(edge_index=edge_index)
        if self._data.get("edge_weight") is not None:
            copies.edge_weight = self._data.edge_weight.repeat(number)
        x, weight = stacked([graph.x for graph in graphs]), torch.cat([graph.edge_weight for graph in graphs])
        with self._given(copies, None if self._presence is None else self._presence.repeat(number)):
            return torch.split(self.embed(x, edge_index, weight), nodes)

    def _may_stack(self, graphs: Sequence[Data]) -> bool:
        """Whether they are small views of this graph with the same edge list."""
        first = graphs[0]
        limit = STACKED_ENTRIES.get(first.x.device.type, 0) if self._mode == "auto" else 0
        return (
            max(first.x.size(0), first.edge_index.size(1)) < limit
            and all(g.edge_index is first.edge_index and g.get("edge_weight") is not None for g in graphs)
            and first.edge_index.size(1) == self._data.edge_index.size(1)
        )

    def _stacks_views(self) -> bool:
        """Whether views that go through the model together have the embeddings they have alone, tried once."""
        known = self._wiring if self._wiring.stacks_views is not None else self._probe.findings
        if known.stacks_views is None:
            known.stacks_views = stacks_views(self, self._probe.data, self._seed)
        return known.stacks_views

    def predict(self, data: Data, *, weights_count: bool = False) -> Tensor:
        """Logits on a graph as it is, with its own weights.

        Args:
            data: The graph.
            weights_count: Whether its ``edge_weight`` counts for a model that does not read it, too.
        """
        with failures_named(self.module, data), self.on(data, weights_count=weights_count):
            return self(data.x, data.edge_index)

    @property
    def weighting(self) -> Weighting:
        """How edges get weights, one of the functions of :mod:`graphmend.model.edge_weights`."""
        self._caller()
        return self._probe.weighting()

    @property
    def takes_edge_weights(self) -> bool:
        """Whether edges can fade: weight 1 changes nothing, weight 0 equals the edge removed."""
        return self.weighting is not filtered

    @property
    def reads_weights(self) -> bool:
        """Whether the model itself reads a graph's ``edge_weight``, as the presence of each edge."""
        self._caller()
        return self._probe.reads_weights()

    @property
    def weights_count(self) -> bool:
        """Whether the graph has weights that count although the model does not read them, see :meth:`on`."""
        return self._presence is not None

    def require_edge_weights(self, remedy: str = "edge_steps=0 still works") -> None:
        """Raise :class:`~graphmend.errors.UnsupportedLayerError`, naming the layer, if edges cannot be learned."""
        if not self.takes_edge_weights:
            raise UnsupportedLayerError(self._probe.why_no_edge_weights(remedy))

    @property
    def width(self) -> int:
        """The widest hidden representation, as far as the shapes of the weights tell."""
        return max((min(weight.shape) for weight in self.module.parameters() if weight.dim() == 2), default=1)

    def abilities(self, surrogate: Any, key: Hashable) -> Abilities:
        """What is known about this model with a loss; whether features can be shared is tried on a few nodes."""
        self._caller()
        wiring = self._wiring if key in self._wiring.abilities else self._probe.findings
        known = wiring.abilities.setdefault(key, Abilities())
        if not known.is_sharing_tried:
            graphs = {id(graph): graph for graph in (self._probe.data, self._probe.whole)}.values()
            known.why_not_shared = why_not_shared(self, graphs, surrogate, self._seed)
            known.is_sharing_tried = True
        return known

    @contextmanager
    def on(self, data: Data, *, weights_count: bool = False) -> Iterator[None]:
        """Inside, the model is given the further attributes of another graph.

        Args:
            data: The graph.
            weights_count: Whether its ``edge_weight`` counts for a model that does not read it, too; otherwise such a
                model ignores it, as it does without us.
        """
        weight = data.get("edge_weight") if weights_count else None
        if weight is None or self.reads_weights:
            with self._given(data, None):
                yield
            return
        bare = copy.copy(data)
        del bare.edge_weight
        with self._given(bare, weight):
            yield

    @contextmanager
    def _given(self, data: Data, presence: Tensor | None) -> Iterator[None]:
        own = self._data, self._presence
        self._data, self._presence = data, presence
        try:
            yield
        finally:
            self._data, self._presence = own

    def prepare(self, edge_index: Tensor) -> None:
        """Compute in advance what cannot be computed inside a recording."""
        adjacency = Adjacency.of(edge_index, self._data.x.size(0))
        _ = adjacency.inverse_perm
        for number in self._wiring.numbers_of_views:
            _ = Adjacency.of(adjacency.copies(edge_index, number), number * adjacency.num_nodes).inverse_perm

    def _caller(self) -> Caller:
        require(self._stack is not None, "a FrozenGNN is used inside its with block")
        here = self._thread == threading.get_ident()
        require(here, "a FrozenGNN is used by the thread that opened its with block; open another one in this thread")
        return self._forward

    def _ready(self, caller: Caller, x: Tensor, edge_index: Tensor, presence: Tensor | None) -> Callable[[], Any]:
        """A run of the model, or of another function of it, for which all trials have been made."""
        data = with_more_edges(self._data, edge_index)
        shares = isinstance(x, SharedFeatures) and self._probe.takes_shared_features()
        data.x = x if shares else as_tensor(x)
        graph, weight = fresh(data, self._wiring.written or ()), self._with_own_presence(presence, edge_index.size(1))
        weighting = self._probe.weighting()
        if weight is None and self.sharding.streams(data, x):
            data.register()
            weight = torch.ones(1, dtype=x.dtype).expand(edge_index.size(1))
        elif weight is None:
            if weighting not in (patched, patched_plainly):
                return lambda: caller(graph)
            weight = _presence_of_all(edge_index, x)  # for the engine's own sums
        return lambda: weighting(self.module, caller, graph, weight)

    def _with_own_presence(self, presence: Tensor | None, edges: int) -> Tensor | None:
        if self._presence is None:
            return presence
        own = self._presence
        own = torch.cat([own, own.new_ones(edges - own.numel())]) if edges > own.numel() else own
        return own if presence is None else own.to(presence.dtype) * presence

    def _scores(self, out: Any) -> Tensor:
        return scores_of(out, self._data.x.size(0), number_of_graphs(self._data))


def _presence_of_all(edge_index: Tensor, x: Tensor) -> Tensor:
    """A weight of 1 for each edge, the same tensor in every run, so that its consequences are computed once."""

    def ones() -> Tensor:
        return torch.ones(edge_index.size(1), dtype=x.dtype, device=x.device)

    if x.is_cuda and torch.cuda.is_current_stream_capturing():  # a recording overwrites what it has computed
        return ones()
    return cached(("all present", x.dtype), (edge_index,), ones)


def _alone(
    model: nn.Module, name: str, weights_count: bool, wiring: Wiring, settings: dict[str, Any], data: Data
) -> tuple[Tensor, ...]:
    """What a model gives for the graph of a shard, in a process that knows nothing but this."""
    own = FrozenGNN(model, data, **settings)
    own._given_wiring = wiring
    with own as frozen, torch.no_grad():
        return frozen._shown(name, weights_count, data)
