"""Models from ``torch.jit.script`` and ``torch.jit.trace``, which run but hide their layers."""

from __future__ import annotations

import torch
from torch import nn

from graphmend.errors import require

__all__ = ["is_scripted", "require_visible_layers"]


def is_scripted(module: nn.Module) -> bool:
    """Whether a module is TorchScript, which takes no hooks."""
    return isinstance(module, torch.jit.ScriptModule)


def require_visible_layers(model: nn.Module, what: str, or_else: str = "") -> None:
    """Raise if a part of the model is TorchScript, so that ``what`` cannot be taken from one of its layers."""
    require(
        not any(map(is_scripted, model.modules())),
        f"TorchScript hides the layers of the model, so {what} cannot be found; "
        f"pass the model that torch.jit.script or torch.jit.trace was given{or_else}",
    )
