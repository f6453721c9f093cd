"""Files that are complete or absent: atomic writes, safe reads, and one sentence when something is wrong."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import secrets
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from graphmend.errors import GraphMendError, require, shown
from graphmend.files.archives import LARGE, Array, ArrayFile, check_contents, check_size, open_archive

__all__ = [
    "BROKEN",
    "Array",
    "check_file",
    "check_folder",
    "check_target",
    "digest",
    "escaped",
    "first_line",
    "is_whole",
    "open_arrays",
    "parse_json",
    "path_of",
    "read_arrays",
    "read_header",
    "read_json",
    "read_safetensors",
    "within",
    "write_arrays",
    "write_atomically",
    "write_bytes",
    "write_safetensors",
    "write_text",
]

BROKEN = (
    OSError,
    ValueError,
    KeyError,
    IndexError,
    EOFError,
    OverflowError,
    MemoryError,
    RuntimeError,
    SyntaxError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
)
"""The errors that reading a damaged file can raise."""

CHECKSUM = "checksum"
"""Where a safetensors file of ours has the checksum of everything else."""

DAY = 24 * 3600


def check_file(path: Path, remedy: str = "check the path") -> None:
    """Raise unless ``path`` is a file that can be read from its beginning to its end: no folder, pipe or device."""
    try:
        exists, is_file = path.exists(), path.is_file()
    except (OSError, ValueError) as error:
        raise GraphMendError(f"cannot read {escaped(str(path))}: {_reason(error)}; {remedy}") from error
    require(is_file or not exists, f"there is no file {path}: it is not a file but a folder or a device; {remedy}")
    require(is_file, f"there is no file {path}; {remedy}")


def path_of(value: Any) -> Path:
    """``value`` as a path; raises if it is of another type."""
    is_path = isinstance(value, str) or (isinstance(value, os.PathLike) and isinstance(os.fspath(value), str))
    require(is_path, f"a path must be a text or a pathlib.Path (got {shown(value)}); give the name of a file")
    return Path(value)


def within(folder: Path, name: str) -> Path:
    """The file ``name`` below ``folder``; raises if a name from elsewhere leads out of the folder."""
    path = Path(name)
    is_below = not path.is_absolute() and ".." not in path.parts and path.parts != () and "\0" not in name
    require(is_below, f"the name {escaped(name, 80)!r} leads out of {folder}; take files only from where you trust")
    return folder / path


def check_folder(path: Path) -> None:
    """Raise, before any work is done, unless results can be written into the folder ``path``."""
    with _writing(path):
        _check_name(path)
        require(not path.exists() or path.is_dir(), f"cannot write into {path}, which is a file; choose a folder")
        nearest = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
        require(nearest.is_dir(), f"cannot write into {path}: {nearest} is a file; choose another folder")
        may_write = os.access(nearest, os.W_OK | os.X_OK)
        require(may_write, f"cannot write into {nearest}; choose a folder you may write to")


def check_target(path: Path) -> None:
    """Raise, before any work is done, unless the file ``path`` can be written or replaced."""
    check_folder(_target(path).parent)


def _target(path: Path) -> Path:
    """The file that is written to: ``path``, or where it leads if it is a symbolic link."""
    with _writing(path):
        _check_name(path)
        target = path.resolve()
        exists = target.exists()
        require(not target.is_dir(), f"cannot write {path}, which is a folder; choose a file name")
        require(not exists or target.is_file(), f"cannot write {path}, which is a device or a pipe; choose a file name")
        require(not exists or os.access(target, os.W_OK), f"cannot write {path}, which is read-only; choose another")
        return target


def _check_name(path: Path) -> None:
    require("\0" not in str(path), f"cannot write {escaped(str(path))}: no path has such a character; choose another")
    for part in (path, *path.absolute().parents):
        leads_nowhere = part.is_symlink() and not part.exists()
        require(not leads_nowhere, f"cannot write {path}: the link {part} leads nowhere; remove it or choose another")


@contextmanager
def _writing(path: Path, remedy: str = "choose another place") -> Iterator[None]:
    """Turn errors of the file system, and of libraries that write into it, into one sentence."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        raise GraphMendError(f"cannot write {escaped(str(path))}: {_reason(error)}; {remedy}") from error


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or first_line(error)


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then rename it; on any failure nothing is left behind.

    A symbolic link stays one, and the file that it leads to is replaced. Files that an earlier process left behind when
    it was killed while writing the same file are removed.
    """
    path = path_of(path)
    target = _target(path)
    with _writing(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target)
        temporary = _temporary(target)
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        with _writing(path, "free some space or choose another place"):
            write(temporary)
            if target.exists():
                temporary.chmod(target.stat().st_mode & 0o777)
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _temporary(target: Path) -> Path:
    """A new name beside ``target`` that names the writing machine and process."""
    return target.with_name(f"{_prefix(target)}{_machine()}-{os.getpid()}-{secrets.token_hex(4)}{target.suffix}")


def _prefix(target: Path) -> str:
    name = target.name  # as long a name as the file system takes leaves no space for more
    short = name if len(os.fsencode(name)) <= 160 else hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
    return f".{short}.graphmend-"


@functools.cache
def _machine() -> str:
    """Identifies whose process numbers these are: containers may share a name, but not a boot or a process
    namespace."""
    parts = [platform.node()]
    with suppress(OSError):  # not every system has these files
        parts += [Path("/proc/sys/kernel/random/boot_id").read_text(), str(Path("/proc/self/ns/pid").readlink())]
    return f"{zlib.crc32(' '.join(parts).encode()):08x}"


def _remove_abandoned(target: Path) -> None:
    """Remove temporary files for ``target`` whose process on this machine has ended, and those older than a day."""
    start, end = re.escape(_prefix(target)), re.escape(target.suffix)
    form = re.compile(start + "([0-9a-f]{8})-([0-9]{1,9})-[0-9a-f]{8}" + end)
    with os.scandir(target.parent) as entries:
        found = [(entry, match) for entry in entries if (match := form.fullmatch(entry.name))]
    for entry, match in found:
        with suppress(OSError):  # another process may have removed it
            has_ended = match[1] == _machine() and not psutil.pid_exists(int(match[2]))
            if has_ended or time.time() - entry.stat(follow_symlinks=False).st_mtime > DAY:
                Path(entry.path).unlink()


def digest(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """SHA-256 of tensors with their names, types and shapes, and of a text."""
    checksum = hashlib.sha256(text.encode())
    for name, value in sorted(tensors.items()):
        checksum.update(f"{name} {value.dtype} {tuple(value.shape)};".encode())
        if value.numel() > 0:  # an empty tensor from NumPy has no view as bytes
            checksum.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return checksum.hexdigest()


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file atomically."""
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def write_safetensors(path: str | Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> None:
    """Write tensors with a string header and a checksum of both, atomically."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    full = {**header, CHECKSUM: digest(plain, json.dumps(dict(header), sort_keys=True))}

    def write(temporary: Path) -> None:
        save_file(plain, temporary, full)
        _sort_header(temporary)

    write_atomically(path, write)


def _sort_header(path: Path) -> None:
    """Put the entries in order, which safetensors shuffles, so that the same content makes the same file."""
    with path.open("r+b") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.dumps(json.loads(file.read(length)), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        file.seek(8)
        file.write(header.encode().ljust(length))


def read_safetensors(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read all tensors and the header; the checksum must fit if there is one, as :func:`write_safetensors` adds it."""
    path = path_of(path)
    check_file(path)
    try:
        check_size(path, path.stat().st_size)
        with safe_open(path, framework="pt") as file:
            names = file.keys()
            # The file is mapped into memory, so overwriting it would change or invalidate tensors that are not copied.
            tensors = {name: file.get_tensor(name).clone() for name in names}
            header = dict(file.metadata() or {})
        checksum = header.pop(CHECKSUM, None)
        is_same = checksum is None or checksum == digest(tensors, json.dumps(header, sort_keys=True))
    except GraphMendError:
        raise
    except (SafetensorError, *BROKEN, TypeError, AttributeError) as error:
        reason = first_line(error)
        raise GraphMendError(f"{path} is not a readable safetensors file ({reason}); write it again") from error
    require(is_same, f"{path} is damaged: its checksum does not fit; write it again")
    return tensors, header


def read_json(path: Path) -> Any:
    """What a JSON file holds; raises one sentence if it is no file, or damaged, or nested too deeply."""
    check_file(path)
    try:
        check_size(path, path.stat().st_size)
        content = path.read_bytes()
    except OSError as error:
        raise GraphMendError(f"cannot read {escaped(str(path))}: {_reason(error)}; check the path") from error
    return parse_json(path, content)


def parse_json(path: Path | str, content: bytes) -> Any:
    """The JSON in some bytes; ``path`` says where they come from."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        name = escaped(str(path))
        raise GraphMendError(f"{name} is damaged, or no JSON ({first_line(error)}); write it again") from error


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
    try:
        header = json.loads(metadata.get("graphmend", "{}"))
    except (ValueError, RecursionError) as error:
        reason = first_line(error)
        raise GraphMendError(f"the header of the {kind} {path} is incomplete ({reason}); {remedy}") from error
    found = header.get("format") if isinstance(header, dict) else None
    is_other = isinstance(found, str) and found.startswith(form.rstrip("0123456789")) and found != form
    version = escaped(str(found), 40)
    require(not is_other, f"{path} is a {kind} of the format {version}, this version reads {form}; {remedy}")
    require(found == form, f"{path} holds no {kind}; give a file written by {written_by}")
    checked: dict[str, Any] = header
    return checked


def write_arrays(path: str | Path, arrays: Mapping[str, Any], texts: Mapping[str, str] | None = None) -> None:
    """Write arrays, and texts as further entries, into an ``.npz``, atomically; a large one is not compressed."""
    plain = {name: np.asanyarray(array) for name, array in arrays.items()}
    is_large = (
        sum(array.nbytes for array in plain.values()) > LARGE
    )  # otherwise it might be refused as out of proportion when read
    method = zipfile.ZIP_STORED if is_large else zipfile.ZIP_DEFLATED

    def write(temporary: Path) -> None:
        with zipfile.ZipFile(temporary, "w", method) as archive:
            for name, array in plain.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
            for name, text in (texts or {}).items():
                archive.writestr(name, text)

    write_atomically(path, write)


def read_arrays(path: str | Path) -> dict[str, Any]:
    """Read all arrays of an ``.npz``; nothing in it is ever unpickled."""
    check_file(path_of(path))
    with open_arrays(path, "write it again") as file:
        check_size(file.path, file.size())
        return {name: file[name] for name in file.files}


@contextmanager
def open_arrays(path: str | Path, remedy: str) -> Iterator[ArrayFile]:
    """An ``.npz`` to read arrays from by name; if that fails, the error says so and ends with ``remedy``."""
    try:
        with path_of(path).open("rb") as file:
            is_array = file.read(6) == b"\x93NUMPY"
        require(not is_array, f"{path} is a single array, not an .npz; save its arrays with np.savez")
        with open_archive(path_of(path)) as archive:
            yield ArrayFile(path_of(path), archive)
    except GraphMendError:
        raise
    except BROKEN as error:
        reason = first_line(error)
        raise GraphMendError(f"{path} is not a readable .npz of plain arrays ({reason}); {remedy}") from error


def is_whole(path: Path) -> bool:
    """Whether a file was written to its end and is undamaged, as far as its checksums tell.

    An ``.npz`` or ``.pt`` has checksums of its entries, a safetensors file of ours one of everything; without any, the
    sizes in the header must fit. Of other files, it only checks that they are not empty.
    """
    try:
        check_file(path)
        if path.suffix == ".safetensors":
            read_safetensors(path)
        elif path.suffix in (".npz", ".pt", ".pth"):
            with open_archive(path) as archive:
                check_contents(path, archive)
        return path.stat().st_size > 0
    except BROKEN:
        return False


def first_line(error: Exception) -> str:
    """The message of an error, short enough to be part of a sentence."""
    text = str(error).strip().splitlines()
    return escaped(text[0], 120) if text else type(error).__name__


def escaped(text: str, limit: int = 200) -> str:
    """Text from a file for a terminal: control characters are escaped, and long texts are cut off."""
    shown = text if len(text) <= limit else text[:limit] + "..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
