"""Digests: of a model's weights, computed once in a call, and of a report with the files that belong to it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphmend.files.files import digest
from graphmend.wrappers import unwrapped

__all__ = ["is_sealed", "model_digest", "sealed", "unchanged"]

_DIGESTS: ContextVar[dict[int, str]] = ContextVar("graphmend_digests")
_UNCHANGED: ContextVar[frozenset[int]] = ContextVar("graphmend_unchanged", default=frozenset())


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """A block in which the weights do not change, so that their digest is computed at most once."""
    outer = _UNCHANGED.get()
    if id(model) in outer:
        yield
        return
    marked, digests = _UNCHANGED.set(outer | {id(model)}), _DIGESTS.set({**_DIGESTS.get({})})
    try:
        yield
    finally:
        _UNCHANGED.reset(marked)
        _DIGESTS.reset(digests)


def model_digest(model: nn.Module) -> str:
    """A digest of the model's weights, which does not depend on the floating-point type that holds them."""
    if id(model) not in _UNCHANGED.get():
        return _digest(model)
    digests = _DIGESTS.get()
    if id(model) not in digests:
        digests[id(model)] = _digest(model)
    return digests[id(model)]


def _digest(model: nn.Module) -> str:
    tensors = {name: value for name, value in unwrapped(model).state_dict().items() if isinstance(value, Tensor)}
    dense = {name: value for name, value in tensors.items() if value.layout == torch.strided}
    return digest({name: value.double() if value.is_floating_point() else value for name, value in dense.items()})


def sealed(report: Mapping[str, Any], files: Iterable[Path]) -> dict[str, Any]:
    """A report with the digests of the files and folders that it is about, and one of itself."""
    whole = {**report, "files": _digests(files)}
    return {**whole, SEAL: _digest_of_json(whole)}


def is_sealed(report: Mapping[str, Any], files: Iterable[Path]) -> bool:
    """Whether report and files are those that :func:`sealed` saw."""
    whole = {name: value for name, value in report.items() if name != SEAL}
    try:
        return report.get(SEAL) == _digest_of_json(whole) and whole.get("files") == _digests(files)
    except OSError:  # a file is missing
        return False


SEAL = "checksum"


def _digests(files: Iterable[Path]) -> dict[str, str]:
    return {path.name: _digest_of_folder(path) if path.is_dir() else _digest_of_file(path) for path in files}


def _digest_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of_folder(folder: Path) -> str:
    return _digest_of_json({path.name: _digest_of_file(path) for path in folder.iterdir()})


def _digest_of_json(value: Mapping[str, Any]) -> str:
    plain = json.loads(json.dumps(value))  # as it comes back from a file
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
