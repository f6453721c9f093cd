"""Backbones on disk: weights as safetensors, name and options as JSON in its header. No pickle."""

from __future__ import annotations

import json
from pathlib import Path

from torch import nn

from graphmend.errors import GraphMendError, require
from graphmend.io.files import read_safetensors, write_safetensors
from graphmend.nn.registry import BACKBONES, build

FORMAT = "graphmend-model-1"


def save_model(model: nn.Module, path: str | Path) -> None:
    """Write a GraphMend backbone to ``path`` (atomically)."""
    names = {backbone: name for name, backbone in BACKBONES.items()}
    require(
        type(model) in names,
        f"only GraphMend backbones are saved with their options (got {type(model).__name__}); "
        "save other models' state_dict with safetensors and load them through a factory",
    )
    header = {"format": FORMAT, "backbone": names[type(model)], "config": json.dumps(model.config)}
    write_safetensors(path, model.state_dict(), header)


def load_model(path: str | Path) -> nn.Module:
    """Read a backbone written by :func:`save_model`, in eval mode on the CPU."""
    tensors, header = read_safetensors(path)
    require(
        header.get("format") == FORMAT,
        f"{path} holds no GraphMend checkpoint (format {header.get('format')!r}); for other models give a factory",
    )
    try:
        config = json.loads(header["config"])
        model = build(header["backbone"], **config)
        model.load_state_dict(tensors, assign=True)  # with the dtype they were saved in
    except (KeyError, TypeError, json.JSONDecodeError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise GraphMendError(f"the checkpoint {path} does not fit its own header: {reason}") from error
    return model.eval()
