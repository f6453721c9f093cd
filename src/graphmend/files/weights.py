"""The weights of somebody's own model: a ``state_dict``, as safetensors or as ``torch.save`` writes it."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphmend.errors import GraphMendError, listed, require
from graphmend.files.archives import check_contents, open_archive
from graphmend.files.files import BROKEN, check_file, first_line, read_safetensors

__all__ = ["read_weights"]

SUFFIXES = (".pt", ".pth", ".ckpt", ".bin")
"""Ends of the names of files from ``torch.save``."""

PARTS = ("state_dict", "model_state_dict")
"""Where a checkpoint of a training keeps the weights."""

SAVE = "save the weights alone with torch.save(model.state_dict(), path)"


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a ``state_dict`` by name; no code from the file is run.

    Args:
        path: A file of safetensors, or one of ``torch.save`` (``.pt``, ``.pth``, ``.ckpt`` or ``.bin``) that holds a
            ``state_dict``, by itself or in a checkpoint under ``"state_dict"`` or ``"model_state_dict"``.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        return read_safetensors(path)[0]
    check_file(path)
    try:
        with open_archive(path) as archive:
            check_contents(path, archive)
            is_script = any(entry.filename.endswith("/constants.pkl") for entry in archive.infolist())
    except GraphMendError:
        raise
    except BROKEN as error:
        raise GraphMendError(
            f"{path} is damaged, or was not written by torch.save of version 1.6 or later ({first_line(error)}); {SAVE}"
        ) from error
    require(not is_script, f"{path} is a TorchScript model, not the weights of one; {SAVE}")
    return _state_dict(path, _load(path))


def _load(path: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a file made to do harm can lead to an error of any kind
        refused = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"it holds {refused[1]}" if refused else first_line(error)
        raise GraphMendError(
            f"{path} is a pickled model, or holds more than tensors and plain values ({reason}), and to read it would "
            f"run code from the file; {SAVE}"
        ) from error


def _state_dict(path: Path, content: Any) -> dict[str, Tensor]:
    """The weights in what a file holds."""
    kind = type(content).__name__
    require(isinstance(content, dict), f"{path} holds a {kind}, not a state_dict; {SAVE}")
    part = next((content[name] for name in PARTS if isinstance(content.get(name), dict)), content)
    named = isinstance(part, dict) and len(part) > 0 and all(isinstance(name, str) for name in part)
    is_weights = named and all(isinstance(value, Tensor) for value in part.values())
    keys = listed(list(content)[:5])
    require(is_weights, f"{path} holds no state_dict by itself or under {' or '.join(PARTS)} (but {keys}); {SAVE}")
    return dict(part)
