"""GTrans: test-time graph transformation, Algorithm 1 of the paper."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.adapters.base import Adapter
from graphmend.adapters.case import Case
from graphmend.adapters.gtrans_shards import propose_in_shards, runs_in_shards
from graphmend.adapters.selection import LabelSelection
from graphmend.contracts import Backbone
from graphmend.engine.columns import column_deviations
from graphmend.engine.engine import Engine
from graphmend.engine.optimizers import EDGE_UPDATES, EdgeStep, FeatureStep
from graphmend.engine.report import NoEdgeGradient, Stopped
from graphmend.errors import UnsupportedLayerError, among, read_fields, require, within
from graphmend.graph.budget import check_budget, project
from graphmend.graph.checks import is_finite
from graphmend.graph.edge_flips import CANDIDATES, DIRECTED, SPACES, EdgeFlips
from graphmend.graph.limits import Limits
from graphmend.graph.relaxed import RelaxedGraph
from graphmend.results.history import History
from graphmend.results.proposal import Proposal
from graphmend.surrogates import Contrastive, Surrogate, surrogate_of

__all__ = ["GTrans"]

_LOG = logging.getLogger(__name__)
ROUNDING = 1e-6  # of the loss
FEATURE_SCALES = ("relative", "absolute")


@dataclass(frozen=True)
class GTrans(Adapter):
    r"""Mend the graph, keep the model (Jin et al., ICLR 2023, https://openreview.net/forum?id=Lnxl5pr018).

    .. math:: \min_{\Delta_A, \Delta_X} \mathcal L_s\left(f_\theta(A \oplus \Delta_A, X + \Delta_X)\right)
              \quad \text{s.t.} \quad \sum \Delta_A \le B

    Steps alternate: ``feature_steps`` on :math:`\Delta_X` (Adam), then ``edge_steps`` on the relaxed flips :math:`p \in
    [0, 1]` (projected onto the budget), until ``steps`` are done. Then discrete graphs are drawn and scored, all under
    the same views, and the one with the lowest loss is kept.

    Feature steps are relative: the variable is V in :math:`\Delta_X = V \operatorname{diag}(s)`, with :math:`s_j` the
    standard deviation of column j of the given graph, so one step moves an entry by about ``lr_feature`` deviations:

    .. math:: x'_{ij} \leftarrow x'_{ij} - \eta \, s_j \, \hat m_{ij} / \left(\sqrt{\hat v_{ij}} + \epsilon\right)

    with Adam's moments :math:`\hat m, \hat v` of :math:`s_j \, \partial \mathcal L_s / \partial x'_{ij}`. So the units
    of the features do not matter: if a column is multiplied by c, and its weights in the first layer are divided by c,
    predictions stay the same. A column that is constant in the graph stays constant. The paper's steps are absolute,
    :math:`s_j = 1`.

    Args:
        surrogate: A :class:`~graphmend.surrogates.Surrogate`, the name of one, or a function ``(model, data) -> loss``.
        steps: How many steps.
        feature_steps: Feature steps per cycle; 0 leaves the features alone.
        edge_steps: Edge steps per cycle; 0 leaves the edges alone. If a layer cannot take edge weights, only the
            features are mended, and ``result.engine.reasons["edges"]`` says why; with ``feature_steps=0`` that is an
            error.
        lr_feature: How far a feature step goes, in standard deviations of the column or, with
            ``feature_scale="absolute"``, in the features' own units.
        feature_scale: ``"relative"``, or ``"absolute"`` for the paper's steps.
        lr_edge: Learning rate of the flips.
        budget: How many edges may flip: a fraction of them (float) or a number (int). Undirected edges count once.
        num_samples: K, how many discrete graphs to draw, besides the one with the largest p and the one without flips.
        candidates: ``"sound"``, or ``"paper"``: no graph without flips among the discrete ones, samples beyond the
            budget rejected instead of trimmed, and the result returned even if its loss is higher than at the start.
        edge_update: ``"adam"`` (one persistent Adam), ``"sign"`` (the released code: a fresh Adam at every step, in
            effect a signed step) or ``"gradient"`` (plain projected gradient descent).
        space: ``"existing"`` edges can be removed; with ``"random_block"`` sampled pairs can be added as well.
        block_size: Number of sampled pairs.
        directed: On directed graphs ``"delete"`` edges, or ``"reverse"`` them as the released code does.
        embedding: Name of the module whose output is Z, see :class:`~graphmend.FrozenGNN`.
        time_limit: Seconds after which no further step is started.
        validation: Nodes by whose labels the best iterate and the best discrete graph are chosen, as the released code
            does under abnormal features and attack; without them the last iterate and the lowest loss count.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from graphmend import GTrans
        >>> from graphmend.lab.backbones import GCN
        >>> data = Data(x=torch.rand(4, 3), edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]))
        >>> GTrans(steps=5, budget=1)(GCN(3, 8, 2), data).logits.shape
        torch.Size([4, 2])
    """

    uses_card = False
    remedy: ClassVar[str] = "take a smaller lr_feature"  # if numbers become too large for their type

    surrogate: Surrogate | str | Callable[[Backbone, Data], Tensor] = field(default_factory=Contrastive)
    _: KW_ONLY
    steps: int = 10
    feature_steps: int = 4
    edge_steps: int = 1
    lr_feature: Annotated[float, within(above=0)] = 1e-3
    feature_scale: Annotated[str, among(FEATURE_SCALES)] = "relative"
    lr_edge: Annotated[float, within(above=0)] = 0.1
    budget: float | int = 0.05
    num_samples: int = 5
    candidates: Annotated[str, among(CANDIDATES)] = "sound"
    edge_update: Annotated[str, among(EDGE_UPDATES)] = "adam"
    space: Annotated[str, among(SPACES)] = "existing"
    block_size: int = 10_000
    directed: Annotated[str, among(DIRECTED)] = "delete"
    embedding: str | None = None
    time_limit: Annotated[float | None, within(above=0, hint="None is no limit")] = None
    validation: Tensor | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "surrogate", surrogate_of(self.surrogate))
        read_fields(self)
        some = self.steps == 0 or self.feature_steps + self.edge_steps > 0
        require(some, "feature_steps and edge_steps are both 0: there is nothing to learn; set one of them")
        object.__setattr__(self, "budget", check_budget(self.budget))

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks of the loss; choosing by labels needs classes of nodes."""
        return surrogate_of(self.surrogate).tasks if self.validation is None else ("classes",)

    def propose(self, case: Case) -> Proposal:
        """Algorithm 1 of the paper; only for the features if edges cannot be learned with this model or loss."""
        try:
            return self._propose(case)
        except (NoEdgeGradient, UnsupportedLayerError) as error:
            if self.edge_steps == 0 or self.feature_steps == 0:
                raise
            why = f"for the edges {error}" if isinstance(error, NoEdgeGradient) else str(error)
            return self._features_only(case, why)

    def _propose(self, case: Case) -> Proposal:
        if runs_in_shards(case):
            return propose_in_shards(self, case)
        history, limits, original = case.history, case.limits, case.data.x
        graph = case.relaxed(self._flips(case))  # lines 1-3: X' = X and p = 0
        cycle: list[FeatureStep | EdgeStep] = []  # lines 6-8 for the features, lines 9-12 for the edges
        if self.feature_steps > 0:
            cycle += self.feature_steps * [self._feature_step(case, graph)]
        if graph.flips is not None:
            cycle += self.edge_steps * [self._edge_step(graph.flips)]
        labels = None if self.validation is None else LabelSelection(case, graph, self.validation, self)
        with case.engine(surrogate_of(self.surrogate), graph) as engine:
            for t in history.steps(self.steps, self.time_limit):  # line 4
                step = cycle[t % len(cycle)]
                history.add(t, step.kind, engine.descend(step))
                if labels is not None:
                    labels.note_iterate()
            if labels is not None:
                labels.restore()
                engine.features_changed()
            if history.read() and self.feature_steps > 0 and limits.finish(graph.x, original):
                engine.features_changed()
            draws = torch.Generator(device=graph.x.device)
            draws.set_state(case.generator.get_state())
            for name, flips in graph.candidates(self.num_samples, draws, self.candidates):  # lines 14-18
                history.add_candidate(name, flips, engine.loss(flips))
                if labels is not None:
                    labels.note_discrete(flips)
            best = history.best() if labels is None else labels.flips  # lines 19-21
            may_stay = self.candidates == "sound" and labels is None
            if may_stay and self.feature_steps > 0 and _is_within(limits, original):
                _require_lower_loss(engine, history, best, original)
            removed, added = graph.changes(best)
            logits = engine.predict(best)
            sentence = f"the loss is the lowest with {removed.numel()} edge entries removed and {added.size(1)} added"
            return Proposal(graph.x, removed, added, logits=logits, sentence=sentence, engine=engine.report())

    def _features_only(self, case: Case, why: str) -> Proposal:
        _LOG.warning("mending features only: %s", why)
        generator, history = torch.Generator(device=case.data.x.device).manual_seed(case.seed), case.history.part()
        try:
            proposal = replace(self, edge_steps=0)._propose(replace(case, generator=generator, history=history))
        finally:
            case.history.include(history)
        reasons = {**proposal.engine.reasons, "edges": f"features only: {why}"}
        return replace(proposal, engine=replace(proposal.engine, reasons=reasons))

    def _flips(self, case: Case) -> EdgeFlips | None:
        if self.edge_steps == 0:
            return None
        case.require_frozen().require_edge_weights()
        return EdgeFlips.of(
            case.data.edge_index,
            case.data.x.size(0),
            budget=self.budget,
            space=self.space,
            block_size=self.block_size,
            directed=self.directed,
            frozen=case.limits.frozen_edges,
            dtype=case.data.x.dtype,
            generator=case.generator,
        )

    def _feature_step(self, case: Case, graph: RelaxedGraph) -> FeatureStep:
        original = case.data.x
        scale = column_deviations(original) if self.feature_scale == "relative" else None
        return FeatureStep(graph.x, self.lr_feature, case.limits.projection(original), scale)

    def _edge_step(self, flips: EdgeFlips) -> EdgeStep:
        update = EDGE_UPDATES[self.edge_update](flips.p, self.lr_edge)
        return EdgeStep(flips.p, update, lambda p: project(p, flips.budget))


def _is_within(limits: Limits, original: Tensor) -> bool:
    """Whether the features may stay as they are; if not, the graph must change, even at a cost."""
    if limits.projection(original) is None:
        return True
    bounded = original.clone()
    limits.project(bounded, original)
    limits.finish(bounded, original)
    return torch.equal(bounded, original)


def _require_lower_loss(engine: Engine, history: History, best: Tensor | None, original: Tensor) -> None:
    """Raise :class:`Stopped` if the loss is higher on the mended graph than on the graph as it was.

    Both are compared under the same views, but only if the losses that are already known leave room for doubt: those of
    the steps, the first of which belongs to the graph as it was, and that of the chosen discrete graph.
    """
    losses = [step.loss for step in history.read()]
    scores = [candidate.loss for candidate in history.candidates() if math.isfinite(candidate.loss)]
    last = min(scores) if scores else losses[-1] if len(losses) > 1 else math.inf
    if (
        not losses or last <= losses[0] or not is_finite(engine.graph.x)
    ):  # anything that is not finite is refused anyway
        return
    mended = last if scores else float(engine.loss(best))
    if mended <= losses[0]:
        return
    before = float(engine.loss_before(original))
    if not math.isfinite(mended):
        raise Stopped("the surrogate loss of the mended graph is not finite; take a smaller lr_feature")
    if mended > before + ROUNDING * max(1.0, abs(before)):
        raise Stopped(
            f"the mended graph is worse by the surrogate loss itself, {mended:.4g} instead of {before:.4g}; "
            "take a smaller lr_feature"
        )
