"""Where data comes from: a directory of the user's, the cache, or the original download."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphmend.errors import GraphMendError
from graphmend.io.files import read_arrays, write_arrays, write_atomically


@dataclass(frozen=True)
class Source:
    """One published file.

    Args:
        path: Where it lies below a data directory, in the layout its publisher uses.
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


def locate(source: Source, data_dir: str | Path | None = None) -> Path:
    """The file of ``source``: found, or downloaded into the cache and checked."""
    found = find(source.path, data_dir)
    return found if found is not None else download(source)


def download(source: Source) -> Path:
    """Fetch a file into the cache; it is there whole and with the right checksum, or not at all."""
    target = cache_dir() / "data" / source.path
    where = f"put the file at {source.path} below GRAPHMEND_DATA or --data-dir"
    if source.url is None:
        raise GraphMendError(f"{source.path} is not here and has no address to download it from; {where}")
    try:
        with urllib.request.urlopen(source.url, timeout=30) as response:
            content: bytes = response.read()
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise GraphMendError(f"cannot download {source.url} ({error}); {where}") from error
    check_sum(content, source)
    write_atomically(target, lambda temporary: _write(temporary, content))
    return target


def check_sum(content: bytes, source: Source) -> None:
    """Raise unless the content has the published checksum."""
    found = hashlib.sha256(content).hexdigest()
    if source.sha256 is not None and found != source.sha256:
        raise GraphMendError(
            f"{source.path} has the checksum {found[:12]}..., not {source.sha256[:12]}... as published; fetch it again"
        )


def cached_arrays(name: str, key: str, build: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Arrays that take long to build, kept in the cache under a hash of everything they depend on.

    Two processes that build the same thing at once both succeed; the file is renamed into place whole.
    """
    path = cache_dir() / name / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.npz"
    if path.exists():
        try:
            return read_arrays(path)
        except GraphMendError:  # damaged by something else than us: build it again
            path.unlink(missing_ok=True)
    arrays = dict(build())
    write_arrays(path, arrays)
    return arrays


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
