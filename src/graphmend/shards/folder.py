"""A graph as a folder of ``.npy`` arrays, which are mapped into memory: nothing is read before it is used.

The folder holds ``x.npy``, ``edge_index.npy`` sorted by target and then by source, ``offsets.npy`` (where the edges of
each target begin: compressed rows by destination), one array for every further attribute, and ``graph.json``, which
names them with types, shapes and checksums. It is written last, so a folder is complete or has none.
"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphmend.errors import GraphMendError, require, whole_number
from graphmend.files.array_folders import checksum, create_array, open_array, read_arrays
from graphmend.files.files import check_folder, path_of, read_json, write_text
from graphmend.files.graph_files import load_graph
from graphmend.graph.canonical import EDGES
from graphmend.graph.checks import check_graph
from graphmend.graph.mapped import MappedGraph, Mapper

__all__ = [
    "NOTE",
    "checksum",
    "create_array",
    "digest_of",
    "open_array",
    "open_graph",
    "read_graph",
    "write_note",
]

FORMAT = "graphmend-folder-1"
NOTE = "graph.json"
PLAIN = (str, int, float, bool)


def read_graph(path: str | Path, *, missing_allowed: bool = True, keep: Path | None = None) -> Any:
    """A graph from a file, read, or from a graph folder, mapped; checked.

    Args:
        path: The file or the folder.
        missing_allowed: Whether features may be missing.
        keep: Where results of shards of a graph folder are kept, see :func:`open_graph`.
    """
    if not path_of(path).is_dir():
        return load_graph(path, missing_allowed=missing_allowed)
    data = open_graph(path, keep=keep)
    try:
        check_graph(data, missing_allowed=missing_allowed)
    except GraphMendError as error:
        raise GraphMendError(f"{path}: {error}") from error
    return data


def open_graph(
    path: str | Path,
    *,
    verify: bool = True,
    shards: int | None = None,
    workers: Mapper | None = None,
    keep: str | Path | None = None,
) -> MappedGraph:
    """A graph folder, mapped into memory, for :func:`graphmend.card` and :func:`graphmend.mend`.

    The arrays are private: what is written into them never reaches the folder.

    Args:
        path: The folder, written by :func:`graphmend.shards.pack` or ``graphmend pack``.
        verify: Whether to compare the checksums, which reads every byte once; types and sizes are always compared.
        shards: In how many shards a model runs; the free memory decides when ``None``.
        workers: Who works on the shards, such as :class:`graphmend.workers.local.Local`; this process when ``None``.
            All of them have to see the folder.
        keep: A folder for the results of shards: a call that follows an interrupted one reads those that are there.
            Remove it when you have what you want.

    Example:
        >>> import graphmend
        >>> from graphmend.lab.data import embedded
        >>> from graphmend.shards import pack
        >>> _ = pack("wine", embedded("wine").test[0])
        >>> graph = graphmend.open_graph("wine")
        >>> graph.num_nodes, tuple(graph.x.shape)
        (178, (178, 13))
    """
    folder = path_of(path).absolute()
    remedy = "pack the graph again"
    require(folder.is_dir(), f"there is no graph folder {folder}; make it with 'graphmend pack'")
    left = folder.parent / f"{folder.name}.partial"
    hint = f"; {left} is unfinished, run 'graphmend pack' again to resume" if left.exists() else f"; {remedy}"
    require((folder / NOTE).is_file(), f"{folder} has no {NOTE}, so it is no complete graph folder{hint}")
    note = read_json(folder / NOTE)
    kind = note.get("format") if isinstance(note, dict) else None
    require(kind == FORMAT, f"{folder / NOTE} has the format {str(kind)[:40]!r}, this version reads {FORMAT}; {remedy}")
    arrays = note.get("arrays")
    values = note.get("values", {})
    is_sound = isinstance(arrays, dict) and isinstance(values, dict) and {"x", "edge_index", "offsets"} <= set(arrays)
    require(is_sound, f"{folder / NOTE} is damaged; {remedy}")
    number = None if shards is None else whole_number("shards", shards, 1)
    tensors = read_arrays(folder, arrays, verify=verify, file=NOTE, remedy=remedy)
    offsets = tensors.pop("offsets")
    data = MappedGraph()
    for name, value in {**values, **tensors}.items():
        data[name] = value
    nodes, edges = data.x.size(0), data.edge_index.size(1)
    fits = offsets.numel() == nodes + 1 and int(offsets[0]) == 0 and int(offsets[-1]) == edges
    require(fits, f"{folder}: offsets.npy does not fit {nodes} nodes and {edges} edges; {remedy}")
    if verify:
        _check_edges(folder, data.edge_index, offsets, remedy)
    data.mapped_from(
        folder,
        offsets,
        symmetric=note.get("symmetric") is True,
        shards=number,
        workers=workers,
        opened=partial(open_graph, verify=False),
        digest=digest_of(folder),
        keep=None if keep is None else path_of(keep).absolute(),
    )
    return data


def digest_of(folder: Path) -> str:
    """A digest of what :data:`NOTE` says of a folder, the checksums of all arrays among it."""
    return hashlib.sha256((folder / NOTE).read_bytes()).hexdigest()


def _check_edges(folder: Path, edge_index: Tensor, offsets: Tensor, remedy: str) -> None:
    """Raise unless all ends of edges are nodes, and the edges are sorted by target as the offsets say."""
    nodes, last = offsets.numel() - 1, -1
    counts = torch.zeros(nodes, dtype=torch.long)
    for start in range(0, edge_index.size(1), EDGES):
        source, target = edge_index[:, start : start + EDGES]
        wrong = (source < 0) | (source >= nodes) | (target < 0) | (target >= nodes)
        before = torch.cat([target.new_tensor([last]), target[:-1]])
        for bad, reason in (
            (wrong, f"but the nodes are 0 to {nodes - 1}"),
            (target < before, "after an edge into a later node: the edges are not sorted by target"),
        ):
            if bool(bad.any()):
                k = int(bad.nonzero()[0])
                edge = f"edge {start + k} (counted from 0) leads from node {int(source[k])} to node {int(target[k])}"
                require(False, f"{folder}: {edge}, {reason}; {remedy}")
        counts += torch.bincount(target, minlength=nodes)
        last = int(target[-1])
    same = torch.equal(counts, offsets.diff())
    require(same, f"{folder}: offsets.npy does not say where the edges of each target begin; {remedy}")


def write_note(folder: Path, arrays: dict[str, dict[str, Any]], values: dict[str, Any], symmetric: bool) -> None:
    """Write what makes a folder a graph."""
    check_folder(folder)
    note = {"format": FORMAT, "arrays": arrays, "values": values, "symmetric": symmetric}
    write_text(folder / NOTE, json.dumps(note, indent=2) + "\n")
