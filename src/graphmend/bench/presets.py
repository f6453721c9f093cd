"""The paper's search grids and the released tuned values, from ``presets.toml``."""

from __future__ import annotations

import copy
import functools
import tomllib
from importlib.resources import files
from typing import Any

from graphmend.errors import choose

__all__ = ["preset", "presets"]


def preset(*path: str) -> dict[str, Any]:
    """A table of ``presets.toml`` by the names that lead to it; a wrong one is answered with the names there are.

    Example:
        >>> preset("gtrans", "ood", "cora-ood", "gcn")["lr_feature"]
        0.001
    """
    table: Any = _read()
    for depth, name in enumerate(path):
        table = choose(" ".join(("preset", *path[:depth])), name, table)
    return copy.deepcopy(table)


def presets() -> dict[str, Any]:
    """Everything in ``presets.toml``."""
    return copy.deepcopy(_read())


@functools.cache
def _read() -> dict[str, Any]:
    return tomllib.loads(files("graphmend.bench").joinpath("presets.toml").read_text(encoding="utf-8"))
