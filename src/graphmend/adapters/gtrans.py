"""GTrans: test-time graph transformation, Algorithm 1 of the paper."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.adapters.algorithm import Run
from graphmend.engine.memory import keeping_memory
from graphmend.engine.memory_check import check_memory
from graphmend.engine.optimizers import EDGE_UPDATES
from graphmend.errors import listed, require
from graphmend.frozen import FrozenGNN
from graphmend.frozen.restore import plain
from graphmend.graph.budget import check_budget
from graphmend.graph.checks import check_graph
from graphmend.graph.edge_flips import DIRECTED, SPACES
from graphmend.graph.limits import Limits
from graphmend.results.adaptation import Adaptation, Step
from graphmend.surrogates import Backbone, Contrastive, Surrogate, surrogate_of

ACTIVATIONS = ("float32", "bfloat16")


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
        activations: ``"bfloat16"`` keeps the model's activations in half the memory while the graph is learned and
            chosen; features, weights of edges, sums, attention and the prediction stay in single precision.
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
    activations: str = "float32"
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
        choices_of = {"edge_update": EDGE_UPDATES, "space": SPACES, "directed": DIRECTED, "activations": ACTIVATIONS}
        for name, choices in choices_of.items():
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
        here = torch.cuda.device_of(data.x)  # type: ignore[no-untyped-call]
        with here, FrozenGNN(model, data, embedding=self.embedding, seed=seed) as frozen:
            half = self.activations == "bfloat16"
            require(
                not half or data.x.dtype == torch.float32,
                f"activations in bfloat16 want features in float32 (got {data.x.dtype}); convert them with x.float()",
            )
            keep = check_memory(data.x, data.edge_index.size(1), _width(model), 2 if half else data.x.element_size())
            if self.embedding is not None:
                with torch.no_grad():  # is there such a module?
                    frozen.embed(data.x, data.edge_index)
            if self.edge_steps > 0:
                frozen.require_edge_weights()
            with keeping_memory(keep):
                return Run(self, frozen, data, limits, seed, callback).adapt(progress)


def _width(model: nn.Module) -> int:
    """The widest hidden representation, as far as the shapes of the weights tell."""
    return max((min(weight.shape) for weight in model.parameters() if weight.dim() == 2), default=1)
