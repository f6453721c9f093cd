"""Graphs as ``.npz``: one plain array per tensor, and a JSON note with whatever arrays cannot express."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmend.errors import GraphMendError, listed, require
from graphmend.files.archives import ArrayFile, ArrayHeader, check_size
from graphmend.files.files import Array, escaped, first_line, open_arrays, write_arrays
from graphmend.files.hetero_graphs import are_of_types

FORMAT = "graphmend-graph-1"
NOTE = "graphmend.json"
"""The entry with numbers, texts and lists of those, and with types that would otherwise be read as others."""

TYPES = {
    str(kind).removeprefix("torch."): kind
    for kind in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.uint16, torch.uint32, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.complex64, torch.complex128),
    )
}
"""The types of tensors that a file of a graph may hold, by name."""

DEPTH = 20  # of lists in lists


def read_npz(path: Path) -> dict[str, Any]:
    """The attributes of a graph; sizes are checked before any array is read."""
    with open_arrays(path, "write it again") as file:
        names = file.files
        missing = [name for name in ("x", "edge_index") if name not in names and not are_of_types(names)]
        has = escaped(listed(names)) or "none"
        require(not missing, f"{path} has no array {' and no '.join(missing)}; it has {has}")
        note = read_note(path, file)
        headers = {name: file.header(name) for name in names}
        for name, header in headers.items():
            is_number = header.dtype.kind in "biufc" and header.dtype.subdtype is None
            require(is_number, f"{path}: {name!r} holds {_type_name(header)}, not numbers; convert it or leave it out")
        check_size(path, sum(_needed(name, header, name in note["types"]) for name, header in headers.items()))
        tensors = {name: tensor_of(path, name, file[name], note["types"].get(name)) for name in names}
    return {**note["values"], **tensors}


def write_npz(path: Path, attributes: Mapping[str, Any]) -> None:
    """Write attributes that :func:`npz_can_hold`; the note is written only if there is something to note."""
    tensors = {name: value for name, value in attributes.items() if isinstance(value, Tensor)}
    values = {name: value for name, value in attributes.items() if name not in tensors}
    arrays = {name: _array(value) for name, value in tensors.items()}
    kinds = {name: str(value.dtype).removeprefix("torch.") for name, value in tensors.items()}
    types = {name: kind for name, kind in kinds.items() if _read_as(name, arrays[name].dtype).name != kind}
    note = json.dumps({"format": FORMAT, "types": types, "values": values})
    write_arrays(path, arrays, {NOTE: note} if types or values else None)


def npz_can_hold(value: Any, depth: int = 0) -> bool:
    """Whether :func:`read_npz` returns an attribute unchanged: dense tensors, and values that survive JSON."""
    if isinstance(value, Tensor):
        is_plain = value.layout == torch.strided and value.device.type == "cpu" and not value.is_nested
        return is_plain and value.dtype in TYPES.values() and depth == 0
    if type(value) is list and depth < DEPTH:
        return all(npz_can_hold(item, depth + 1) for item in value)
    if type(value) is dict and depth < DEPTH:
        return all(type(key) is str and npz_can_hold(item, depth + 1) for key, item in value.items())
    if type(value) is int:
        return value.bit_length() < 64
    return value is None or type(value) in (str, float, bool)


def _array(value: Tensor) -> Array:
    """The same bits as an array; a type that NumPy does not have is written as integers."""
    plain = value.view(torch.int16) if value.dtype == torch.bfloat16 else value
    array: Array = plain.numpy()
    return array


def read_note(path: Path, file: ArrayFile) -> dict[str, dict[str, Any]]:
    """What the note in an archive says: types by name, and values that are no arrays."""
    text = file.text(NOTE)
    if text is None:
        return {"types": {}, "values": {}}
    try:
        note = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GraphMendError(f"{path}: its {NOTE} is damaged ({first_line(error)}); write it again") from error
    is_ours = isinstance(note, dict) and note.get("format") == FORMAT
    require(is_ours, f"{path}: its {NOTE} is not of the format {FORMAT}; write it again")
    types, values = note.get("types"), note.get("values")
    is_sound = isinstance(types, dict) and isinstance(values, dict)
    is_sound = is_sound and all(isinstance(kind, str) and kind in TYPES for kind in types.values())
    require(is_sound, f"{path}: its {NOTE} is damaged; write it again")
    return {"types": types, "values": values}


def _type_name(header: ArrayHeader) -> str:
    return {"U": "text", "S": "text", "V": "records"}.get(header.dtype.kind, str(header.dtype))


def _read_as(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type that an array becomes: one of torch, of which few operations take wide unsigned integers.

    Ends of edges and labels become int64, as losses and indices expect them.
    """
    name = name.rpartition(".")[2]  # an array of a HeteroData is named after its type first
    if dtype.kind in "iu" and (name == "edge_index" or (dtype.kind == "u" and dtype.itemsize > 1)):
        return np.dtype(np.int64)
    if dtype.kind in "biu" and name == "y":
        return np.dtype(np.int64)
    if dtype.kind in "fc" and dtype.itemsize > {"f": 8, "c": 16}[dtype.kind]:  # more digits than torch has
        return np.dtype(np.float64 if dtype.kind == "f" else np.complex128)
    return dtype.newbyteorder("=")


def _needed(name: str, header: ArrayHeader, is_typed: bool) -> int:
    """Bytes to read an array and, where that changes it, to convert it."""
    target = header.dtype.newbyteorder("=") if is_typed else _read_as(name, header.dtype)
    converted = header.num_values * target.itemsize if target != header.dtype or header.is_fortran else 0
    return header.num_bytes + converted


def tensor_of(path: Path, name: str, array: Array, kind: str | None) -> Tensor:
    """An array as the tensor that a graph has."""
    if array.dtype.kind == "b":
        array = np.asarray(array.view(np.uint8) != 0)  # a byte other than 0 and 1 is undefined in a tensor
    if kind is not None:
        dtype = TYPES[kind]
        fits = array.dtype.itemsize == dtype.itemsize
        require(fits, f"{path}: {name!r} is said to be {kind}, but holds {array.dtype}; write it again")
        return _converted(array, array.dtype.newbyteorder("=")).view(dtype)
    target = _read_as(name, array.dtype)
    too_large = array.dtype.kind == "u" and array.size > 0 and int(array.max()) > torch.iinfo(torch.int64).max
    require(not too_large, f"{path}: {name!r} holds integers above 2^63 - 1; convert them")
    return _converted(array, target)


def _converted(array: Array, target: np.dtype[Any]) -> Tensor:
    with np.errstate(all="ignore"):  # numbers that do not fit become infinite, which the check of the graph reports
        tensor = torch.from_numpy(array.astype(target, order="C", copy=False))
    return tensor if tensor.numel() > 0 else tensor.new_empty(tensor.shape)  # NumPy's have steps of 0 bytes
