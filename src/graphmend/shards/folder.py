"""A graph as a folder of ``.npy`` arrays, which are mapped into memory: nothing is read before it is used.

The folder holds ``x.npy``, ``edge_index.npy`` sorted by target and then by source, ``offsets.npy`` (where the edges of
each target begin: compressed rows by destination), one array for every further attribute, and ``graph.json``, which
names them with types, shapes and checksums. It is written last, so a folder is complete or has none.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmend.errors import GraphMendError, require, whole_number
from graphmend.files.array_graphs import TYPES
from graphmend.files.files import Array, check_folder, first_line, path_of, read_json, within, write_text
from graphmend.files.graph_files import load_graph
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
_CHUNK = 1 << 24  # bytes of a file that are read at a time


def read_graph(path: str | Path, *, missing_allowed: bool = True) -> Any:
    """A graph from a file, read, or from a graph folder, mapped; checked."""
    if not path_of(path).is_dir():
        return load_graph(path, missing_allowed=missing_allowed)
    data = open_graph(path)
    try:
        check_graph(data, missing_allowed=missing_allowed)
    except GraphMendError as error:
        raise GraphMendError(f"{path}: {error}") from error
    return data


def open_graph(
    path: str | Path, *, verify: bool = True, shards: int | None = None, workers: Mapper | None = None
) -> MappedGraph:
    """A graph folder, mapped into memory, for :func:`graphmend.card` and :func:`graphmend.mend`.

    The arrays are private: what is written into them never reaches the folder.

    Args:
        path: The folder, written by :func:`graphmend.shards.pack` or ``graphmend pack``.
        verify: Whether to compare the checksums, which reads every byte once; types and sizes are always compared.
        shards: In how many shards a model runs; the free memory decides when ``None``.
        workers: Who works on the shards, such as :class:`graphmend.workers.local.Local`; this process when ``None``.
            All of them have to see the folder.
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
    tensors = {name: _opened(folder, name, entry, verify, remedy) for name, entry in arrays.items()}
    offsets = tensors.pop("offsets")
    data = MappedGraph()
    for name, value in {**values, **tensors}.items():
        data[name] = value
    nodes, edges = data.x.size(0), data.edge_index.size(1)
    fits = offsets.numel() == nodes + 1 and int(offsets[0]) == 0 and int(offsets[-1]) == edges
    require(fits, f"{folder}: offsets.npy does not fit {nodes} nodes and {edges} edges; {remedy}")
    data.mapped_from(
        folder,
        offsets,
        symmetric=note.get("symmetric") is True,
        shards=number,
        workers=workers,
        opened=partial(open_graph, verify=False),
        digest=digest_of(folder),
    )
    return data


def digest_of(folder: Path) -> str:
    """A digest of what :data:`NOTE` says of a folder, the checksums of all arrays among it."""
    return hashlib.sha256((folder / NOTE).read_bytes()).hexdigest()


def _opened(folder: Path, name: str, entry: Any, verify: bool, remedy: str) -> Tensor:
    file = within(folder, f"{name}.npy")
    require(isinstance(entry, dict) and entry.get("type") in TYPES, f"{folder / NOTE} is damaged at {name!r}; {remedy}")
    array = open_array(file, remedy)
    shape = tuple(entry.get("shape", ()))
    require(
        array.shape == shape and array.dtype.isnative,
        f"{file} has the shape {array.shape}, but {NOTE} says {shape}; {remedy}",
    )
    if verify:
        found, said = checksum(file), entry.get("checksum")
        require(found == said, f"{file} is damaged or was changed: its checksum is {found}, not {said}; {remedy}")
    tensor = torch.from_numpy(array)
    dtype = TYPES[entry["type"]]
    require(tensor.element_size() == dtype.itemsize, f"{file} holds {array.dtype}, not {entry['type']}; {remedy}")
    return tensor if tensor.dtype == dtype else tensor.view(dtype)


def open_array(file: Path, remedy: str, mode: str = "c") -> Array:
    """An array of a file, mapped; a file that is cut off is refused."""
    try:
        with file.open("rb") as stream:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, is_fortran, dtype = read(stream)
            start, size = stream.tell(), file.stat().st_size
        expected = start + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        whole = dtype.hasobject is False and not is_fortran and size == expected
        require(whole, f"{file} has {size} bytes instead of {expected}: it is cut off or was changed; {remedy}")
        if expected == start:
            return np.empty(shape, dtype)
        return np.memmap(file, dtype, mode, start, shape)  # type: ignore[call-overload,no-any-return]
    except GraphMendError:
        raise
    except (OSError, ValueError) as error:
        raise GraphMendError(f"{file} is no readable array ({first_line(error)}); {remedy}") from error


def create_array(file: Path, shape: tuple[int, ...], dtype: Any) -> Array:
    """A new array in a file, to be written to, whose space on the disk is taken at once: a full disk is noticed now."""
    array = np.lib.format.open_memmap(file, "w+", np.dtype(dtype), shape)
    size = file.stat().st_size
    with file.open("r+b") as stream:
        if hasattr(os, "posix_fallocate") and size:
            os.posix_fallocate(stream.fileno(), 0, size)
    return array


def checksum(file: Path) -> str:
    """A checksum of a file."""
    total = 0
    for piece in _pieces(file):
        total = zlib.crc32(piece, total)
    return f"{total:08x}"


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while piece := stream.read(_CHUNK):
            yield piece


def write_note(folder: Path, arrays: dict[str, dict[str, Any]], values: dict[str, Any], symmetric: bool) -> None:
    """Write what makes a folder a graph."""
    check_folder(folder)
    note = {"format": FORMAT, "arrays": arrays, "values": values, "symmetric": symmetric}
    write_text(folder / NOTE, json.dumps(note, indent=2) + "\n")
