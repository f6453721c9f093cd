"""Memory that is kept between operations, and given back; in a process of its own, whose heap nobody else has used."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graphmend.engine import memory as heap
from graphmend.engine.memory import keeping_memory
from graphmend.engine.memory_check import available_memory, check_memory

CHOICE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
SCRIPT = """
import json, resource, threading
from contextlib import suppress
import torch
from graphmend.engine import memory as heap
from graphmend.engine.memory import LARGE, keeping_memory, relieve

def faults(keep):
    # pages that were got from the system for large results, one after the other
    with keeping_memory(keep):
        torch.ones(LARGE // 2)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(4):
            torch.ones(LARGE // 2)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

found = {"anew": faults(False)}
before = resident()
found["kept"] = faults(True)
found["left"] = (resident() - before) / LARGE
with keeping_memory(True):
    found["inner"], found["outer"] = faults(True), faults(False)
thread = threading.Thread(target=lambda: found.update(thread=faults(True)))
thread.start()
thread.join()
with suppress(KeyboardInterrupt), keeping_memory(True):
    torch.ones(LARGE // 2)
    raise KeyboardInterrupt
found["left after an exception"] = (resident() - before) / LARGE
with keeping_memory(True):
    before_relief = resident()
    torch.ones(LARGE // 2)
    heap.LITTLE = 0.0
    relieve()
    found["enough is left"] = (resident() - before_relief) / LARGE
    heap.LITTLE = 2.0
    relieve()
    found["little is left"] = (resident() - before_relief) / LARGE
print(json.dumps(found))
"""


@pytest.mark.skipif(
    platform.system() != "Linux" or platform.libc_ver()[0] != "glibc", reason="needs Linux with the GNU C library"
)
def test_memory_is_used_again_inside_and_goes_back_at_the_end() -> None:
    small_pages = {**os.environ, "THP_MEM_ALLOC_ENABLE": "0"}
    command = [sys.executable, "-c", SCRIPT]
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=small_pages).stdout
    found = json.loads(out)
    assert found["anew"] > 100  # they may be large ones all the same
    for name in ("kept", "inner", "outer"):
        assert found[name] < found["anew"] / 3, (name, found)
    assert found["thread"] > found["anew"] / 3, found  # other threads have their memory elsewhere
    assert max(found["left"], found["left after an exception"], found["little is left"]) < 1, found
    assert found["enough is left"] > 1, found


def test_results_outlive_it() -> None:
    with keeping_memory(True):
        kept, gone = torch.ones(10**7), torch.zeros(10**7)
        del gone
    assert float(kept.sum()) == 10**7


def test_large_graphs_keep_their_memory_where_there_is_room() -> None:
    assert not check_memory(torch.empty(1000, 8), 10**4, 16)
    large = torch.empty(1, 8).expand(10**6, 8)
    assert check_memory(large, 10**6, 16)
    assert not check_memory(
        large, int(available_memory(large.device) / 48 / 1.2), 16
    )  # it fits, without room for holes


@pytest.mark.skipif(
    not CHOICE.exists() or "[madvise]" not in CHOICE.read_text(), reason="Linux leaves no choice of huge pages here"
)
def test_large_tensors_lie_in_huge_pages_and_the_environment_is_as_it_was() -> None:
    script = """
import os
before = dict(os.environ)
import graphmend, torch
assert dict(os.environ) == before
large = torch.ones(1 << 25)
lines = open("/proc/self/smaps_rollup").read().splitlines()
print(next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages")))
"""
    for chosen, huge in (({}, True), ({"THP_MEM_ALLOC_ENABLE": "0"}, False)):
        environment = {**os.environ, **chosen}
        out = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
        )
        assert (int(out.stdout) > 0) is huge


@pytest.mark.skipif(
    platform.system() != "Linux" or platform.libc_ver()[0] != "glibc", reason="needs Linux with the GNU C library"
)
def test_small_graphs_use_the_memory_of_the_last_one() -> None:
    script = """
import resource, torch
from graphmend.engine.memory import keeping_memory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        with keeping_memory(False):
            features = [torch.ones(1 << 22) for _ in range(3)]
            del features
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""
    small_pages = {**os.environ, "THP_MEM_ALLOC_ENABLE": "0"}
    command = [sys.executable, "-c", script]
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=small_pages).stdout
    assert int(out) < 4096  # one of the twelve has as many pages


def test_room_in_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "CONTAINER", tmp_path)
    available, total = heap.room()
    assert 0 < available < total
    (tmp_path / "memory.current").write_text("5000\n")
    (tmp_path / "memory.stat").write_text("anon 3000\ninactive_file 700\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert heap.room()[1] == total
    (tmp_path / "memory.max").write_text("8000\n")
    assert heap.room() == (3700, 8000)
