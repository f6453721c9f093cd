"""The model inside the wrappers of PyTorch, which is the one that is examined and run.

``torch.compile`` gives a compiled model, whose layers cannot be watched; ``DataParallel`` would split a graph into
rows; ``AveragedModel`` (EMA) passes everything on. Layers and weights are those of the model inside.
"""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

__all__ = ["compiled_inside", "unwrapped"]

_PASSING_ON = (DataParallel, DistributedDataParallel, AveragedModel)


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside all wrappers of PyTorch; ``model`` itself if there are none.

    Example:
        >>> layer = nn.Linear(2, 3)
        >>> unwrapped(AveragedModel(DataParallel(layer))).weight.shape
        torch.Size([3, 2])
    """
    while True:
        inner = model.module if isinstance(model, _PASSING_ON) else compiled_inside(model)
        if inner is None:
            return model
        model = inner


def compiled_inside(model: nn.Module) -> nn.Module | None:
    """The model that ``torch.compile`` was given, if this is what it returned."""
    inner = getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else None
