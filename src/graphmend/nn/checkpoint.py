"""Trained models on disk: weights as safetensors, without pickle.

A backbone has its name and options as JSON in the header; any other model comes from a user's factory and weights.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

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


def load_any_model(
    checkpoint: str | Path | None = None, *, factory: str | None = None, weights: str | Path | None = None
) -> nn.Module:
    """A model from a GraphMend checkpoint, or from ``package.module:function`` and a file of weights.

    Args:
        checkpoint: A file written by :func:`graphmend.nn.save_model`.
        factory: A function without arguments that builds the model, as ``package.module:function``; the current
            directory is searched first.
        weights: Its ``state_dict`` as safetensors.
    """
    if checkpoint is not None:
        require(factory is None and weights is None, "give either a checkpoint or a factory with weights, not both")
        return load_model(checkpoint)
    if factory is None or weights is None:
        raise GraphMendError("there is no model; give a checkpoint, or both a factory and weights")
    model = _made_by(factory)
    tensors, _ = read_safetensors(weights)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        reason = " ".join(line.strip() for line in str(error).splitlines()[1:3])
        raise GraphMendError(f"the weights {weights} do not fit the model of {factory} ({reason})") from error
    return model.eval()


def _made_by(factory: str) -> nn.Module:
    module_name, colon, function_name = factory.partition(":")
    require(bool(colon and module_name and function_name), f"a factory is package.module:function (got {factory!r})")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        function: Any = getattr(importlib.import_module(module_name), function_name, None)
    except Exception as error:
        raise GraphMendError(
            f"cannot import {module_name!r} for the factory: {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.remove(here)
    require(callable(function), f"the module {module_name!r} has no function {function_name!r}")
    try:
        model: nn.Module = function()
    except Exception as error:
        raise GraphMendError(f"the factory {factory!r} failed: {type(error).__name__}: {error}") from error
    require(isinstance(model, nn.Module), f"the factory {factory!r} returned a {type(model).__name__}, not a model")
    return model
