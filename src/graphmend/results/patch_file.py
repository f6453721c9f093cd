"""Patches on disk. A file may come from anybody, so one that could not fit any graph is refused when it is read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmend.errors import GraphMendError, require
from graphmend.files.array_folders import read_arrays, write_arrays
from graphmend.files.files import path_of, read_header, read_json, read_safetensors, write_safetensors
from graphmend.outputs import FLOATS

__all__ = ["FORMAT", "as_json", "check_parts", "read_patch", "with_prefix", "write_patch", "write_patch_folder"]

FORMAT = "graphmend-patch-6"
NOTE = "patch.json"
BITS = (torch.uint8, torch.int16, torch.int32, torch.int64)
MOST = 2**62  # of nodes or edges, which are counted in 64 bits
_WRITTEN = {"kind": "GraphMend patch", "written_by": "Patch.save", "remedy": "mend again"}


def write_patch(path: str | Path, tensors: Mapping[str, Tensor], rest: Mapping[str, Any]) -> None:
    """Write the parts of a patch as safetensors with a JSON header, atomically."""
    write_safetensors(path, tensors, {"graphmend": json.dumps({"format": FORMAT, **rest})})


def write_patch_folder(folder: str | Path, tensors: Mapping[str, Tensor], rest: Mapping[str, Any]) -> None:
    """Write the parts of a patch as a folder of arrays, a block at a time."""
    write_arrays(folder, tensors, {"format": FORMAT, **rest}, file=NOTE)


def read_patch(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the header of a patch; :func:`check_parts` says whether they could fit any graph."""
    if (path_of(path) / NOTE).is_file():
        return _read_folder(path_of(path))
    tensors, metadata = read_safetensors(path)
    try:
        return tensors, read_header(path, metadata, FORMAT, **_WRITTEN)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, GraphMendError):
            raise
        raise GraphMendError(f"the patch {path} is incomplete ({error!r:.80}); write it again") from error


def _read_folder(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    remedy = "write it again"
    note = read_json(folder / NOTE)
    kind = note.get("format") if isinstance(note, dict) else None
    require(kind == FORMAT, f"{folder / NOTE} has the format {str(kind)[:40]!r}, this version reads {FORMAT}; {remedy}")
    return read_arrays(folder, note.get("arrays"), verify=True, file=NOTE, remedy=remedy), note


def check_parts(tensors: dict[str, Tensor], header: Mapping[str, Any], path: str | Path) -> None:
    """Raise unless the parts of a patch are whole and without contradictions."""
    try:
        problem = _problem(tensors, header)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise GraphMendError(f"the patch {path} is incomplete ({error!r:.80}); write it again") from error
    require(problem is None, f"the patch {path} fits no graph: {problem}; mend again")


def with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names have this prefix, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def as_json(name: str, value: Any) -> Any:
    """A sequence in the types that JSON returns as they were."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufU":
        value = value.tolist()
    plain = value is None or type(value) in (str, int, float, bool, list)
    require(
        plain,
        f"a patch file cannot keep the {name} of the removed edges, of type {type(value).__name__}; "
        "keep it as a tensor, or as numbers or text",
    )
    return [as_json(name, item) for item in value] if isinstance(value, list) else value


def _problem(tensors: dict[str, Tensor], header: Mapping[str, Any]) -> str | None:
    """What cannot be true of any graph, if anything; nothing is computed from unchecked values."""
    before, nodes, edges = header["before"], header["nodes"], header["edges"]
    if not isinstance(before, str) or re.fullmatch("[0-9a-f]{64}", before) is None:
        return "its fingerprint is not one"
    whole = type(nodes) is int and type(edges) is int
    if not whole or not 0 < nodes < MOST or not 0 <= edges < MOST:
        return f"it is for {str(nodes)[:20]} nodes and {str(edges)[:20]} edges"
    allowed = {"rows", "bits", "removed", "weight_bits", "new_weights"}
    unknown = [name for name in tensors if name not in allowed and not name.startswith(("removed.", "added."))]
    if unknown:
        return f"{unknown[0]!r:.40} means nothing"
    removed, added = with_prefix(tensors, "removed."), with_prefix(tensors, "added.")
    return (
        _problem_of_places("rows", tensors["rows"], nodes)
        or _problem_of_places("removed", tensors["removed"], edges)
        or _problem_of_bits(tensors["bits"], tensors["rows"].numel())
        or _problem_of_attributes(removed, tensors["removed"].numel(), nodes)
        or _problem_of_attributes(added, None, nodes)
        or _problem_of_kinds(removed, added)
        or _problem_of_weights(tensors, removed, added, edges)
        or _problem_of_sequences(header["sequences"], tensors["removed"].numel())
    )


def _problem_of_places(name: str, places: Tensor, count: int) -> str | None:
    if places.dtype != torch.long or places.dim() != 1:
        return f"{name} is {_kind(places)}"
    if places.numel() and (int(places.min()) < 0 or int(places.max()) >= count):
        return f"{name} names {int(places.min())} to {int(places.max())}, but there are {count}"
    if bool((places[1:] <= places[:-1]).any()):
        return f"{name} is not ascending"
    return None


def _problem_of_bits(bits: Tensor, rows: int) -> str | None:
    fits = bits.dtype in BITS and bits.dim() == 2 and bits.size(0) == rows and bits.size(1) > 0
    return None if fits else f"bits is {_kind(bits)} for {rows} rows"


def _problem_of_attributes(attributes: dict[str, Tensor], count: int | None, nodes: int) -> str | None:
    ends = attributes["edge_index"]
    if ends.dtype != torch.long or ends.dim() != 2 or ends.size(1) != 2:
        return f"edge_index is {_kind(ends)}"
    if ends.numel() and (int(ends.min()) < 0 or int(ends.max()) >= nodes):
        return f"an edge joins the nodes {int(ends.min())} and {int(ends.max())} of {nodes}"
    for name, value in attributes.items():
        if value.dim() == 0 or value.size(0) != (ends.size(0) if count is None else count):
            return f"{name!r:.40} is {_kind(value)}"
    weight = attributes.get("edge_weight")
    finite = weight is None or not weight.is_floating_point() or _is_finite(weight)
    return None if finite else "an edge weight is not finite"


def _problem_of_kinds(removed: dict[str, Tensor], added: dict[str, Tensor]) -> str | None:
    first, second = ({name: (t.dtype, t.shape[1:]) for name, t in group.items()} for group in (removed, added))
    return None if first == second else "removed and added edges have different attributes"


def _problem_of_weights(
    tensors: dict[str, Tensor], removed: dict[str, Tensor], added: dict[str, Tensor], edges: int
) -> str | None:
    bits, new = tensors.get("weight_bits"), tensors.get("new_weights")
    kept, old = edges - tensors["removed"].numel(), removed.get("edge_weight")
    if bits is not None:
        width = None if old is None else old.element_size()
        fits = bits.dtype in BITS and bits.shape == (kept,) and bits.element_size() == width
        if not fits:
            return f"weight_bits is {_kind(bits)} for {kept} edges"
    if new is not None:
        shape = (kept + added["edge_index"].size(0),)
        if old is not None or not new.is_floating_point() or new.shape != shape or not _is_finite(new):
            return f"new_weights is {_kind(new)} for {shape[0]} edges without weights, or not finite"
    return None


def _problem_of_sequences(sequences: Any, removed: int) -> str | None:
    """They are lists with one entry per removed edge, or lists of such lists with one per graph."""
    if not isinstance(sequences, dict):
        return "its sequences are not listed by name"
    for name, value in sequences.items():
        nested = isinstance(value, list) and all(isinstance(piece, list) for piece in value)
        count = sum(map(len, value)) if nested else math.nan
        if not isinstance(value, list) or removed not in (len(value), count):
            return f"{name!r:.40} has not one entry per removed edge"
    return None


def _is_finite(value: Tensor) -> bool:
    return value.dtype in FLOATS and bool(value.isfinite().all())


def _kind(value: Tensor) -> str:
    return f"{value.dtype} of shape {tuple(value.shape)}"
