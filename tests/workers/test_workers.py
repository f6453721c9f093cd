"""Workers do the same work, wherever they are, and say so when they cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from graphmend import GraphMendError
from graphmend.workers.folders import in_folder
from graphmend.workers.local import Local, Lost, Workers
from graphmend.workers.ray_cluster import Ray
from support.processes import run_python

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class Elsewhere:
    """Workers in this process that pretend to be on other machines.

    Args:
        hidden: A folder that they do not see: the mark in it is gone before they look.
        dies_at: The item at which they die.
    """

    hidden: Path | None = None
    dies_at: str | None = None
    elsewhere: bool = True

    def __call__(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R | Lost[T]]:
        for mark in () if self.hidden is None else self.hidden.glob(".*"):
            mark.unlink()
        for item in items:
            content = getattr(item, "content", item)
            yield Lost(item, "no memory", True) if content == self.dies_at else function(item)


def copied(item: str, folder: Path) -> str:
    """Write a file from another one; return the name of the folder."""
    (folder / "out").mkdir(exist_ok=True)
    (folder / "out" / item).write_text((folder / "in" / item).read_text().upper())
    return folder.name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / name).write_text(f"text {name}")
    return tmp_path


def copy_with(workers: Workers, folder: Path) -> list[str | Lost[str]]:
    return list(in_folder(workers, copied, folder, ["a", "b"], lambda item: [folder / "in" / item]))


@pytest.mark.parametrize("workers", [Local(), Elsewhere()], ids=["local", "shared"])
def test_workers_that_see_the_folder_work_in_it(workers: Workers, folder: Path) -> None:
    assert copy_with(workers, folder) == [folder.name] * 2
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert files == ["in/a", "in/b", "out/a", "out/b"] and (folder / "out" / "b").read_text() == "TEXT B"


def test_other_workers_get_what_they_need_and_send_back_what_they_write(folder: Path) -> None:
    names = copy_with(Elsewhere(hidden=folder), folder)
    assert folder.name not in names and len(set(names)) == 2
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert files == ["in/a", "in/b", "out/a", "out/b"] and (folder / "out" / "b").read_text() == "TEXT B"


@dataclass
class Lying(Elsewhere):
    """Workers that send a file under any name they like."""

    name: str = ""

    def __call__(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R | Lost[T]]:
        for answer in super().__call__(function, items):
            answer.files[self.name] = b"theirs"  # type: ignore[union-attr]
            yield answer


@pytest.mark.parametrize("name", ["../stolen", "/tmp/graphmend-stolen", "out/../../stolen", ""])
def test_what_comes_back_stays_in_the_folder(name: str, folder: Path) -> None:
    with pytest.raises(GraphMendError, match="leads out of"):
        copy_with(Lying(hidden=folder, name=name), folder)
    assert not (folder.parent / "stolen").exists() and not Path("/tmp/graphmend-stolen").exists()


def test_an_item_whose_worker_died_comes_back(folder: Path) -> None:
    assert copy_with(Elsewhere(dies_at="a"), folder) == [Lost("a", "no memory", True), folder.name]
    assert not (folder / "out" / "a").exists()


KILLED = """
import os, signal
from graphmend import GraphMendError
from graphmend.workers.local import Local

try:
    list(Local(2)(lambda item: os.kill(os.getpid(), signal.SIGKILL), [1]))
except GraphMendError as error:
    print(error)
"""


def test_a_killed_process_is_told_in_a_sentence() -> None:
    """In a process of its own, so that no other test gets the broken pool."""
    message = run_python(KILLED)
    assert message.startswith("a process was lost, perhaps because memory ran out (A worker process")
    assert message.endswith("use fewer --jobs. What was finished is kept\n") and message.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [({"jobs": 0}, "at least 1 with Ray"), ({"device": "cuda:1"}, "Ray chooses among the GPUs by itself")],
)
def test_options_of_ray_that_make_no_sense(options: dict[str, object], message: str) -> None:
    with pytest.raises(GraphMendError, match=message):
        Ray(**options)  # type: ignore[arg-type]
