"""Limits from the command line: arrays in the graph file by name, and numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import GraphMendError, listed, require
from graphmend.graph.limits import Limits

MASKS = ("frozen_nodes", "frozen_columns", "frozen_edges")


def limits_of(data: Data, options: dict[str, Any], path: Path) -> Limits:
    """What must not change in a graph, checked.

    Args:
        data: The graph.
        options: The names of arrays by the names in :data:`MASKS`, ``None`` for the array of that very name if there
            is one; ``minimum`` and ``maximum``; ``binary`` and ``non_negative``, which are about all columns.
        path: The file of the graph, for the message.
    """
    every = torch.ones(data.x.size(1), dtype=torch.bool)
    limits = Limits(
        **{name: _mask(data, name, options[name], path) for name in MASKS},
        minimum=options["minimum"],
        maximum=options["maximum"],
        binary=every if options["binary"] else None,
        non_negative=every if options["non_negative"] else None,
    )
    try:
        limits.check(data)
    except GraphMendError as error:
        raise GraphMendError(f"{path}: {error}") from error
    return limits


def _mask(data: Data, option: str, given: str | None, path: Path) -> Any:
    """A mask as it is in the file, 0 and 1 as booleans; what else may be wrong with it is for ``Limits`` to say."""
    mask = data.get(option if given is None else given)
    flag = f"--{option.replace('_', '-')}"
    require(given is None or mask is not None, f"{flag}: {path} has no array {given!r}; it has {listed(data.keys())}")
    is_mask = isinstance(mask, Tensor) and not mask.is_floating_point() and bool(((mask == 0) | (mask == 1)).all())
    return mask.bool() if is_mask else mask
