"""What trainers share that see the test graphs, without labels, while they train.

The test graphs go through the model in training mode, like the training graphs. So batch normalisations keep running
statistics of both, which alone can undo a shift of the features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmend.errors import GraphMendError, require
from graphmend.lab.data.splits import Splits, node_mask

__all__ = ["check_targets", "domain_loss", "embedding_of", "reversed_gradient", "source_rows"]


def embedding_of(model: nn.Module, trainer: str) -> Callable[..., Tensor]:
    """The model's ``embed``, or an error that says how to get one."""
    embed: Callable[..., Tensor] | None = getattr(model, "embed", None)
    if embed is None:
        raise GraphMendError(
            f"{trainer} compares embeddings, but {type(model).__name__} has no embed(x, edge_index, edge_weight=None); "
            "add that method or use a backbone of graphmend.lab.backbones"
        )
    return embed


def check_targets(splits: Splits) -> None:
    """Training and test graphs must have the same columns."""
    widths = sorted({data.x.size(1) for data in (*splits.train, *splits.test)})
    require(
        len(widths) == 1,
        f"training and test graphs have different numbers of columns ({widths}); give all of them the same features",
    )


def source_rows(rows: list[Tensor], splits: Splits) -> Tensor:
    """Of one matrix per training graph, the rows of the nodes that are trained on, together."""
    return torch.cat([matrix[node_mask(data)] for matrix, data in zip(rows, splits.train, strict=True)])


def domain_loss(source: Tensor, target: Tensor) -> Tensor:
    """The mean of the cross-entropies of two domains, 0 and 1, so that each counts as much as the other."""
    scores = (source, target)
    parts = [F.cross_entropy(s, s.new_full((s.size(0),), k, dtype=torch.long)) for k, s in enumerate(scores)]
    return torch.stack(parts).mean()


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        ctx.rate = rate
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return -ctx.rate * grad, None


def reversed_gradient(x: Tensor, rate: float = 1.0) -> Tensor:
    """``x`` itself, whose gradient is multiplied by ``-rate`` (Ganin & Lempitsky, https://arxiv.org/abs/1409.7495)."""
    out: Tensor = _Reversal.apply(x, rate)  # type: ignore[no-untyped-call]
    return out
