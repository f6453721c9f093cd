"""Trained backbones on disk: weights as safetensors, without pickle, the name and options as JSON in the header."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphmend.errors import GraphMendError, choose, listed, require
from graphmend.files.files import escaped, first_line, read_safetensors, write_safetensors
from graphmend.lab.backbones.registry import BACKBONES, build

FORMAT = "graphmend-model-2"
UNCHECKED = "graphmend-model-1"
"""The format before, without a checksum; it is still read."""

MOST_HOPS = 10_000
"""Far more than a graph has use for; the number of hops is the one size that no tensor in the file shows."""

FEW_LAYERS = 100  # cost nothing to build, whatever the file holds
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def save_model(model: nn.Module, path: str | Path, *, trainer: Mapping[str, Any] | None = None) -> None:
    """Write a GraphMend backbone to ``path``, atomically and with a checksum of weights and options.

    Args:
        model: The model.
        path: The file.
        trainer: How the model was trained, such as the name of a trainer and its settings. It is kept for people to
            read, and 'graphmend info' shows it; loading the model does not use it.

    Example:
        >>> from graphmend.lab.backbones import GCN, save_model
        >>> save_model(GCN(3, 8, 2), "gcn.safetensors", trainer={"name": "erm", "epochs": 100})
    """
    names = {backbone: name for name, backbone in BACKBONES.items()}
    require(
        type(model) in names,
        f"only GraphMend backbones are saved with their options (got {type(model).__name__}); "
        "save other models' state_dict with safetensors and load them through a factory",
    )
    header = {"format": FORMAT, "backbone": names[type(model)], "config": json.dumps(model.config)}
    if trainer is not None:
        header["trainer"] = json.dumps(dict(trainer), default=str)
    write_safetensors(path, model.state_dict(), header)


def load_model(path: str | Path) -> nn.Module:
    """Read a backbone written by :func:`save_model`, in eval mode on the CPU.

    The options in the header are compared with the tensors in the file before a model is built.

    Example:
        >>> from graphmend.lab.backbones import GCN, load_model, save_model
        >>> save_model(GCN(3, 8, 2), "gcn.safetensors")
        >>> type(load_model("gcn.safetensors")).__name__
        'GCN'
    """
    tensors, header = read_safetensors(path)
    found = header.get("format")
    require(
        found in (FORMAT, UNCHECKED),
        f"{path} holds no GraphMend checkpoint (format {escaped(repr(found), 40)}); for other models give a factory",
    )
    try:
        further = listed(set(header) - {"format", "backbone", "config", "trainer"})
        require(not further, f"there is an unknown entry {escaped(further, 40)!r}")
        name, config = header["backbone"], json.loads(header["config"])
        _check_options(name, config, tensors)
        _check_shapes(name, config, tensors)
        with torch.random.fork_rng(devices=[]):  # the first weights of a model are random
            model = build(name, **config)
        model.load_state_dict(tensors, assign=True)  # with the dtype they were saved in
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = first_line(error)
        raise GraphMendError(f"the checkpoint {path} does not fit its own header: {reason}; save it again") from error
    return model.eval()


def _check_options(name: str, config: Any, tensors: dict[str, Tensor]) -> None:
    """Raise unless the options have the types that the backbone asks for, and sizes that the tensors can have."""
    parameters = inspect.signature(choose("backbone", name, BACKBONES)).parameters
    require(isinstance(config, dict), f"the options are a {type(config).__name__}")
    kinds = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,)}
    values = sum(tensor.numel() for tensor in tensors.values())
    channels = {option: values for option in config if option.endswith("channels")}
    largest = {**channels, "heads": values, "num_layers": max(len(tensors), FEW_LAYERS), "hops": MOST_HOPS}
    for option, value in config.items():
        shown = escaped(repr(value), 40)
        kind = str(parameters[option].annotation) if option in parameters else ""
        require(type(value) in kinds.get(kind, (type(value),)), f"{option} is {shown}, not of the type {kind}")
        require(option not in largest or type(value) is int, f"{option} is {shown}, not a whole number")
        is_possible = option not in largest or value <= largest[option]
        require(is_possible, f"{option} is {shown}, more than the tensors in the file allow")


def _check_shapes(name: str, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Raise unless the tensors are those of the model; it is built without memory for its weights."""
    try:
        with torch.device("meta"):
            expected = build(name, **config).state_dict()
    except RuntimeError:  # a user's backbone that computes with the values of its weights
        return
    missing, further = listed(set(expected) - set(tensors)), listed(set(tensors) - set(expected))
    require(not missing, f"the file has no tensor {missing[:80]}")
    require(not further, f"the file has a further tensor {escaped(further, 80)}")
    for key, value in expected.items():
        shape, wanted = tuple(tensors[key].shape), tuple(value.shape)
        require(shape == wanted, f"{key} has the shape {shape}, not {wanted}")
        kind = tensors[key].dtype
        fits = kind in FLOATS if value.is_floating_point() else kind == value.dtype
        require(fits, f"{key} holds {kind}, not {value.dtype}")
