"""Keeping memory between operations on large graphs.

The C library hands blocks of more than 32 MiB back to the system as soon as they are free, and gets them anew, page by
page, for the next result: on graphs whose activations are larger than that, every other second goes there. While a
graph is mended, free memory stays with the process, and goes back at the end. Holes of the wrong size make it a third
more, so this is done only where there is room for half as much again.

What remains is that the limits of the C library, which otherwise grow with what a program frees, are where they grow
to. Who has chosen them by environment variables keeps them: nothing is done then.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["keeping_memory"]

LARGE = 32 << 20  # glibc's limit for blocks that are used again
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
    """Keep what is freed inside, where this is worthwhile and the C library is glibc."""
    libc = _glibc()
    here = threading.current_thread() is threading.main_thread()  # others get their memory elsewhere
    if libc is None or not worthwhile or not here or not _IN_USE.acquire(blocking=False):
        yield
        return
    try:
        libc.mallopt(_MMAP_MAX, 0)
        libc.mallopt(_TRIM_THRESHOLD, -1)
        yield
    finally:
        libc.mallopt(_MMAP_MAX, 65536)  # the default, and what the thresholds grow to by themselves
        libc.mallopt(_MMAP_THRESHOLD, LARGE)
        libc.mallopt(_TRIM_THRESHOLD, 2 * LARGE)
        libc.malloc_trim(0)
        _IN_USE.release()
