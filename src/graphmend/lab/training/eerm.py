"""EERM: invariant risk over environments that graph editors invent."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphmend.errors import check_fields, rate_number, real_number, require, whole_number
from graphmend.lab.data.splits import Splits
from graphmend.lab.training.base import Objective, Trainer, mean_risk, outputs
from graphmend.lab.training.editors import Editor

__all__ = ["EERM"]


@dataclass(frozen=True, kw_only=True)
class EERM(Trainer):
    r"""Explore-to-extrapolate risk minimisation (Wu et al., ICLR 2022, https://arxiv.org/abs/2202.02466).

    ``views`` editors (:mod:`graphmend.lab.training.editors`) per training graph flip edges. With :math:`R_k` the mean
    risk of the training graphs in view :math:`k`, the model takes a step down

    .. math:: \mathrm{Var}(R_1, \dots, R_K) + \beta_e\, \mathrm{Mean}(R_1, \dots, R_K), \qquad
              \beta_e = \beta \left(1 + g\, e / \text{epochs}\right),

    with the unbiased variance, after the editors have taken ``editor_steps`` AdamW steps down
    :math:`-\mathrm{Var}(R_1, \dots, R_K) \sum_k \log p_k` (REINFORCE).

    The released code differs: where there are several training graphs it mixes views and graphs in the variance, or
    takes one step per graph; and for several editor steps it updates the model before the editors.

    Args:
        views: Editors per training graph, at least 2.
        flips: Edges flipped per node and view.
        editor_steps: Steps of the editors per epoch.
        editor_lr: Learning rate of the editors.
        beta: Weight of the mean risk.
        beta_growth: :math:`g`; 9 for Twitch in the released code, else 0.
        candidates: Edges per node that an editor can flip, drawn at random. ``None`` is the original method, an
            editor of all N x N entries; with a number, editors need O(N x candidates) memory.
        reset_editors: New random editors in every epoch, as the released code has them for Cora, Photo and Arxiv.
        released: Draw and score flips as the released code does; see :class:`~graphmend.lab.training.editors.Editor`.
        lr: As in :class:`~graphmend.lab.training.Trainer`, like ``weight_decay``, ``epochs``, ``optimizer`` and
            ``seed``.

    Example:
        >>> EERM(lr=0.005, views=10, flips=1, editor_lr=0.001, reset_editors=True).beta  # Cora with a GCN
        1.0
        >>> EERM(views=3, flips=5, candidates=64).candidates  # a graph with too many nodes for N x N numbers
        64
    """

    views: int = 3
    flips: int = 5
    editor_steps: int = 1
    editor_lr: float = 0.005
    beta: float = 1.0
    beta_growth: float = 0.0
    candidates: int | None = None
    reset_editors: bool = False
    released: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, whole_number, "views", low=2, hint="there is no variance of a single one")
        check_fields(self, whole_number, "flips", "editor_steps", low=1)
        check_fields(self, rate_number, "editor_lr")
        check_fields(self, real_number, "beta", "beta_growth", low=0)
        check_fields(
            self, whole_number, "candidates", low=self.flips, optional=True, hint="flips are chosen among them"
        )
        if self.candidates is not None:
            require(not self.released, "released=True needs all candidates; leave candidates at None")

    def objective(self, model: nn.Module, splits: Splits) -> Objective:
        """The variance and mean of the risks; the editors take their steps on the way."""
        views = [
            [Editor(data, self.flips, self.candidates, self.released) for data in splits.train]
            for _ in range(self.views)
        ]
        editors = [editor for view in views for editor in view]
        optimizer = torch.optim.AdamW([editor.scores for editor in editors], lr=self.editor_lr)

        def risks() -> Tensor:
            """The risk of each view. The editors learn from it."""
            drawn = {editor: editor.draw() for editor in editors}
            graphs = [[editor.view(drawn[editor]) for editor in view] for view in views]
            out = torch.stack([mean_risk(outputs(model, view), view, splits.task) for view in graphs])
            reward = out.detach().var()
            if torch.isfinite(reward):  # otherwise the loss is not finite, either, and training ends with that message
                with torch.enable_grad():
                    optimizer.zero_grad()
                    for editor, chosen in drawn.items():
                        (-reward * editor.log_probability(chosen)).backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
            return out

        def loss(epoch: int) -> Tensor:
            if self.reset_editors:
                for editor in editors:
                    editor.reset()
            with torch.no_grad():
                for _ in range(self.editor_steps - 1):
                    risks()
            last = risks()
            return last.var() + self.beta * (1 + self.beta_growth * epoch / self.epochs) * last.mean()

        return Objective(loss)
