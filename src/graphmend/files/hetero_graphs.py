"""A ``HeteroData`` as one attribute per type and name, ``paper.x`` and ``author__writes__paper.edge_index``."""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from torch_geometric.data import HeteroData

from graphmend.errors import require

LARGEST = 2**26  # bytes of what a file says about its tensors
_NAME = b"torch_geometric.data.hetero_data"

__all__ = ["are_of_types", "flat", "hetero_of", "is_hetero_file", "own_name", "store_name"]


def are_of_types(names: Collection[str]) -> bool:
    """Whether names of attributes are those of a ``HeteroData``; a plain graph may have names with dots, too."""
    return not {"x", "edge_index"} & set(names) and any(name.endswith(".x") for name in names)


def is_hetero_file(path: Path) -> bool:
    """Whether a file holds a ``HeteroData``, judged by the list of its contents; it is checked later."""
    try:
        with zipfile.ZipFile(path) as archive:
            if path.suffix.lower() == ".npz":
                return are_of_types([name.removesuffix(".npy") for name in archive.namelist()])
            pickled = [item for item in archive.infolist() if item.filename.endswith("data.pkl")]
            return any(item.file_size <= LARGEST and _NAME in archive.read(item) for item in pickled)
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError):
        return False


def own_name(name: str, names: Collection[str]) -> str:
    """The name of an attribute without its type, if such names have one."""
    return name.rpartition(".")[2] if are_of_types(names) else name


def flat(path: Path, data: HeteroData) -> dict[str, Any]:
    """The attributes of a graph by type and name; those of the graph as a whole by their names.

    Args:
        path: The file, for messages.
        data: The graph.
    """
    out: dict[str, Any] = {}
    for store in data.stores:
        start = "" if store._key is None else f"{store_name(path, store._key)}."
        for name, value in store.items():
            require("." not in name, f"{path}: an attribute cannot have the name {name[:40]!r} with a dot; rename it")
            out[f"{start}{name}"] = value
    return out


def store_name(path: Path, kind: Any) -> str:
    """A node type, or an edge type in one word.

    Args:
        path: The file, for messages.
        kind: The type.
    """
    parts = [kind] if isinstance(kind, str) else kind
    is_type = isinstance(parts, (list, tuple)) and len(parts) in (1, 3)
    is_sound = is_type and all(isinstance(part, str) and part and "__" not in part for part in parts)
    require(is_sound, f"{path}: a type cannot have the name {str(kind)[:80]!r}; use one without '__'")
    return "__".join(parts)


def hetero_of(path: Path, attributes: Mapping[str, Any]) -> HeteroData:
    """The graph with such attributes.

    Args:
        path: The file, for messages.
        attributes: As :func:`flat` returns them.
    """
    data = HeteroData()
    for full, value in attributes.items():
        kind, _, name = full.rpartition(".")
        parts = tuple(kind.split("__"))
        if not kind:
            data[name] = value
            continue
        require(
            len(parts) in (1, 3) and all(parts),
            f"{path}: {full[:80]!r} belongs to no node type and no edge type; write TYPE.NAME or A__RELATION__B.NAME",
        )
        data[kind if len(parts) == 1 else parts][name] = value
    return data
