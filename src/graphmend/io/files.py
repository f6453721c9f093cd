"""Files that are complete or absent: atomic writes, safe reads, and one sentence when something is wrong."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from graphmend.errors import GraphMendError, require

Array = np.ndarray[Any, np.dtype[Any]]

BROKEN = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError)
"""The errors that reading a damaged file can raise."""


def check_folder(path: Path) -> None:
    """Raise, before any work is done, unless results can be written into the folder ``path``."""
    require(not path.exists() or path.is_dir(), f"cannot write into {path}, which is a file; choose a folder")
    nearest = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    require(os.access(nearest, os.W_OK), f"cannot write into {nearest}; choose a folder you may write to")


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then rename it; on any failure nothing is left behind."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    except OSError as error:
        raise GraphMendError(f"cannot write {path}: {error.strerror}; choose another place") from error
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise GraphMendError(f"cannot write {path}: {reason}; free some space or choose another place") from error
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def digest(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """SHA-256 of tensors with their names, types and shapes, and of a text."""
    checksum = hashlib.sha256(text.encode())
    for name, value in sorted(tensors.items()):
        checksum.update(f"{name} {value.dtype} {tuple(value.shape)};".encode())
        checksum.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return checksum.hexdigest()


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file atomically."""
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def write_safetensors(path: str | Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> None:
    """Write tensors with a string header atomically."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, lambda temporary: save_file(plain, temporary, dict(header)))


def read_safetensors(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read all tensors and the header."""
    require(Path(path).is_file(), f"there is no file {path}; check the path")
    try:
        with safe_open(path, framework="pt") as file:
            names = file.keys()
            # The file is mapped into memory, so overwriting it would change or invalidate tensors that are not copied.
            return {name: file.get_tensor(name).clone() for name in names}, dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise GraphMendError(f"{path} is not a readable safetensors file ({error}); write it again") from error


def read_header(
    path: str | Path, metadata: Mapping[str, str], form: str, *, kind: str, written_by: str, remedy: str
) -> dict[str, Any]:
    """The JSON header of one of our safetensors files, if it is of that kind and of the format this version reads.

    Args:
        path: The file, for the message.
        metadata: What :func:`read_safetensors` found besides tensors.
        form: The format, a name and a version such as ``graphmend-patch-5``.
        kind: What the file should hold, for the message.
        written_by: What writes such files, for the message.
        remedy: What to do about another version.
    """
    header = json.loads(metadata.get("graphmend", "{}"))
    found = header.get("format") if isinstance(header, dict) else None
    is_other = isinstance(found, str) and found.startswith(form.rstrip("0123456789")) and found != form
    require(not is_other, f"{path} is a {kind} of the format {found}, this version reads {form}; {remedy}")
    require(found == form, f"{path} holds no {kind}; give a file written by {written_by}")
    checked: dict[str, Any] = header
    return checked


def write_arrays(path: str | Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays into a compressed ``.npz``, atomically."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)

    write_atomically(path, write)


def read_arrays(path: str | Path) -> dict[str, Any]:
    """Read all arrays of an ``.npz``; nothing in it is ever unpickled."""
    require(Path(path).is_file(), f"there is no file {path}; check the path")
    with open_arrays(path, "write it again") as file:
        return {name: file[name] for name in file.files}


@contextmanager
def open_arrays(path: str | Path, remedy: str) -> Iterator[Any]:
    """An ``.npz`` to read arrays from by name; if that fails, the error says so and ends with ``remedy``."""
    try:
        with Path(path).open("rb") as file:
            arrays = np.load(file, allow_pickle=False)
            require(hasattr(arrays, "files"), f"{path} is a single array, not an .npz; save its arrays with np.savez")
            yield arrays
    except GraphMendError:
        raise
    except BROKEN as error:
        reason = first_line(error)
        raise GraphMendError(f"{path} is not a readable .npz of plain arrays ({reason}); {remedy}") from error


def first_line(error: Exception) -> str:
    """The message of an error, short enough to be part of a sentence."""
    text = str(error).strip().splitlines()
    return text[0][:120] if text else type(error).__name__
