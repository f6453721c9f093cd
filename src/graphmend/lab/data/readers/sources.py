"""Where data comes from: a directory of the user's, the cache, or the original download."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphmend.errors import GraphMendError, MissingDataError, require
from graphmend.files.files import first_line, read_arrays, write_arrays, write_atomically

FETCH_AGAIN = "delete the file and fetch it again"
"""The remedy in messages about a published file that is damaged."""

_PIECE = 1 << 20


@dataclass(frozen=True)
class Source:
    """One published file.

    Args:
        path: Where it lies below a data directory, in the layout of its publisher.
        url: Where its publisher offers it, or ``None``.
        sha256: Its checksum, where known.
    """

    path: str
    url: str | None = None
    sha256: str | None = None


def data_dirs(data_dir: str | Path | None = None) -> list[Path]:
    """Directories to look in: the one given, ``GRAPHMEND_DATA`` and the cache."""
    named = [data_dir, os.environ.get("GRAPHMEND_DATA")]
    return [Path(folder) for folder in named if folder] + [cache_dir() / "data"]


def cache_dir() -> Path:
    """``GRAPHMEND_CACHE``, or ``graphmend`` in the user's cache directory."""
    base = os.environ.get("GRAPHMEND_CACHE")
    if base:
        return Path(base)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "graphmend"


def find(paths: str | list[str], data_dir: str | Path | None = None) -> Path | None:
    """The first of ``paths`` that exists below one of the data directories."""
    names = [paths] if isinstance(paths, str) else paths
    return next((d / name for d in data_dirs(data_dir) for name in names if (d / name).exists()), None)


def locate(source: Source, data_dir: str | Path | None = None, *, plain: str | None = None) -> Path:
    """A file below one of the data directories, or its download.

    Args:
        source: The published file.
        data_dir: The first directory to look in.
        plain: The name of our own ``.npz`` with the same data, which is preferred to the published file.
    """
    return find([source.path] if plain is None else [plain, source.path], data_dir) or download(source)


def download(source: Source) -> Path:
    """Download a file into the cache; it appears there whole, with the right checksum if that is known, or not at all.

    Where no checksum is known, the server must say how long the file is, so that one that was cut is noticed.
    """
    target = cache_dir() / "data" / source.path
    if source.url is None:
        raise MissingDataError(f"{source.path} is not here and has no address to download it from; {_remedy(source)}")
    try:
        response = urllib.request.urlopen(source.url, timeout=30)
    except _NETWORK as error:
        raise _failed(source, error) from error
    with response:
        length = response.headers.get("Content-Length") or ""
        is_told = source.sha256 is not None or length.isdigit()
        require(is_told, f"{source.url} does not say how long the file is, so it may be cut; {_remedy(source)}")
        write_atomically(target, lambda temporary: _receive(source, response, length, temporary))
    return target


_NETWORK = (urllib.error.URLError, http.client.HTTPException, OSError, ValueError)


def _failed(source: Source, error: Exception) -> MissingDataError:
    reason = f"{type(error).__name__}: {first_line(error)}"
    return MissingDataError(f"cannot download {source.url} ({reason}); {_remedy(source)}")


def _remedy(source: Source) -> str:
    return f"put the file at {source.path} below GRAPHMEND_DATA or --data-dir"


def _receive(source: Source, response: Any, length: str, temporary: Path) -> None:
    """Write the body of a response, and raise unless it is the published file."""
    received, checksum = 0, hashlib.sha256()
    with temporary.open("wb") as file:
        while piece := _piece(source, response):
            file.write(piece)
            checksum.update(piece)
            received += len(piece)
    whole = not length.isdigit() or received == int(length)
    require(whole, f"{source.url} ended after {received} of {length} bytes; try again, or {_remedy(source)}")
    found, right = checksum.hexdigest(), source.sha256 or checksum.hexdigest()
    message = f"{source.path} has the checksum {found[:12]}..., not {right[:12]}... as published"
    require(found == right, f"{message}; try again, or {_remedy(source)}")


def _piece(source: Source, response: Any) -> bytes:
    try:
        return bytes(response.read(_PIECE))
    except _NETWORK as error:
        raise _failed(source, error) from error


def stamps(paths: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Name, size and time of change of some files: a cache key that changes when one of them does."""
    files = [(path, path.stat()) for path in map(Path.resolve, paths)]
    return [(str(path), status.st_size, status.st_mtime_ns) for path, status in files]


def cached_arrays(name: str, key: str, build: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Arrays that take long to build, kept in the cache under a hash of everything they depend on.

    Two processes that build the same arrays at once both succeed, because a file is renamed into place when complete.
    """
    path = cache_dir() / name / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.npz"
    if path.exists():
        try:
            return read_arrays(path)
        except GraphMendError:  # the file was damaged after it was written: build it again
            path.unlink(missing_ok=True)
    arrays = dict(build())
    write_arrays(path, arrays)
    return arrays
