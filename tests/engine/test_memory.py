"""Whether a graph fits, and memory that is kept between operations and given back.

The heap is watched in processes of their own, where nobody else has used it.
"""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest
import torch

from graphmend.engine import memory
from graphmend.engine.memory import (
    available_memory,
    check_memory,
    empty_like,
    give_back_if_scarce,
    keeping_memory,
    needed_memory,
)
from graphmend.errors import GraphMendError
from support.processes import run_python
from support.sparse_patterns import devices

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MAY_CHOOSE_PAGES = HUGE_PAGES.exists() and "[madvise]" in HUGE_PAGES.read_text()
CPU = torch.device("cpu")
needs_glibc = pytest.mark.skipif(
    platform.system() != "Linux" or platform.libc_ver()[0] != "glibc", reason="needs Linux with the GNU C library"
)


# ---------------------------------------------------------------- does it fit?


def graph(nodes: int, columns: int = 8) -> torch.Tensor:
    """Features that take no memory."""
    return torch.empty(1, 1).expand(nodes, columns)


def test_the_estimate_counts_features_activations_and_edges() -> None:
    x = graph(1000)
    base = needed_memory(x, 10_000, 16)
    assert base == 4 * (3 * 1000 * 8 + 9 * 1000 * 16) + 10_000 * 48
    assert needed_memory(x.double(), 10_000, 16) == 8 * (3 * 1000 * 8 + 9 * 1000 * 16) + 10_000 * 76
    elsewhere = torch.empty(1000, 8, device="meta")  # a device that takes all views at once
    assert needed_memory(elsewhere, 10_000, 16) == base * 4 // 3
    for more in (needed_memory(graph(2000), 10_000, 16), needed_memory(x, 20_000, 16), needed_memory(x, 10_000, 32)):
        assert more > base
    narrow = 4 * (3 * 1000 * 8 + 9 * 1000) + 10_000 * 48
    assert needed_memory(x, 10_000, 0) == needed_memory(x, 10_000, 1) == narrow  # without weights there are activations


def test_a_graph_that_cannot_fit_is_refused_with_the_numbers() -> None:
    check_memory(graph(1000), 10_000, 16)
    edges = 10**12
    with pytest.raises(
        GraphMendError, match=r"1000 nodes x 8 features and 1000000000000 edges needs about 44703\.\d GiB"
    ):
        check_memory(graph(1000), edges, 16)


def test_a_graph_that_needs_all_there_is_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CONTAINER", tmp_path)  # Linux says there what a container may use
    x = graph(10)
    needed = needed_memory(x, 20, 4)
    (tmp_path / "memory.current").write_text("0\n")
    (tmp_path / "memory.stat").write_text("inactive_file 0\n")
    (tmp_path / "memory.max").write_text(f"{needed}\n")
    check_memory(x, 20, 4)
    (tmp_path / "memory.max").write_text(f"{needed - 1}\n")
    with pytest.raises(GraphMendError, match="10 nodes x 8 features and 20 edges needs about"):
        check_memory(x, 20, 4)


@devices
def test_there_is_some_memory(device: str) -> None:
    where = torch.device(device)
    before = available_memory(where)
    assert before > 0
    if device == "cuda":
        kept = torch.empty(1 << 28, dtype=torch.uint8, device=device)
        assert available_memory(where) <= before - kept.numel() // 2
        del kept
        assert available_memory(where) > before - (1 << 27)  # torch keeps it, for this process


def test_a_container_may_have_less_than_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CONTAINER", tmp_path)  # Linux says there what a container may use
    assert available_memory(CPU) > 8000
    (tmp_path / "memory.current").write_text("5000\n")
    (tmp_path / "memory.stat").write_text("anon 3000\ninactive_file 700\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory(CPU) > 8000
    (tmp_path / "memory.max").write_text("8000\n")
    assert available_memory(CPU) == 3700


# ---------------------------------------------------------------- keeping memory


COMMON = """
import os
import torch, torch_geometric  # which sets a variable of its own
environment = dict(os.environ)
import json, resource, sys, threading
from contextlib import suppress
from pathlib import Path
from graphmend.engine import memory
from graphmend.engine.memory import empty_like, give_back_if_scarce, keeping_memory
from graphmend.engine.tuning import LARGE_BLOCK

assert dict(os.environ) == environment
SMALL, LARGE = (torch.empty(1, 1).expand(nodes, 8) for nodes in (10, 10**6))

def keeping(graph):
    return keeping_memory(graph, 10, 16)

def faults(graph, size=LARGE_BLOCK // 2):
    # pages that were got from the system for results of 64 MiB, one after the other, at the best of three times
    def once():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(4):
            torch.ones(size)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    with keeping(graph):
        torch.ones(size)
        return min(once() for _ in range(3))

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

def huge_pages():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))

before = huge_pages()
large = empty_like(torch.empty(1, 1).expand(1 << 13, 1 << 12)).zero_()
seen = {"huge pages": huge_pages() - before}
del large
"""
WATCHED = (
    COMMON
    + """
seen |= {"small": faults(SMALL), "medium": faults(SMALL, LARGE_BLOCK // 8)}
before = resident()
seen["large"] = faults(LARGE)
seen["left"] = (resident() - before) / LARGE_BLOCK
with keeping(LARGE):
    seen["large inside"], seen["small inside"] = faults(LARGE), faults(SMALL)
thread = threading.Thread(target=lambda: seen.update(thread=faults(LARGE)))
thread.start()
thread.join()
with suppress(KeyboardInterrupt), keeping(LARGE):
    torch.ones(LARGE_BLOCK // 2)
    raise KeyboardInterrupt
seen["left after an exception"] = (resident() - before) / LARGE_BLOCK
with keeping(LARGE):
    start = resident()
    torch.ones(LARGE_BLOCK // 2)
    give_back_if_scarce()
    seen["enough is left"] = (resident() - start) / LARGE_BLOCK
    memory.CONTAINER = Path(sys.argv[1])  # says that there is little
    give_back_if_scarce()
    seen["little is left"] = (resident() - start) / LARGE_BLOCK
print(json.dumps(seen))
"""
)


@pytest.fixture(scope="module")
def heap(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """What happened to the heap of a process."""
    container = tmp_path_factory.mktemp("container")
    (container / "memory.max").write_text(str(10**12))
    (container / "memory.current").write_text(str(10**12 - 10**9))
    (container / "memory.stat").write_text("inactive_file 0\n")
    seen: dict[str, float] = json.loads(run_python(WATCHED, str(container), THP_MEM_ALLOC_ENABLE="0"))
    return seen


@needs_glibc
def test_a_large_graph_uses_its_memory_again(heap: dict[str, float]) -> None:
    assert heap["small"] > 100  # those results are too large to be kept for a small graph; pages may be huge
    for name in ("large", "large inside", "small inside"):
        assert heap[name] < heap["small"] / 3, (name, heap)


@needs_glibc
def test_a_small_graph_uses_blocks_of_its_size_again(heap: dict[str, float]) -> None:
    assert heap["medium"] < 4096, heap  # as many pages has one of the four


@needs_glibc
def test_memory_goes_back_at_the_end(heap: dict[str, float]) -> None:
    assert max(heap["left"], heap["left after an exception"]) < 1, heap


@needs_glibc
def test_memory_goes_back_when_the_system_runs_short(heap: dict[str, float]) -> None:
    assert heap["enough is left"] > 1 > heap["little is left"], heap


@needs_glibc
def test_other_threads_have_their_memory_elsewhere(heap: dict[str, float]) -> None:
    assert heap["thread"] > heap["small"] / 3, heap


CHOSEN = COMMON + "print(json.dumps(seen | {'small': faults(SMALL), 'large': faults(LARGE)}))"


@needs_glibc
def test_limits_chosen_by_the_user_are_respected() -> None:
    seen = json.loads(run_python(CHOSEN, THP_MEM_ALLOC_ENABLE="0", MALLOC_MMAP_THRESHOLD_="65536"))
    assert seen["large"] > seen["small"] / 3 > 30, seen
    assert seen["huge pages"] == 0 or not MAY_CHOOSE_PAGES, seen


@pytest.mark.parametrize("nodes", [10, 10**6])
def test_results_outlive_it(nodes: int) -> None:
    with keeping_memory(graph(nodes), 10, 16):
        kept, gone = torch.ones(10**7), torch.zeros(10**7)
        give_back_if_scarce()
        del gone
    give_back_if_scarce()
    assert float(kept.sum()) == 10**7


# ---------------------------------------------------------------- huge pages


@devices
def test_a_new_tensor_is_contiguous_and_like_the_given_one(device: str) -> None:
    for given in (torch.ones(3, 4), torch.ones(4, 3).t(), torch.ones(0, 3), torch.ones(1000, 1000).t()):
        x = given.to(device)
        out = empty_like(x).copy_(x)
        assert out.is_contiguous() and out.device == x.device and out.dtype == x.dtype and torch.equal(out, x)


@needs_glibc
@pytest.mark.skipif(not MAY_CHOOSE_PAGES, reason="Linux leaves no choice of pages here")
def test_large_tensors_lie_in_huge_pages(heap: dict[str, float]) -> None:
    assert heap["huge pages"] > 2048, heap  # in KiB
