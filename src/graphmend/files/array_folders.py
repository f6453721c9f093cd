"""Folders of ``.npy`` arrays that are mapped when they are read, and written a block at a time.

A folder that is being written is called ``NAME.partial`` and has a journal of the blocks that are on the disk. After a
crash, a full disk or Ctrl-C the same call continues with the block it was writing. The note that describes the arrays
is written last, and then the folder gets its name, so a folder is never incomplete.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmend.errors import GraphMendError, require
from graphmend.files.array_graphs import TYPES
from graphmend.files.files import Array, check_folder, first_line, path_of, read_json, within, write_text

__all__ = [
    "check_replaceable",
    "checksum",
    "create_array",
    "open_array",
    "open_tensor",
    "read_arrays",
    "replace_folder",
    "write_arrays",
]

JOURNAL, LOCK = "journal.json", "lock"
BLOCK = 1 << 26  # bytes that are written at a time
_CHUNK = 1 << 24  # bytes of a file that are read at a time


def write_arrays(folder: str | Path, tensors: Mapping[str, Tensor], note: Mapping[str, Any], *, file: str) -> Path:
    """Write tensors and a note about them; a call that was interrupted continues where it was.

    Args:
        folder: The folder to create; it must not exist.
        tensors: The tensors by name.
        note: Everything else, for JSON. With other tensors or another note, writing starts afresh.
        file: The name of the JSON file, in which ``arrays`` gets the types, shapes and checksums of the tensors.
    """
    target = path_of(folder)
    require(not target.exists(), f"{target} is there already; remove it or choose another folder")
    check_folder(target)
    work = target.with_name(target.name + ".partial")
    try:
        work.mkdir(parents=True, exist_ok=True)
        with _alone(work):
            _fill(work, tensors, note, file)
            for name in (JOURNAL, LOCK):
                (work / name).unlink(missing_ok=True)
            work.rename(target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise GraphMendError(
            f"cannot write into {work}: {reason}; make room, and run the same call again to resume"
        ) from error
    return target


def check_replaceable(folder: Path, file: str) -> None:
    """Raise, before any work is done, unless a folder can be written, or replaced because it has the note ``file``."""
    check_folder(folder)
    is_ours = not folder.exists() or (folder / file).is_file()
    require(is_ours, f"cannot replace {folder}, which has no {file}; remove it or choose another place")
    check_folder(folder.resolve().parent)


def replace_folder(folder: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` make a folder; one that is there is replaced when the new one is complete.

    Args:
        folder: The folder, which :func:`check_replaceable` has accepted.
        write: Makes a folder that is not there, and goes on after an interruption, as :func:`write_arrays` does.
    """
    target = folder.resolve()
    new, old = (target.with_name(f".{target.name}.graphmend-{age}") for age in ("new", "old"))
    for left in (new, old):  # a process that was killed left it here
        shutil.rmtree(left, ignore_errors=True)
    if not target.exists():
        write(target)
        return
    write(new)
    try:
        target.rename(old)
        new.rename(target)
    except OSError as error:
        raise GraphMendError(f"cannot replace {folder}: {error.strerror or error}; choose another place") from error
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """Keep other writers out, here and in other processes."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with (work / LOCK).open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise GraphMendError(
                f"{work} is being written by another process; wait for it, or choose another folder"
            ) from error
        yield


def _fill(work: Path, tensors: Mapping[str, Tensor], note: Mapping[str, Any], file: str) -> None:
    kinds = {
        name: {"type": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
        for name, value in tensors.items()
    }
    contents = {name: _content(_as_array(value.detach().cpu())) for name, value in tensors.items()}
    identity = json.loads(json.dumps({"note": dict(note), "arrays": kinds, "contents": contents}))
    journal = read_json(work / JOURNAL) if (work / JOURNAL).is_file() else {}
    if journal.get("of") != identity:
        for path in work.iterdir():
            if path.name != LOCK:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        journal = {"of": identity, "rows": {}}
    rows: dict[str, int] = journal["rows"]
    for name, value in tensors.items():
        path = within(work, f"{name}.npy")
        source = _as_array(value.detach().cpu())
        if name in rows:
            array = open_array(path, "write it again", "r+")
        else:
            array = create_array(path, source.shape, source.dtype)
        step = max(1, BLOCK // max(1, source[:1].nbytes))
        for start in range(rows.get(name, 0), max(1, len(source)), step):
            stop = min(len(source), start + step)
            array[start:stop] = source[start:stop]
            if isinstance(array, np.memmap):
                array.flush()
            rows[name] = stop
            write_text(work / JOURNAL, json.dumps(journal))
    arrays = {name: {**kind, "checksum": checksum(work / f"{name}.npy")} for name, kind in kinds.items()}
    write_text(work / file, json.dumps({**note, "arrays": arrays}, indent=2) + "\n")


def read_arrays(folder: Path, arrays: Any, *, verify: bool, file: str, remedy: str) -> dict[str, Tensor]:
    """The tensors of a folder, mapped.

    Args:
        folder: The folder.
        arrays: What its note says about them.
        verify: Whether to compare the checksums.
        file: The name of the note, for messages.
        remedy: What to do about a damaged one.
    """
    require(isinstance(arrays, dict), f"{folder / file} is damaged; {remedy}")
    return {name: open_tensor(folder, name, entry, verify, file, remedy) for name, entry in arrays.items()}


def open_tensor(folder: Path, name: str, entry: Any, verify: bool, note: str, remedy: str) -> Tensor:
    """A tensor of a folder, mapped; what is written into it never reaches the file."""
    file = within(folder, f"{name}.npy")
    require(isinstance(entry, dict) and entry.get("type") in TYPES, f"{folder / note} is damaged at {name!r}; {remedy}")
    array = open_array(file, remedy)
    shape = tuple(entry.get("shape", ()))
    require(
        array.shape == shape and array.dtype.isnative,
        f"{file} has the shape {array.shape}, but {note} says {shape}; {remedy}",
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
    with file.open("rb") as stream:
        while piece := stream.read(_CHUNK):
            total = zlib.crc32(piece, total)
    return f"{total:08x}"


def _content(array: Array) -> str:
    """A checksum of the numbers of an array."""
    total, step = 0, max(1, _CHUNK // max(1, array[:1].nbytes))
    for start in range(0, len(array), step):
        total = zlib.crc32(array[start : start + step].tobytes(), total)
    return f"{total:08x}"


def _as_array(tensor: Tensor) -> Array:
    out: Array = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return out
