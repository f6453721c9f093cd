"""Keeping memory between operations, and between small graphs.

The C library hands large blocks back to the system as soon as they are free, and gets them anew, page by page, for the
next result. What it calls large grows with what a program frees, up to 32 MiB; it is set to that at once, so that the
features of a small graph find the memory of the last one. On graphs whose activations are larger still, every other
second goes into getting memory: while such a graph is mended, all free memory stays with the process, and goes back at
the end. Holes of the wrong size make it up to a third more, and grow in number, so this is done only where there is
room for that, and between steps, if the system has little memory left, what is free goes back all the same.

Who has chosen limits by environment variables keeps them: nothing is done then.

Where Linux leaves the choice to programs, torch can be told to put large tensors into huge pages: graphs too large for
keeping memory get theirs much sooner. It asks once, when the process makes its first tensor, which is why this
module comes first in the package; imported after the first tensor, nothing changes.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch

__all__ = ["keeping_memory", "relieve", "room"]

LARGE = 32 << 20  # glibc's limit for blocks that are used again
LITTLE = 1 / 8  # of the system's memory
CONTAINER = Path("/sys/fs/cgroup")  # where Linux says what a container may use
_IN_USE = threading.Lock()  # by an outer one
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # names of mallopt, see malloc.h


@functools.cache
def _glibc() -> ctypes.CDLL | None:
    chosen = any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    if chosen or platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return None
    return ctypes.CDLL(None)


@contextmanager
def keeping_memory(worthwhile: bool) -> Iterator[None]:
    """Keep what is freed inside, all of it where this is worthwhile, if the C library is glibc."""
    libc = _glibc()
    here = threading.current_thread() is threading.main_thread()  # others get their memory elsewhere
    if libc is None or not here or _IN_USE.locked():
        yield
        return
    _set_limits(libc)
    if not worthwhile:
        yield
        return
    with _IN_USE:
        try:
            libc.mallopt(_MMAP_MAX, 0)
            libc.mallopt(_TRIM_THRESHOLD, -1)
            yield
        finally:
            libc.mallopt(_MMAP_MAX, 65536)  # the default
            _set_limits(libc)
            libc.malloc_trim(0)


def relieve() -> None:
    """Inside :func:`keeping_memory`, give back what is free if the system has little memory left."""
    libc = _glibc()
    if libc is None or not _IN_USE.locked():
        return
    available, total = room()
    if available < LITTLE * total:
        libc.malloc_trim(0)


def room() -> tuple[int, int]:
    """Bytes that this process can still have, and all there are: of the system, or of its container (cgroup v2)."""
    memory = psutil.virtual_memory()
    available, total = int(memory.available), int(memory.total)
    try:
        limit, used = (int((CONTAINER / name).read_text()) for name in ("memory.max", "memory.current"))
        cache = next(line for line in (CONTAINER / "memory.stat").read_text().splitlines() if "inactive_file" in line)
    except (OSError, ValueError, StopIteration):  # there is none, or it has no limit
        return available, total
    return min(available, limit - used + int(cache.split()[1])), min(total, limit)


def _set_limits(libc: ctypes.CDLL) -> None:
    """What they grow to by themselves."""
    libc.mallopt(_MMAP_THRESHOLD, LARGE)
    libc.mallopt(_TRIM_THRESHOLD, 2 * LARGE)


def _choose_huge_pages() -> None:
    name = "THP_MEM_ALLOC_ENABLE"
    if name in os.environ or not _may_choose():
        return
    os.environ[name] = "1"
    try:
        torch.empty(1, device="cpu")
    finally:
        del os.environ[name]


def _may_choose() -> bool:
    try:
        return "[madvise]" in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:  # another system
        return False


_choose_huge_pages()
