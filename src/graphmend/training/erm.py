"""Empirical risk minimisation: the plain way to train a backbone."""

from __future__ import annotations

import copy
import logging
import math
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.datasets.splits import Splits, node_labels, node_mask
from graphmend.errors import GraphMendError, choose, require
from graphmend.frozen.restore import untouched_rng
from graphmend.metrics.scores import score
from graphmend.progress import track
from graphmend.transforms.views.drop_edge import DropEdge

__all__ = ["ERM", "OPTIMIZERS", "risk"]

logger = logging.getLogger(__name__)
Model = TypeVar("Model", bound=nn.Module)

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


@dataclass(frozen=True, kw_only=True)
class ERM:
    r"""Full-batch training with the weights of the best validation epoch.

    Each epoch is one optimiser step on the loss averaged over the training graphs: cross-entropy for multi-class
    tasks; for binary tasks binary cross-entropy, of two logits against the one-hot label (mean over both) or of a
    single logit. After every epoch the metric of the splits is computed in eval mode over the concatenated nodes of
    all validation graphs; the first epoch with the strictly best value wins.

    Args:
        lr: Learning rate.
        weight_decay: Decoupled decay for ``"adamw"``, L2 penalty for ``"adam"``.
        epochs: Optimiser steps.
        optimizer: ``"adamw"`` or ``"adam"``.
        drop_edge: Probability of :class:`~graphmend.transforms.DropEdge`, applied afresh in every epoch to every
            training graph. The model must take edge weights and treat 0 as absent.
        seed: Seed of dropout and edge dropping. The global random generators are restored afterwards. The initial
            weights are those of the model passed in.

    Example:
        >>> ERM(lr=0.01, weight_decay=5e-4, epochs=1000, optimizer="adam")  # the robustness experiments
        ERM(lr=0.01, weight_decay=0.0005, epochs=1000, optimizer='adam', drop_edge=0.0, seed=0)
    """

    lr: float = 0.01
    weight_decay: float = 1e-3
    epochs: int = 200
    optimizer: str = "adamw"
    drop_edge: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        choose("optimizer", self.optimizer, OPTIMIZERS)
        require(self.lr > 0 and math.isfinite(self.lr), f"lr must be positive and finite (got {self.lr})")
        require(self.weight_decay >= 0, f"weight_decay must not be negative (got {self.weight_decay})")
        require(self.epochs >= 1, f"epochs must be at least 1 (got {self.epochs})")
        require(0 <= self.drop_edge < 1, f"drop_edge must be in [0, 1) (got {self.drop_edge})")

    def __call__(self, model: Model, splits: Splits, progress: bool = False) -> Model:
        """Train ``model`` in place; it comes back in eval mode with the weights of the best epoch.

        Args:
            model: A module called as ``model(x, edge_index)`` or, when there are edge weights,
                ``model(x, edge_index, edge_weight)``.
            splits: Graphs on the device of the model.
            progress: Show a progress bar with the time left on standard error.
        """
        parameters = [p for p in model.parameters() if p.requires_grad]
        require(len(parameters) > 0, "the model has no parameter that requires a gradient; unfreeze it to train it")
        options: dict[str, Any] = {"lr": self.lr, "weight_decay": self.weight_decay}
        optimizer = OPTIMIZERS[self.optimizer](parameters, **options)
        best, best_epoch, best_state = -math.inf, 0, {}
        drop_edge = DropEdge(self.drop_edge)
        with untouched_rng(self.seed):
            for epoch in track(range(1, self.epochs + 1), "training", progress):
                model.train()
                optimizer.zero_grad()
                graphs = (drop_edge(data) if self.drop_edge > 0 else data for data in splits.train)
                loss = torch.stack([risk(*_scored_nodes(model, data), splits.task) for data in graphs]).mean()
                if not torch.isfinite(loss):
                    raise GraphMendError(
                        f"the training loss is {loss.item()} in epoch {epoch}; lower lr={self.lr} or check the features"
                    )
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                value = _validate(model, splits)
                if value > best:
                    best, best_epoch, best_state = value, epoch, copy.deepcopy(model.state_dict())
        optimizer.zero_grad()  # leave no gradients on the caller's model
        model.load_state_dict(best_state)
        logger.info("best epoch %d of %d: validation %s %.4f", best_epoch, self.epochs, splits.metric, best)
        return model.eval()


def risk(logits: Tensor, y: Tensor, task: str) -> Tensor:
    """The training loss of some nodes: see :class:`ERM` for the loss of each task.

    Args:
        logits: ``(N, C)``, or one binary logit per node as ``(N,)`` or ``(N, 1)``.
        y: Class labels of shape ``(N,)``.
        task: ``"multiclass"`` or ``"binary"``.
    """
    require(y.numel() > 0, "a training graph has no node to train on; pass a mask that selects at least one node")
    single = logits.dim() == 1 or logits.size(1) == 1
    classes = 2 if single or task == "binary" else logits.size(1)
    low, high = y.min().item(), y.max().item()
    require(
        low >= 0 and high < classes,
        f"training labels must lie in 0..{classes - 1} (got {low}..{high}); mask unlabelled nodes out or give the "
        "model more outputs",
    )
    if task == "multiclass":
        require(not single, "a multiclass task needs one logit per class (got a single one); widen the model's output")
        return F.cross_entropy(logits, y.long())
    if single:
        return F.binary_cross_entropy_with_logits(logits.reshape(-1), y.to(logits.dtype))
    require(logits.size(1) == 2, f"a binary task needs one or two logits (got {logits.size(1)}); change the model")
    return F.binary_cross_entropy_with_logits(logits, F.one_hot(y.long(), 2).to(logits.dtype))


@torch.no_grad()
def _validate(model: nn.Module, splits: Splits) -> float:
    model.eval()
    logits, y = zip(*(_scored_nodes(model, data) for data in splits.val), strict=True)
    return score(splits.metric, torch.cat(logits), torch.cat(y))


def _scored_nodes(model: nn.Module, data: Data) -> tuple[Tensor, Tensor]:
    """Logits and labels of the nodes in the mask; without edge weights the model is called without that argument."""
    weights = () if data.edge_weight is None else (data.edge_weight,)
    mask, labels = node_mask(data), node_labels(data)
    return model(data.x, data.edge_index, *weights)[mask], labels
