"""Large arrays on the disk instead of in memory, while a graph is worked on that does not fit.

Inside :func:`scratch_in`, :func:`large_empty` maps a file that has no name any more, so its space is free again as
soon as nobody has the tensor, also after a crash. The system keeps as much of it in memory as there is room for.
Outside, and for small arrays, it is ``torch.empty``.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import torch
from torch import Tensor

from graphmend.errors import GraphMendError

__all__ = ["ROWS", "is_active", "large_empty", "row_ranges", "scratch_in"]

LEAST = 32 << 20  # bytes, below which an array stays in memory
ROWS = 4_000_000  # numbers at a time
_FOLDER: ContextVar[Path | None] = ContextVar("graphmend_scratch", default=None)


@contextmanager
def scratch_in(folder: Path | None) -> Iterator[None]:
    """Inside, large arrays lie in a folder; in memory if there is none."""
    token = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)


def is_active() -> bool:
    """Whether there is a folder for large arrays."""
    return _FOLDER.get() is not None


def large_empty(shape: tuple[int, ...], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A new tensor with the type and device of another one, on the disk if it is large and there is a folder for it."""
    dtype, folder, number = like.dtype if dtype is None else dtype, _FOLDER.get(), math.prod(shape)
    size = number * dtype.itemsize
    if folder is None or size < LEAST or like.device.type != "cpu":
        return torch.empty(shape, dtype=dtype, device=like.device)
    try:
        file, name = tempfile.mkstemp(".scratch", ".graphmend-", folder)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file, 0, size)  # a full disk is an error now, and no crash later
            else:
                os.truncate(file, size)
            return torch.from_file(name, shared=True, size=number, dtype=dtype).view(shape)
        finally:
            os.close(file)
            Path(name).unlink()
    except OSError as error:
        raise GraphMendError(
            f"{size / 2**30:.1f} GiB cannot be written into {folder} ({error.strerror or error}); make room there, or "
            "move the graph folder to a larger disk"
        ) from error


def row_ranges(rows: int, width: int) -> list[slice]:
    """Ranges of rows that hold a few million numbers each."""
    step = max(1, ROWS // max(1, width))
    return [slice(start, min(rows, start + step)) for start in range(0, max(1, rows), step)]
