r"""GTrans on a graph in shards: Algorithm 1 for graphs that do not fit into memory.

The loss is a mean over nodes. Each shard computes the part of the nodes that it owns, on the graph of these nodes and
their halo: :math:`\mathcal L = \sum_s \tfrac{n_s}{N} \mathcal L_s`. Its views (dropped edges, shuffled features) are
drawn within the shard and its halo; this is the only difference from the whole graph. The gradients for the features
and edges of a shard are added to those of their owners, so a step follows the gradient of the whole loss; the budget
holds for all shards together (:class:`~graphmend.graph.shard_flips.ShardFlips`), and discrete graphs are scored by the
sum of all shards under the same views.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.adapters.case import Case
from graphmend.contracts import Backbone
from graphmend.engine.columns import column_deviations
from graphmend.engine.linear_maps import RowGradient
from graphmend.engine.optimizers import EDGE_UPDATES, FeatureStep
from graphmend.engine.report import Measured, Stopped
from graphmend.errors import require
from graphmend.graph.edits import with_edge_changes
from graphmend.graph.mapped import MappedGraph, on_disk
from graphmend.graph.shard_flips import ShardFlips
from graphmend.graph.shards import cut
from graphmend.model import FrozenGNN
from graphmend.results.proposal import Proposal
from graphmend.scratch import large_empty
from graphmend.surrogates import Contrastive, Entropy, Surrogate, surrogate_of

if TYPE_CHECKING:
    from graphmend.adapters.gtrans import GTrans

__all__ = ["propose_in_shards", "runs_in_shards"]

VIEWS = 9  # representations of a node that a loss keeps: of three views, forwards, backwards and in between


def runs_in_shards(case: Case) -> bool:
    """Whether a graph is mapped and too large to be adapted at once, or was opened in shards."""
    data = case.data
    if not isinstance(data, MappedGraph) or data.offsets() is None or data.shards == 1:
        return False
    return data.shards is not None or case.require_frozen().sharding.is_large(data, VIEWS)


def propose_in_shards(gtrans: GTrans, case: Case) -> Proposal:
    """Algorithm 1, one shard after the other."""
    graph, surrogate = case.data, surrogate_of(gtrans.surrogate)
    assert isinstance(graph, MappedGraph)
    _require_possible(gtrans, surrogate)
    with on_disk(graph):
        frozen = case.require_frozen()
        learns_edges = gtrans.edge_steps > 0
        if learns_edges:
            frozen.require_edge_weights()
        flips = ShardFlips(graph, gtrans.budget, case.limits.frozen_edges) if learns_edges else None
        return _Run(gtrans, case, graph, surrogate, flips).proposal()


def _require_possible(gtrans: GTrans, surrogate: Surrogate) -> None:
    """Raise unless everything that was asked for works in shards."""
    remedy = "or open the graph with shards=1, on a machine that holds it"
    require(
        isinstance(surrogate, Contrastive | Entropy) and getattr(surrogate, "nodes", None) is None,
        f"a graph in shards is mended by Contrastive() or Entropy(), which need no other shard (got "
        f"{type(surrogate).__name__}); use one of them, {remedy}",
    )
    require(gtrans.space == "existing", f"in shards no edges are added; use space='existing', {remedy}")
    require(gtrans.directed == "delete", f"in shards no edges are reversed; use directed='delete', {remedy}")
    require(gtrans.validation is None, f"in shards nothing is chosen by labels; leave validation out, {remedy}")


class _Owned:
    """A frozen model that shows the embeddings of the nodes that a shard owns.

    Args:
        frozen: The model.
        owned: How many nodes that is; they come first.
    """

    def __init__(self, frozen: FrozenGNN, owned: int) -> None:
        self.frozen, self.owned = frozen, owned

    def __call__(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The output."""
        return self.frozen(x, edge_index, edge_weight)[: self.owned]

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The embedding."""
        return self.frozen.embed(x, edge_index, edge_weight)[: self.owned]

    def embed_views(self, graphs: Sequence[Data]) -> Sequence[Tensor]:
        """Those of several views."""
        return [z[: self.owned] for z in self.frozen.embed_views(graphs)]


@dataclass(frozen=True)
class _Part:
    """What a shard adds: its terms of the loss, and a gradient for the features of its nodes or for its edges."""

    terms: dict[str, float]
    at: Tensor
    gradient: Tensor | None


class _Run:
    """One run of Algorithm 1.

    Args:
        gtrans: The adapter.
        case: The case.
        graph: Its graph.
        surrogate: The loss.
        flips: The edge variables, if edges are learned.
    """

    def __init__(
        self, gtrans: GTrans, case: Case, graph: MappedGraph, surrogate: Surrogate, flips: ShardFlips | None
    ) -> None:
        self.gtrans, self.case, self.graph, self.flips = gtrans, case, graph, flips
        self.frozen = case.require_frozen()
        self.surrogate = surrogate.prepare(self.frozen, graph, case.seed)
        self.ranges, self.hops = self.frozen.sharding.shards_for_gradients(graph, VIEWS)
        self.x = large_empty(tuple(graph.x.shape), graph.x).copy_(graph.x)
        nodes = graph.x.size(0)
        self.shares = [(end - start) / nodes for start, end in self.ranges]

    def proposal(self) -> Proposal:
        """Steps, then the discrete graphs, then the best of them."""
        gtrans, case, history, original = self.gtrans, self.case, self.case.history, self.graph.x
        cycle: list[Any] = []
        if gtrans.feature_steps > 0:
            scale = column_deviations(original) if gtrans.feature_scale == "relative" else None
            feature = FeatureStep(self.x, gtrans.lr_feature, case.limits.projection(original), scale)
            cycle += gtrans.feature_steps * [lambda t: self._feature_step(t, feature)]
        if self.flips is not None:
            update = EDGE_UPDATES[gtrans.edge_update](self.flips.p, gtrans.lr_edge)
            cycle += gtrans.edge_steps * [lambda t: self._edge_step(t, update)]
        for t in history.steps(gtrans.steps, gtrans.time_limit):
            history.add(t, *cycle[t % len(cycle)](t))
        history.read()
        if gtrans.feature_steps > 0:
            case.limits.finish(self.x, original)
        draws = torch.Generator().manual_seed(case.seed)
        if self.flips is not None:
            for name, chosen in self.flips.discrete(gtrans.num_samples, draws, gtrans.candidates):
                history.add_candidate(name, chosen, torch.tensor(self._loss(self.x, chosen)))
        best = history.best()
        if gtrans.candidates == "sound":
            self._require_lower_loss(best)
        removed = original.new_empty(0, dtype=torch.long)
        if self.flips is not None and best is not None:
            removed = self.flips.removed(best)
        sentence = f"the loss is the lowest with {removed.numel()} edge entries removed, in {len(self.ranges)} shards"
        return Proposal(self.x, removed, logits=self._logits(removed), sentence=sentence)

    def _logits(self, removed: Tensor) -> Tensor:
        data = self.graph
        if removed.numel():
            none = {name: value[:0] for name, value in self._edge_attributes().items()}
            data = with_edge_changes(data, removed, none)
        data = copy.copy(data)
        data.x = self.x
        return self.frozen.predict(data)

    def _edge_attributes(self) -> dict[str, Tensor]:
        from graphmend.graph.edits import edge_attributes

        return edge_attributes(self.graph)

    def _feature_step(self, t: int, step: FeatureStep) -> tuple[str, Measured]:
        gradient = large_empty(tuple(self.x.shape), self.x).zero_()
        terms: dict[str, float] = {}
        for share, part in self._parts(f"step {t}", self.x, wanted="x"):
            _add(terms, part, share)
            assert part.gradient is not None
            gradient.index_add_(0, part.at, part.gradient.mul_(share))
        norm = step.take(RowGradient(gradient, None, None))
        return "feature", self._measured(terms, norm)

    def _edge_step(self, t: int, update: Any) -> tuple[str, Measured]:
        assert self.flips is not None
        gradient = large_empty((self.flips.edges,), self.x).zero_()
        terms: dict[str, float] = {}
        for share, part in self._parts(f"step {t}", self.x, wanted="p"):
            _add(terms, part, share)
            assert part.gradient is not None
            self.flips.add_gradient(gradient, part.at, part.gradient.mul_(share))
        update(gradient)
        self.flips.project_()
        return "edge", self._measured(terms, gradient.norm())

    def _measured(self, terms: dict[str, float], norm: Tensor) -> Measured:
        flipped = 0.0 if self.flips is None else float(self.flips.p.sum(dtype=torch.float64))
        return Measured(tuple(terms), torch.tensor([*terms.values(), float(norm), flipped], dtype=torch.float64))

    @torch.no_grad()
    def _loss(self, x: Tensor, flips: Tensor | None) -> float:
        """The loss of a discrete graph, under the same views for all."""
        terms: dict[str, float] = {}
        for share, part in self._parts("score", x, flips=flips):
            _add(terms, part, share)
        return sum(terms.values())

    def _require_lower_loss(self, best: Tensor | None) -> None:
        none = None if self.flips is None else torch.zeros_like(self.flips.p, dtype=torch.bool)
        before, mended = self._loss(self.graph.x, none), self._loss(self.x, none if best is None else best)
        if mended > before + 1e-6 * max(1.0, abs(before)):
            raise Stopped(
                f"the mended graph is worse by the surrogate loss itself, {mended:.4g} instead of {before:.4g}; "
                "take a smaller lr_feature"
            )

    def _parts(self, name: str, x: Tensor, *, wanted: str = "", flips: Tensor | None = None) -> Any:
        """The part of every shard, with its share of the nodes."""
        own = copy.copy(self.graph)
        own.x = torch.arange(x.size(0)).unsqueeze(1)
        own["graphmend_edge"] = torch.arange(self.graph.edge_index.size(1))
        offsets = self.graph.offsets()
        assert offsets is not None
        for number, shard in enumerate(cut(own, offsets, self.ranges, self.hops)):
            seed = hash((self.case.seed, number, *name.encode())) % 2**63
            generator = torch.Generator().manual_seed(seed)
            part = self._part(shard.data, shard.owned, x, wanted, flips, generator)
            yield self.shares[number], part

    def _part(
        self, data: Data, owned: int, x: Tensor, wanted: str, flips: Tensor | None, generator: torch.Generator
    ) -> _Part:
        inside, edges = data.x.view(-1), data.graphmend_edge
        del data.graphmend_edge
        data.x = x[inside].requires_grad_(wanted == "x")
        weight = self._presence(edges, flips).requires_grad_(wanted == "p")
        model: Backbone = _Owned(self.frozen, owned)
        with self.frozen.on(data), torch.set_grad_enabled(bool(wanted)):
            graph = copy.copy(data)
            graph.edge_weight = weight
            try:
                found = self.surrogate.terms(model, graph, generator)
            except Stopped:
                raise
            terms = {name: float(value.detach()) for name, value in found.items()}
            if not wanted:
                return _Part(terms, inside, None)
            variable = data.x if wanted == "x" else weight
            total = torch.stack(list(found.values())).sum()
            gradient = torch.autograd.grad(total, variable, allow_unused=True)[0]
        gradient = torch.zeros_like(variable) if gradient is None else gradient
        return _Part(terms, inside if wanted == "x" else edges, gradient)

    def _presence(self, edges: Tensor, flips: Tensor | None) -> Tensor:
        if self.flips is None:
            return self.x.new_ones(edges.numel())
        return self.flips.presence(edges, flips)


def _add(terms: dict[str, float], part: _Part, share: float) -> None:
    for name, value in part.terms.items():
        terms[name] = terms.get(name, 0.0) + share * value
