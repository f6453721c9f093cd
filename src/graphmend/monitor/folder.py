"""A folder as a stream: new files, each taken once, even after a kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from torch_geometric.data import Data

from graphmend.errors import GraphMendError, require
from graphmend.files.files import BROKEN, first_line
from graphmend.files.graph_files import FORMATS, load_graph
from graphmend.monitor.monitor import Entry, Monitor
from graphmend.monitor.state import FILES
from graphmend.results.adaptation import Adaptation
from graphmend.results.results import Failure

__all__ = ["new_files", "take_new"]


def new_files(folder: Path, marks: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """The names of graph files that are new or have changed, in order, and the marks of those that were taken before.

    Args:
        folder: The folder; folders in it and files whose names begin with a dot are not looked at.
        marks: What :func:`mark` said of each file when it was taken.
    """
    require(folder.is_dir(), f"there is no folder {folder}; check the path")
    found = {
        path.name: mark(path)
        for path in folder.iterdir()
        if path.suffix.lower() in FORMATS and not path.name.startswith(".") and path.is_file()
    }
    number = len(found)
    require(number <= FILES, f"{folder} holds {number} graphs, more than the {FILES} remembered; move old ones away")
    kept = {name: old for name, old in marks.items() if name in found}
    return sorted(name for name, new in found.items() if kept.get(name) != new), kept


def mark(path: Path) -> str:
    """Size and time of a file, by which a rewritten file is recognised; empty for one that is gone."""
    try:
        status = path.stat()
    except OSError:
        return ""
    return f"{status.st_size}-{status.st_mtime_ns}"


def take_new(
    monitor: Monitor,
    folder: Path,
    prepare: Callable[[Data], Data],
    keep: Callable[[str, Adaptation], None] | None = None,
) -> Iterator[tuple[str, Adaptation | Failure, Entry]]:
    """One pass over the new files in the order of names; a bad one is an entry, and is tried again once it changes.

    Args:
        monitor: The monitor.
        folder: The folder.
        prepare: Brings a graph to where the model is.
        keep: Writes the result of a file somewhere, before the file counts as taken.
    """
    names, marks = new_files(folder, monitor.state.files)
    for name in names:
        path = folder / name
        now = mark(path)  # before it is read, so that a file that changes in the meantime is taken again
        try:
            graph: Data | Exception = prepare(load_graph(path))
        except (GraphMendError, *BROKEN) as error:
            graph = error if isinstance(error, GraphMendError) else GraphMendError(f"{path}: {first_line(error)}")
        marks = {**marks, name: now}
        result, entry = monitor.update(graph, name, keep=_keeping(keep, name), files=marks)
        yield name, result, entry


def _keeping(keep: Callable[[str, Adaptation], None] | None, name: str) -> Callable[[Adaptation], None] | None:
    return None if keep is None else lambda result: keep(name, result)
