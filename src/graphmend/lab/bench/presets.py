"""The paper's search grids and released settings, from ``presets.toml``, and its results, from ``paper.toml``."""

from __future__ import annotations

import copy
import functools
import tomllib
from importlib.resources import files
from typing import Any

from graphmend.errors import choose

__all__ = ["paper", "preset", "presets"]


def preset(*path: str) -> dict[str, Any]:
    """A table of ``presets.toml`` by the names that lead to it; a wrong one is answered with the names there are.

    Example:
        >>> preset("gtrans", "ood", "cora-ood", "gcn")["lr_feature"]
        0.001
    """
    table: Any = _read("presets")
    for depth, name in enumerate(path):
        table = choose(" ".join(("preset", *path[:depth])), name, table)
    return copy.deepcopy(table)


def presets() -> dict[str, Any]:
    """Everything in ``presets.toml``."""
    return copy.deepcopy(_read("presets"))


def paper(name: str) -> dict[str, Any]:
    """The paper's numbers of one experiment.

    Example:
        >>> paper("ood_accuracy")["gcn"]["gtrans"]["cora-ood"]
        [94.66, 0.63]
    """
    table: dict[str, Any] = choose("table of the paper", name, _read("paper"))
    return copy.deepcopy(table)


@functools.cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(files("graphmend.lab.bench").joinpath(f"{name}.toml").read_text(encoding="utf-8"))
