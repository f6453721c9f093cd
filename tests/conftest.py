"""Hypothesis draws the same cases in every run and writes nothing to disk."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "graphmend", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("graphmend")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """For graphs of ten nodes: there a second thread only waits, for long on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
