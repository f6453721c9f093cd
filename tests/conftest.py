"""Hypothesis draws the same cases in every run and writes nothing to disk; each process has temporary files of its own.

PyG's ``Sequential`` writes its ``forward`` into a temporary file with a name from the seeded generator, which is the
same in every process that runs the same test.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import HealthCheck, settings

settings.register_profile(
    "graphmend", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("graphmend")

tempfile.tempdir = tempfile.mkdtemp(prefix="graphmend-tests-")
atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)

_FORWARD = pyg.Sequential.forward


@pytest.fixture(autouse=True)
def forward_of_sequential() -> Iterator[None]:
    """PyG's ``Sequential`` writes the ``forward`` of one model into the class; other models would be given it."""
    yield
    pyg.Sequential.forward = _FORWARD  # type: ignore[method-assign]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """For graphs of ten nodes: there a second thread only waits, for long on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
