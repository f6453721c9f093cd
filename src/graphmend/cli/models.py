"""Models for the commands, the device to compute on, and graphs in the form that models take."""

from __future__ import annotations

import copy
import importlib
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data, HeteroData

from graphmend.cli.lab import lab
from graphmend.errors import GraphMendError, require
from graphmend.files.files import escaped
from graphmend.files.weights import read_weights
from graphmend.graph.stores import feature_types


def load_any_model(
    checkpoint: str | Path | None = None, *, factory: str | None = None, weights: str | Path | None = None
) -> nn.Module:
    """A model from a GraphMend checkpoint, or from ``package.module:function`` and a file of weights.

    Args:
        checkpoint: A file written by :func:`graphmend.lab.backbones.save_model`.
        factory: A function without arguments that builds the model, as ``package.module:function``; the current
            directory is searched first.
        weights: Its ``state_dict``, see :func:`graphmend.files.weights.read_weights`.
    """
    if checkpoint is not None:
        require(factory is None and weights is None, "give either a checkpoint or a factory with weights, not both")
        model: nn.Module = lab("backbones").load_model(checkpoint)
        return model
    if factory is None or weights is None:
        raise GraphMendError("there is no model; give a checkpoint, or both a factory and weights")
    model = _made_by(factory)
    tensors = read_weights(weights)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        reason = escaped(" ".join(line.strip() for line in str(error).splitlines()[1:3]))
        raise GraphMendError(f"the weights {weights} do not fit the model of {factory} ({reason})") from error
    return model.eval()


def _made_by(factory: str) -> nn.Module:
    module_name, colon, function_name = factory.partition(":")
    require(bool(colon and module_name and function_name), f"a factory is package.module:function (got {factory!r})")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        function: Any = getattr(importlib.import_module(module_name), function_name, None)
    except (Exception, SystemExit) as error:
        raise GraphMendError(
            f"cannot import {module_name!r} for the factory: {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.remove(here)
    require(callable(function), f"the module {module_name!r} has no function {function_name!r}")
    try:
        model: nn.Module = function()
    except (Exception, SystemExit) as error:
        raise GraphMendError(f"the factory {factory!r} failed: {type(error).__name__}: {error}") from error
    require(isinstance(model, nn.Module), f"the factory {factory!r} returned a {type(model).__name__}, not a model")
    return model


def device_of(name: str) -> torch.device:
    """A device that exists."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise GraphMendError(f"unknown device {name!r}; use 'cpu' or 'cuda'") from error
    require(device.type in ("cpu", "cuda"), f"unknown device {name!r}; use 'cpu' or 'cuda'")
    if device.type == "cuda":
        count = torch.cuda.device_count()
        require((device.index or 0) < count, f"there is no device {name!r}, only {count} GPUs; use 'cpu'")
    return device


def for_model(data: Data, net: nn.Module, device: torch.device) -> Data:
    """A copy with the features in the model's floating-point type, all on one device."""
    out = copy.copy(data)
    kinds = {p.dtype for p in net.parameters() if p.is_floating_point()}
    if len(kinds) == 1 and isinstance(data, HeteroData):
        kind = kinds.pop()
        for node_type in feature_types(data):
            out[node_type].x = data[node_type].x.to(kind)
    elif len(kinds) == 1:
        out.x = data.x.to(kinds.pop())
    return out.to(device)
