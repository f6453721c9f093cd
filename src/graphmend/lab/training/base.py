"""What trainers share: the settings, the loop over epochs, and the choice of the best one."""

from __future__ import annotations

import copy
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend.errors import (
    READERS,
    GraphMendError,
    check_fields,
    choose,
    rate_number,
    require,
    seed_number,
    switch,
    whole_number,
)
from graphmend.lab.data.splits import Splits, node_labels, node_mask
from graphmend.model.failures import failures_named
from graphmend.model.restore import untouched_rng
from graphmend.outputs import has_one_logit
from graphmend.progress import track
from graphmend.results.scores import score

__all__ = ["OPTIMIZERS", "Objective", "Trainer", "mean_risk", "outputs", "risk"]

logger = logging.getLogger(__name__)
Model = TypeVar("Model", bound=nn.Module)

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
"""Every optimiser by name.

Example:
    >>> from graphmend.lab.training import OPTIMIZERS
    >>> list(OPTIMIZERS)
    ['adam', 'adamw']
"""


class Objective(NamedTuple):
    """What a trainer minimises.

    Args:
        loss: The loss of an epoch, counted from 0. It is called with the model in training mode.
        modules: Modules that are trained with the model and forgotten afterwards, such as a domain classifier.

    Example:
        >>> import torch
        >>> from graphmend.lab.training import Objective
        >>> objective = Objective(lambda epoch: torch.tensor(1.0 / (epoch + 1)))
        >>> float(objective.loss(1))
        0.5
    """

    loss: Callable[[int], Tensor]
    modules: tuple[nn.Module, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Trainer(ABC):
    """Full-batch training with the weights of the best validation epoch; a subclass says what is minimised.

    Each epoch is one optimiser step. After it the metric of the splits is computed in eval mode over the concatenated
    nodes of all validation graphs; the first epoch with the strictly best value wins.

    Args:
        lr: Learning rate.
        weight_decay: Decoupled decay for ``"adamw"``, L2 penalty for ``"adam"``.
        epochs: Optimiser steps.
        optimizer: ``"adamw"`` or ``"adam"``.
        seed: Seed of everything random. The global random generators are restored afterwards. The initial weights
            are those of the model passed in.

    Example:
        >>> from dataclasses import dataclass
        >>> from graphmend.lab.backbones import GCN
        >>> from graphmend.lab.data import embedded
        >>> from graphmend.lab.training import Objective, Trainer, mean_risk, outputs
        >>> @dataclass(frozen=True, kw_only=True)
        ... class Small(Trainer):
        ...     # The usual loss, and small outputs.
        ...     def objective(self, model, splits):
        ...         def loss(epoch):
        ...             logits = outputs(model, splits.train)
        ...             return mean_risk(logits, splits.train, splits.task) + 0.01 * logits[0].square().mean()
        ...         return Objective(loss)
        >>> model = Small(epochs=2)(GCN(13, 16, 3), embedded("wine"))
    """

    lr: float = 0.01
    weight_decay: float = 1e-3
    epochs: int = 200
    optimizer: str = "adamw"
    seed: int = 0

    def __post_init__(self) -> None:
        choose("optimizer", self.optimizer, OPTIMIZERS)
        check_fields(self, rate_number, "lr")
        check_fields(self, rate_number, "weight_decay", may_be_zero=True)
        check_fields(self, whole_number, "epochs", low=1)
        check_fields(self, seed_number, "seed")
        for field in fields(self):  # those of subclasses, too, which then have only ranges to check
            if str(field.type) in READERS:
                check_fields(self, READERS[str(field.type)], field.name)

    @abstractmethod
    def objective(self, model: nn.Module, splits: Splits) -> Objective:
        """What is minimised. It is called once, before the first epoch, under the trainer's seed."""

    def __call__(self, model: Model, splits: Splits, progress: bool = False) -> Model:
        """Train ``model`` in place; it comes back in eval mode with the weights of the best epoch.

        Args:
            model: A module called as ``model(x, edge_index)`` or, when there are edge weights,
                ``model(x, edge_index, edge_weight)``.
            splits: Graphs on the device of the model.
            progress: Show a progress bar with the time left on standard error.
        """
        require(isinstance(model, nn.Module), f"the model must be a torch.nn.Module (got {type(model).__name__})")
        require(isinstance(splits, Splits), f"splits must be a graphmend.lab.data.Splits (got {type(splits).__name__})")
        splits.check()
        switch("progress", progress)
        parameters = [p for p in model.parameters() if p.requires_grad]
        require(len(parameters) > 0, "the model has no parameter that requires a gradient; unfreeze it to train it")
        best, best_epoch, best_state = -math.inf, 0, {}
        with untouched_rng(self.seed):
            loss_of, modules = self.objective(model, splits)
            parameters += [p for module in modules for p in module.parameters()]
            options: dict[str, Any] = {"lr": self.lr, "weight_decay": self.weight_decay}
            optimizer = OPTIMIZERS[self.optimizer](parameters, **options)
            try:
                for epoch in track(range(self.epochs), "training", progress):
                    model.train()
                    optimizer.zero_grad()
                    loss = loss_of(epoch)
                    if not torch.isfinite(loss):
                        raise GraphMendError(
                            f"the training loss is {loss.item()} in epoch {epoch + 1}; "
                            f"lower lr={self.lr} or check the features"
                        )
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
                    value = _validate(model, splits)
                    if value > best:
                        best, best_epoch, best_state = value, epoch + 1, copy.deepcopy(model.state_dict())
            finally:
                optimizer.zero_grad()  # leave no gradients on the caller's model
        model.load_state_dict(best_state)
        logger.info("best epoch %d of %d: validation %s %.4f", best_epoch, self.epochs, splits.metric, best)
        return model.eval()


def risk(logits: Tensor, y: Tensor, task: str, weights: Tensor | None = None) -> Tensor:
    """The training loss of some nodes.

    It is the cross-entropy for multi-class tasks; for binary tasks it is the binary cross-entropy, of two logits
    against the one-hot label (mean over both) or of a single logit.

    Args:
        logits: ``(N, C)``, or one binary logit per node as ``(N,)`` or ``(N, 1)``.
        y: Class labels of shape ``(N,)``.
        task: ``"multiclass"`` or ``"binary"``.
        weights: How much the loss of each node counts, with a mean of about 1; the same for all when ``None``.

    Example:
        >>> import torch
        >>> from graphmend.lab.training import risk
        >>> round(float(risk(torch.zeros(2, 4), torch.tensor([0, 3]), "multiclass")), 3)
        1.386
    """
    require(y.numel() > 0, "a training graph has no node to train on; pass a mask that selects at least one node")
    single = has_one_logit(logits)
    classes = 2 if single or task == "binary" else logits.size(1)
    low, high = y.min().item(), y.max().item()
    require(
        low >= 0 and high < classes,
        f"training labels must lie in 0..{classes - 1} (got {low}..{high}); mask unlabelled nodes out or give the "
        "model more outputs",
    )
    how = "mean" if weights is None else "none"
    if task == "multiclass":
        require(not single, "a multiclass task needs one logit per class (got a single one); widen the model's output")
        loss = F.cross_entropy(logits, y.long(), reduction=how)
    elif single:
        loss = F.binary_cross_entropy_with_logits(logits.reshape(-1), y.to(logits.dtype), reduction=how)
    else:
        require(logits.size(1) == 2, f"a binary task needs one or two logits (got {logits.size(1)}); change the model")
        loss = F.binary_cross_entropy_with_logits(logits, F.one_hot(y.long(), 2).to(logits.dtype), reduction=how)
    return loss if weights is None else (weights * loss.view(y.numel(), -1).mean(dim=1)).mean()


def outputs(function: Callable[..., Tensor], graphs: list[Data]) -> list[Tensor]:
    """What a model or its ``embed`` makes of each graph; without edge weights it is called without that argument.

    Example:
        >>> from graphmend.lab.backbones import GCN
        >>> from graphmend.lab.data import embedded
        >>> from graphmend.lab.training import outputs
        >>> [tuple(logits.shape) for logits in outputs(GCN(13, 16, 3), embedded("wine").test)]
        [(178, 3)]
    """
    model = function if isinstance(function, nn.Module) else getattr(function, "__self__", None)
    out = []
    for data in graphs:
        weight = () if data.edge_weight is None else (data.edge_weight,)
        with failures_named(model, data):
            out.append(function(data.x, data.edge_index, *weight))
    return out


def mean_risk(logits: list[Tensor], graphs: list[Data], task: str, weights: list[Tensor] | None = None) -> Tensor:
    """:func:`risk` of each graph, averaged over the graphs.

    Args:
        logits: The model's output on each graph.
        graphs: The graphs, with labels and perhaps a mask of the nodes that count.
        task: ``"multiclass"`` or ``"binary"``.
        weights: For each graph, how much each of the nodes in its mask counts.

    Example:
        >>> import torch
        >>> from graphmend.lab.data import embedded
        >>> from graphmend.lab.training import mean_risk
        >>> train = embedded("wine").train
        >>> bool(mean_risk([torch.zeros(178, 3)], train, "multiclass") > 0)
        True
    """
    each = [None] * len(graphs) if weights is None else weights
    parts = [risk(*_scored_nodes(z, data), task, w) for z, data, w in zip(logits, graphs, each, strict=True)]
    return torch.stack(parts).mean()


@torch.no_grad()
def _validate(model: nn.Module, splits: Splits) -> float:
    model.eval()
    pairs = zip(outputs(model, splits.val), splits.val, strict=True)
    logits, y = zip(*(_scored_nodes(*pair) for pair in pairs), strict=True)
    return score(splits.metric, torch.cat(logits), torch.cat(y))


def _scored_nodes(logits: Tensor, data: Data) -> tuple[Tensor, Tensor]:
    """Logits and labels of the nodes in the mask."""
    return logits[node_mask(data)], node_labels(data)
