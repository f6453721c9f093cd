"""Memory: whether a graph fits, and keeping freed blocks between operations on a CPU.

glibc returns large blocks to the system as soon as they are freed and requests them again, page by page, for the next
result. Which blocks count as large depends on what a program has freed so far, up to 32 MiB. Inside
:func:`keeping_memory` that limit is set at once, so that a small graph reuses the memory of the last step (Cora: 36 %
faster, see ``docs/results/tricks.json``). It stays there afterwards, where glibc itself would have moved it. For
graphs whose activations are larger still, all freed memory stays with the process until the end of the call. That can
take up to a third more, so it is done only where there is enough, and between steps memory is given back if the system
runs short of it (:func:`give_back_if_scarce`). Limits chosen through environment variables are respected.
"""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import os
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch
from torch import Tensor

from graphmend.engine.tuning import GIVE_BACK_BELOW, LARGE_BLOCK
from graphmend.errors import require
from graphmend.scratch import is_active, large_empty

__all__ = [
    "available_memory",
    "check_memory",
    "empty_like",
    "give_back_if_scarce",
    "keeping_memory",
    "needed_memory",
]

CONTAINER = Path("/sys/fs/cgroup")  # where Linux says what a container may use
_KEEPING = threading.Lock()  # held while a call keeps all memory
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # parameters of mallopt, see malloc.h
_DEFAULT_MMAP_MAX = 65536
_HUGE_PAGE = 2 << 20


def needed_memory(x: Tensor, num_edges: int, hidden: int) -> int:
    """Bytes that adapting a graph takes at least.

    This counts X' and Adam's two moments, the activations of three views forwards and backwards, the compressed rows,
    and the values of their entries; on block models about as much was measured. A GPU, which takes all views at once,
    needs a third more.
    """
    nodes, columns = x.shape
    size = x.element_size()
    features = 3 * nodes * columns * size
    activations = 3 * 3 * nodes * max(hidden, 1) * size
    edges = num_edges * (5 * 4 + 7 * size)
    needed = features + activations + edges
    return needed if x.device.type == "cpu" else needed * 4 // 3


def check_memory(x: Tensor, num_edges: int, hidden: int) -> None:
    """Raise if adapting a graph plainly cannot fit into the memory of the device that ``x`` is on."""
    needed, available = needed_memory(x, num_edges, hidden), available_memory(x.device)
    require(
        needed <= available,
        f"adapting {x.size(0)} nodes x {x.size(1)} features and {num_edges} edges needs about {needed / 2**30:.1f} GiB,"
        f" but {available / 2**30:.1f} GiB are free on {x.device}; use a larger machine or a part of the graph",
    )


def available_memory(device: torch.device) -> int:
    """Free bytes on a device, on a GPU with what torch keeps for this process."""
    if device.type == "cuda":
        stats = torch.cuda.memory_stats_as_nested_dict(device)
        reserved, used = (int(stats[name]["all"]["current"]) for name in ("reserved_bytes", "allocated_bytes"))
        return int(torch.cuda.mem_get_info(device)[0]) + reserved - used
    return _host_memory()[0]


def _host_memory() -> tuple[int, int]:
    """Bytes that this process can still get, and the total: of the system, or of its container (cgroup v2)."""
    memory = psutil.virtual_memory()
    available, total = int(memory.available), int(memory.total)
    try:
        limit, used = (int((CONTAINER / name).read_text()) for name in ("memory.max", "memory.current"))
        cache = next(line for line in (CONTAINER / "memory.stat").read_text().splitlines() if "inactive_file" in line)
    except (OSError, ValueError, StopIteration):  # there is no container, or it has no limit
        return available, total
    return min(available, limit - used + int(cache.split()[1])), min(total, limit)


@functools.cache
def _glibc() -> ctypes.CDLL | None:
    chosen = any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    if chosen or platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return None
    return ctypes.CDLL(None)


@contextmanager
def keeping_memory(x: Tensor, num_edges: int, hidden: int, most: float = math.inf) -> Iterator[None]:
    """While a graph of this size is adapted, freed memory stays with the process, if the C library is glibc.

    Args:
        x: The features.
        num_edges: The number of stored edges.
        hidden: Width of the model's representations.
        most: Bytes that adapting may take, beyond which memory is given back nevertheless.
    """
    libc = _glibc() if x.device.type == "cpu" else None
    is_main = threading.current_thread() is threading.main_thread()  # other threads have allocation arenas of their own
    if libc is None or not is_main or _KEEPING.locked():
        yield
        return
    _set_thresholds(libc)
    is_large = max(x.size(0) * hidden, num_edges) * x.element_size() > LARGE_BLOCK
    needed = needed_memory(x, num_edges, hidden)
    if not (is_large and needed <= most and 1.4 * needed <= available_memory(x.device)):
        yield
        return
    with _KEEPING:
        try:
            libc.mallopt(_MMAP_MAX, 0)
            libc.mallopt(_TRIM_THRESHOLD, -1)
            yield
        finally:
            libc.mallopt(_MMAP_MAX, _DEFAULT_MMAP_MAX)
            _set_thresholds(libc)
            libc.malloc_trim(0)


def _set_thresholds(libc: ctypes.CDLL) -> None:
    """The values at which glibc's own adjustment ends."""
    libc.mallopt(_MMAP_THRESHOLD, LARGE_BLOCK)
    libc.mallopt(_TRIM_THRESHOLD, 2 * LARGE_BLOCK)


def empty_like(x: Tensor) -> Tensor:
    """A new contiguous tensor, in huge pages if Linux leaves that choice to programs.

    Getting the pages of a large tensor takes as long as several operations on it; with huge pages there are 512 times
    fewer.
    """
    if is_active():
        return large_empty(tuple(x.shape), x)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    libc, size = _glibc() if x.device.type == "cpu" else None, out.numel() * out.element_size()
    if libc is not None and size >= _HUGE_PAGE and _may_choose_huge_pages():
        start = -(-out.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(out.data_ptr() + size - start), mmap.MADV_HUGEPAGE)
    return out


@functools.cache
def _may_choose_huge_pages() -> bool:
    try:
        return "[madvise]" in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:  # another system
        return False


def give_back_if_scarce() -> None:
    """Inside :func:`keeping_memory`, return free memory if the system has little left."""
    libc = _glibc()
    if libc is None or not _KEEPING.locked():
        return
    available, total = _host_memory()
    if available < GIVE_BACK_BELOW * total:
        libc.malloc_trim(0)
