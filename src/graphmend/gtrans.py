"""GTrans: test-time graph transformation, Algorithm 1 of the paper."""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.adaptation import Adaptation, Candidate, Step, unchanged
from graphmend.checks import check_graph
from graphmend.edges import DIRECTED, SPACES, EdgeFlips, check_budget
from graphmend.errors import GraphMendError, listed, require
from graphmend.frozen import FrozenGNN
from graphmend.frozen.state import plain
from graphmend.limits import Limits
from graphmend.memory import check_memory
from graphmend.patch import Patch
from graphmend.progress import track
from graphmend.rows import Rows
from graphmend.surrogates import Backbone, Contrastive, Surrogate, surrogate_of
from graphmend.updates import EDGE_UPDATES

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class GTrans:
    r"""Mend the graph, keep the model (Jin et al., ICLR 2023, https://openreview.net/forum?id=Lnxl5pr018).

    .. math:: \min_{\Delta_A, \Delta_X} \mathcal L_s\left(f_\theta(A \oplus \Delta_A, X + \Delta_X)\right)
              \quad \text{s.t.} \quad \textstyle\sum \Delta_A \le B

    Steps alternate: ``feature_steps`` on :math:`\Delta_X` (Adam), then ``edge_steps`` on the relaxed flips
    :math:`p \in [0, 1]` (projected onto the budget), until ``steps`` are done. Then discrete graphs are drawn, and the
    one with the lowest loss, all scored under the same views, is kept.

    Args:
        surrogate: A :class:`~graphmend.surrogates.Surrogate`, the name of one, or a function ``(model, data) -> loss``.
        steps: T, the number of steps in all.
        feature_steps: Feature steps per cycle; 0 leaves the features alone.
        edge_steps: Edge steps per cycle; 0 leaves the edges alone.
        lr_feature: Learning rate of the features.
        lr_edge: Learning rate of the flips.
        budget: How many edges may flip: a fraction of them (float) or a number (int). Undirected edges count once.
        num_samples: K, how many discrete graphs to draw besides the top-budget one and the unflipped one.
        edge_update: ``"adam"`` (one persistent Adam), ``"sign"`` (the released code: a fresh Adam at every step, in
            effect a signed step) or ``"gradient"`` (plain projected gradient descent).
        space: ``"existing"`` edges can be removed; with ``"random_block"`` sampled pairs can be added as well.
        block_size: Number of sampled pairs.
        directed: On directed graphs ``"delete"`` edges, or ``"reverse"`` them as the released code does.
        embedding: Name of the module whose output is Z, see :class:`~graphmend.FrozenGNN`.
        time_limit: Seconds after which no further step is begun.

    Example:
        >>> from graphmend.nn import GCN
        >>> data = Data(x=torch.rand(4, 3), edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]))
        >>> GTrans(steps=5, budget=1)(GCN(3, 8, 2), data).logits.shape
        torch.Size([4, 2])
    """

    surrogate: Surrogate | str | Callable[[Backbone, Data], Tensor] = field(default_factory=Contrastive)
    _: KW_ONLY
    steps: int = 10
    feature_steps: int = 4
    edge_steps: int = 1
    lr_feature: float = 1e-3
    lr_edge: float = 0.1
    budget: float | int = 0.05
    num_samples: int = 5
    edge_update: str = "adam"
    space: str = "existing"
    block_size: int = 10_000
    directed: str = "delete"
    embedding: str | None = None
    time_limit: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "surrogate", surrogate_of(self.surrogate))
        for name in ("steps", "feature_steps", "edge_steps", "num_samples", "block_size"):
            value = getattr(self, name)
            require(isinstance(value, int) and value >= 0, f"{name} must be a whole number >= 0 (got {value!r})")
        some = self.steps == 0 or self.feature_steps + self.edge_steps > 0
        require(some, "feature_steps and edge_steps are both 0: there is nothing to learn; set one of them")
        for name in ("lr_feature", "lr_edge"):
            value = getattr(self, name)
            positive = isinstance(value, (int, float)) and math.isfinite(value) and value > 0
            require(positive, f"{name} must be positive and finite (got {value!r})")
        check_budget(self.budget)
        for name, choices in (("edge_update", EDGE_UPDATES), ("space", SPACES), ("directed", DIRECTED)):
            value = getattr(self, name)
            require(value in choices, f"unknown {name} {value!r}; choose one of {listed(choices)}")
        limit = self.time_limit
        positive = limit is None or (isinstance(limit, (int, float)) and limit > 0)
        require(positive, f"time_limit must be a positive number of seconds (got {limit!r})")

    def __call__(
        self,
        model: nn.Module,
        data: Data,
        *,
        limits: Limits | None = None,
        seed: int = 0,
        progress: bool = False,
        callback: Callable[[Step], None] | None = None,
    ) -> Adaptation:
        """Mend ``data`` for ``model``; both, and all random number generators, are left as they were.

        Args:
            model: A trained model, any PyG module.
            data: The test graph. Labels are read only by a surrogate that was given a label mask.
            limits: What may not change.
            seed: Seed of everything random.
            progress: Show a progress bar.
            callback: Called after every step.

        Returns:
            The mended graph with its logits, history and reversible patch. If the surrogate fails or a loss or gradient
            is not finite, the graph is returned unchanged with the reason.
        """
        check_graph(data)
        limits = Limits() if limits is None else limits
        require(isinstance(limits, Limits), f"limits must be a graphmend.Limits (got {type(limits).__name__})")
        limits.check(data)
        whole = isinstance(seed, int) and 0 <= seed < 2**63
        require(whole, f"seed must be a whole number from 0 to 2**63 - 1 (got {seed!r})")
        data = plain(data)
        with FrozenGNN(model, data, embedding=self.embedding, seed=seed) as frozen:
            check_memory(data.x, data.edge_index.size(1), _width(model))
            if self.embedding is not None:
                with torch.no_grad():  # is there such a module?
                    frozen.embed(data.x, data.edge_index)
            if self.edge_steps > 0:
                frozen.require_edge_weights()
            return _Run(self, frozen, data, limits, seed, callback).adapt(progress)


class _Stopped(Exception):
    """The surrogate cannot be followed any further."""


class _Run:
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
        self.callback = callback
        self.surrogate = surrogate_of(settings.surrogate)
        self.generator = torch.Generator(device=data.x.device).manual_seed(seed)
        self.x = data.x.detach().clone()  # X' = X + dX, a leaf
        self.flips = self._edge_flips() if settings.edge_steps > 0 else None
        self.rows = Rows.of(self.x)  # the same with its linear maps, made anew whenever X' changes
        fast = self.flips is None and frozen.is_faster_with_weights()
        self.ones = self.x.new_ones(data.edge_index.size(1)) if fast else None
        self.history: list[Step] = []
        self.candidates: list[Candidate] = []

    def adapt(self, progress: bool) -> Adaptation:
        start = time.perf_counter()
        try:
            with closing(track(range(self.settings.steps), "mending", progress)) as steps:
                self._learn(steps, start)
            removed, added = self._discretise()
            patch, mended = Patch.make(self.data, self.x, removed, added)
            logits = self._predict(mended)
        except _Stopped as stopped:
            _LOG.warning("the graph is left as it was: %s", stopped)
            return unchanged(
                self.frozen,
                self.data,
                history=self.history,
                candidates=self.candidates,
                reason=str(stopped),
                seconds=time.perf_counter() - start,
            )
        return Adaptation(
            self.frozen.model,
            mended,
            logits,
            patch,
            self.history,
            self.candidates,
            seconds=time.perf_counter() - start,
        )

    def _learn(self, steps: Iterable[int], start: float) -> None:
        """Lines 4 to 13 of Algorithm 1."""
        s = self.settings
        update_x = torch.optim.Adam([self.x], lr=s.lr_feature, fused=_has_fused(self.x))
        update_p = EDGE_UPDATES[s.edge_update](self.flips.p, s.lr_edge) if self.flips is not None else None
        for t in steps:
            if s.time_limit is not None and time.perf_counter() - start > s.time_limit:
                _LOG.info("stopped after %d of %d steps: time_limit is %s s", t, s.steps, s.time_limit)
                break
            if t % (s.feature_steps + s.edge_steps) < s.feature_steps:
                terms, norm = self._differentiate(self.x)
                update_x.step()
                with torch.no_grad():
                    self.limits.project(self.x, self.data.x)
                self.rows = Rows.of(self.x)
                kind = "feature"
            else:
                assert self.flips is not None and update_p is not None
                terms, norm = self._differentiate(self.flips.p)
                update_p.step()
                self.flips.step_back()
                kind = "edge"
            self._record(t, kind, terms, norm, time.perf_counter() - start)

    def _differentiate(self, variable: Tensor) -> tuple[dict[str, float], float]:
        """The loss on the current graph, and its gradient in ``variable.grad``."""
        variable.requires_grad_(True)
        if variable is self.x:
            self.rows = Rows.of(self.x)
        try:
            presence = self.ones if self.flips is None else self.flips.presence()
            terms = self._terms(self._graph(presence), self.generator)
            gradient = self._gradient(torch.stack(list(terms.values())).sum(), variable)
        finally:
            variable.requires_grad_(False)
        variable.grad = torch.zeros_like(variable) if gradient is None else gradient
        norm = float(torch.linalg.vector_norm(variable.grad))
        values = {name: float(value.detach()) for name, value in terms.items()}
        if not all(map(math.isfinite, values.values())):
            raise _Stopped(f"the surrogate loss is not finite ({values}) at step {len(self.history)}")
        if not math.isfinite(norm):
            raise _Stopped(f"the gradient is not finite at step {len(self.history)}")
        return values, norm

    def _gradient(self, loss: Tensor, variable: Tensor) -> Tensor | None:
        if variable.numel() == 0:  # no edge may change
            return None
        if not loss.requires_grad:
            what = "features; set feature_steps=0" if variable is self.x else "edges; set edge_steps=0"
            raise _Stopped(f"the surrogate loss does not depend on the graph's {what}")
        try:
            return torch.autograd.grad(loss, variable, allow_unused=True)[0]
        except Exception as error:
            raise _Stopped(f"the surrogate has no gradient: {type(error).__name__}: {error}") from error

    def _discretise(self) -> tuple[Tensor, Tensor]:
        """Lines 14 to 21 of Algorithm 1: among discrete graphs within budget, the one with the lowest loss."""
        if any(step.kind == "feature" for step in self.history):
            self.limits.finish(self.x, self.data.x)
            self.rows = Rows.of(self.x)
        if not bool(torch.isfinite(self.x).all()):
            raise _Stopped("the mended features are not finite; take a smaller lr_feature")
        none = self.data.edge_index[:, :0]
        if self.flips is None:
            return none[0], none
        best, best_loss = None, math.inf
        with torch.no_grad():
            for name, flips in self.flips.discrete(self.settings.num_samples, self.generator):
                presence = self.flips.presence(flips.to(self.x.dtype))
                views = torch.Generator(device=self.x.device).manual_seed(self.seed)  # the same views for all
                loss = float(torch.stack(list(self._terms(self._graph(presence), views).values())).sum())
                self.candidates.append(Candidate(name, loss, int(flips.sum())))
                if math.isfinite(loss) and loss < best_loss:
                    best, best_loss = flips, loss
        if best is None:
            raise _Stopped("the surrogate loss of every discrete graph is not finite")
        return self.flips.changes(best)

    def _terms(self, graph: Data, generator: torch.Generator) -> dict[str, Tensor]:
        try:
            terms = self.surrogate.terms(self.frozen, graph, generator)
            require(len(terms) > 0, "the surrogate has no terms; return at least one")
            return {name: torch.as_tensor(value, device=graph.x.device).reshape(()) for name, value in terms.items()}
        except GraphMendError:
            raise
        except Exception as error:
            raise _Stopped(f"the surrogate failed with {type(error).__name__}: {error}") from error

    @torch.no_grad()
    def _predict(self, mended: Data) -> Tensor:
        logits = self.frozen.predict(mended)
        finite = logits.isfinite()
        if not bool(finite.all()) and not torch.equal(finite, self.frozen.predict(self.data).isfinite()):
            raise _Stopped("the model's output on the mended graph is not finite; take a smaller lr_feature")
        return logits

    def _graph(self, presence: Tensor | None) -> Data:
        graph = copy.copy(self.data)
        graph.x = self.rows
        graph.edge_index = self.data.edge_index if self.flips is None else self.flips.edge_index
        graph.edge_weight = presence
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

    def _record(self, index: int, kind: str, terms: dict[str, float], norm: float, seconds: float) -> None:
        flipped = 0.0 if self.flips is None else float(self.flips.p.sum())
        step = Step(index, kind, sum(terms.values()), terms, norm, flipped, seconds)
        self.history.append(step)
        _LOG.debug("%s", step)
        if self.callback is not None:
            self.callback(step)


def _has_fused(x: Tensor) -> bool:
    return x.dtype in (torch.float32, torch.float64) and x.device.type in ("cpu", "cuda")


def _width(model: nn.Module) -> int:
    """The widest hidden representation, as far as the shapes of the weights tell."""
    return max((min(weight.shape) for weight in model.parameters() if weight.dim() == 2), default=1)
