"""Every size at which the engine changes its behaviour, beside the measurement that set it.

The stored paired runs are in ``docs/results/tricks.json``; ``docs/performance.md`` explains them.
"""

from __future__ import annotations

__all__ = [
    "CACHED_NUMBERS",
    "GIVE_BACK_BELOW",
    "HUB_DEGREE",
    "KEPT_BYTES",
    "LARGE_BLOCK",
    "MAX_KEPT_MAPS",
    "RECORDED_ENTRIES",
    "STACKED_ENTRIES",
    "STEP_NUMBERS",
]

HUB_DEGREE = 256
"""Entries that make a row a hub: a single warp would keep a whole GPU waiting for it."""

CACHED_NUMBERS = 1 << 18
"""Numbers a CPU core works on at a time: 1 MiB, what its own cache holds."""

STEP_NUMBERS = {"cpu": 1 << 20, "cuda": 1 << 22}
"""Feature entries that take a step at a time: as many as the shared cache of a CPU holds, or keep a GPU busy."""

STACKED_ENTRIES = {"cpu": 50_000, "cuda": 5_000_000}
"""Nodes and entries below which all views go through a model as one graph of copies, because operations are so short
that starting them takes longer. Cora with GPR on a CPU: 37 % faster. Above, copies only cost memory."""

RECORDED_ENTRIES = 5_000_000
"""Entries below which steps are recorded on a GPU. Above, computing takes far longer than launching, and recordings
would keep their memory."""

MAX_KEPT_MAPS = 16
"""Linear maps of the features that are kept without a gradient: a model may make new weights at every call."""

KEPT_BYTES = 4 << 30
"""Bytes that adapting a graph may take for every call to keep freed memory, and not only GTrans: for larger graphs, the
memory that would be kept beside what is in use counts for more than the time."""

LARGE_BLOCK = 32 << 20
"""Bytes up to which glibc uses freed blocks again by itself, once it has seen such blocks."""

GIVE_BACK_BELOW = 1 / 8
"""Share of the system's memory below which kept memory is given back between steps."""
