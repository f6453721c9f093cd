"""Processes end with the one that started them, even if that is killed, and write nothing afterwards."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from graphmend.workers.local import Local, processes
from support.processes import start_python

CODE = """
import sys
import test_orphans
test_orphans.START[sys.argv[1]](test_orphans.Path(sys.argv[2]))
"""


def works_for_ever(folder: Path) -> None:
    """Says who works, and writes on and on."""
    own = folder / f"{os.getpid()}"
    while True:
        with own.open("a") as file:
            file.write(".")
        time.sleep(0.01)


def with_local(folder: Path) -> None:
    list(Local(2)(works_for_ever, [folder] * 2))


def with_processes(folder: Path) -> None:
    with processes(2, 1) as pool:
        list(pool.map(works_for_ever, [folder] * 2))


START: dict[str, Callable[[Path], None]] = {"local": with_local, "processes": with_processes}


def workers(folder: Path) -> Iterator[psutil.Process]:
    """Those that have begun to work."""
    for path in folder.iterdir():
        yield psutil.Process(int(path.name))


@pytest.mark.parametrize("name", START)
def test_workers_do_not_outlive_a_killed_parent(name: str, tmp_path: Path) -> None:
    with start_python(CODE, name, str(tmp_path)) as parent:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.iterdir())) < 2:
            assert parent.poll() is None and time.monotonic() < deadline
        working = list(workers(tmp_path))
        parent.kill()
    gone, alive = psutil.wait_procs(working, timeout=10)
    for process in alive:
        process.kill()
    assert len(gone) == 2 and not alive
    assert len(list(tmp_path.iterdir())) == 2
