"""Work that reads and writes files in a folder, even on machines that do not see that folder."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from graphmend.files.files import within, write_bytes
from graphmend.workers.local import Lost, Workers

__all__ = ["in_folder"]

T = TypeVar("T")
R = TypeVar("R")


def in_folder(
    workers: Workers,
    work: Callable[[T, Path], R],
    folder: Path,
    items: Iterable[T],
    needed: Callable[[T], Iterable[Path]] = lambda item: (),
) -> Generator[R | Lost[T], None, None]:
    """Call ``work(item, folder)`` for every item, and yield the results as they come.

    A worker on another machine works in the same folder if both machines share it, which is recognised by a hidden
    file. Otherwise it works in a temporary folder: the files that it needs are sent with the item, and those that it
    writes come back and are written here.

    Args:
        workers: Who works.
        work: A function that can be sent to another process.
        folder: Where it reads and writes files.
        items: What it is called for.
        needed: The files in the folder that it reads for an item.
    """
    folder = folder.absolute()
    if not workers.elsewhere:
        yield from workers(_Here(work, folder), items)
        return
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / f".graphmend-{secrets.token_hex(8)}"
    mark.touch()
    try:
        parcels = (_Parcel(item, _contents(folder, needed(item))) for item in items)
        for answer in workers(_Elsewhere(work, mark), parcels):
            if isinstance(answer, Lost):
                yield Lost(answer.item.content, answer.reason, answer.out_of_memory)
                continue
            for name in sorted(answer.files):
                write_bytes(within(folder, name), answer.files[name])
            yield answer.content
    finally:
        mark.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Here(Generic[T, R]):
    """Work in a folder that every worker sees."""

    work: Callable[[T, Path], R]
    folder: Path

    def __call__(self, item: T) -> R:
        return self.work(item, self.folder)


@dataclass(frozen=True)
class _Parcel(Generic[T]):
    """Something that travels together with files, by their names in the folder."""

    content: T
    files: dict[str, bytes]


@dataclass(frozen=True)
class _Elsewhere(Generic[T, R]):
    """Work on a machine that may or may not share the folder in which ``mark`` lies."""

    work: Callable[[T, Path], R]
    mark: Path

    def __call__(self, parcel: _Parcel[T]) -> _Parcel[R]:
        if self.mark.exists():
            return _Parcel(self.work(parcel.content, self.mark.parent), {})
        with tempfile.TemporaryDirectory(prefix="graphmend-") as name:
            folder = Path(name)
            for file, content in parcel.files.items():
                write_bytes(within(folder, file), content)
            result = self.work(parcel.content, folder)
            written = _contents(folder, (path for path in folder.rglob("*") if path.is_file()))
        return _Parcel(result, {file: content for file, content in written.items() if file not in parcel.files})


def _contents(folder: Path, files: Iterable[Path]) -> dict[str, Any]:
    return {path.absolute().relative_to(folder).as_posix(): path.read_bytes() for path in files}
