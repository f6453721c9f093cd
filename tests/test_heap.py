"""Memory that is kept between operations, and given back."""

from __future__ import annotations

import platform
import resource
from pathlib import Path

import pytest
import torch

from graphmend.heap import LARGE, keeping_memory

glibc = pytest.mark.skipif(
    platform.system() != "Linux" or platform.libc_ver()[0] != "glibc", reason="needs Linux with glibc"
)
NUMBERS = 2 * LARGE // 4


def faults(keep: bool) -> int:
    """Pages that were got from the system for large results one after the other."""
    with keeping_memory(keep):
        torch.ones(NUMBERS)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(4):
            torch.ones(NUMBERS)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@glibc
def test_memory_is_used_again_inside_and_given_back_at_the_end() -> None:
    anew = faults(False)
    assert anew > 100  # pages may be large ones
    before = resident()
    assert faults(True) < anew / 4
    assert resident() < before + LARGE
    assert faults(False) > anew / 4


@glibc
def test_it_ends_with_an_exception() -> None:
    with pytest.raises(KeyboardInterrupt), keeping_memory(True):
        raise KeyboardInterrupt
    assert faults(False) > 100


def test_results_outlive_it() -> None:
    with keeping_memory(True):
        kept, gone = torch.ones(NUMBERS), torch.zeros(NUMBERS)
        del gone
    assert float(kept.sum()) == NUMBERS
