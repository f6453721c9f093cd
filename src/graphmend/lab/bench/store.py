"""Runs, named by their content, and a folder of their results: one JSON per run, and what runs leave for others.

Everything is written atomically under a name that is derived from its content, so a suite that was killed goes on where
it was, and several processes, or machines that share the folder, can work on it at the same time."""

from __future__ import annotations

import hashlib
import json
import lzma
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphmend.errors import GraphMendError, as_float, require, shown
from graphmend.files.files import check_file, parse_json, path_of, read_json, within, write_bytes, write_text
from graphmend.files.tars import members_of, plain_of, tar_of

__all__ = ["FORMAT", "Result", "Run", "Store"]

FORMAT = 1
"""Part of every key, to be raised when a task measures something else for the same settings than before."""


@dataclass(frozen=True)
class Run:
    """A task with its settings: everything that decides the result, and nothing else.

    Two runs with the same content have the same key, so a finished one is never repeated, whichever experiment asks.

    Args:
        task: A key of :data:`graphmend.lab.bench.tasks.TASKS`.
        settings: Plain JSON values.
        needs: Runs whose results this one reads; they come first.

    Example:
        >>> Run("train", {"dataset": "cora", "seed": 0}).key == Run("train", {"seed": 0, "dataset": "cora"}).key
        True
    """

    task: str
    settings: Mapping[str, Any]
    needs: tuple[Run, ...] = field(default=(), compare=False, repr=False)

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def key(self) -> str:
        """A short hash of the content."""
        return hashlib.sha256(self.content().encode()).hexdigest()[:16]

    def content(self) -> str:
        """Task and settings as one line of text."""
        return json.dumps([FORMAT, self.task, self.settings], sort_keys=True)

    def __str__(self) -> str:
        words = (self.settings.get(name) for name in ("dataset", "backbone", "seed"))
        return " ".join([self.task, *(str(word) for word in words if word is not None)])


Result = dict[str, Any]


class Store:
    """Results of runs.

    Args:
        folder: Where they lie; it is made when something is written.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = path_of(folder)

    def path(self, run: Run) -> Path:
        """Where the result of a run lies."""
        return self.folder / "runs" / run.task / f"{run.key}.json"

    def artefact(self, run: Run, ending: str) -> Path:
        """Where a run leaves a file for others."""
        return self.folder / "artefacts" / run.task / f"{run.key}{ending}"

    def read(self, run: Run) -> Result | None:
        """The record of a run that has ended, well or not; ``None`` if there is none, or one that is not sound."""
        path = self.path(run)
        try:
            record = read_json(path)
            _check(path, record)
        except GraphMendError:
            return None
        return dict(record) if record["key"] == run.key else None

    def result(self, run: Run) -> Result | None:
        """What a run measured; ``None`` if it has not run or failed."""
        record = self.read(run)
        return record["result"] if record is not None and record["status"] == "done" else None

    def require(self, run: Run) -> Result:
        """What a run measured that is needed."""
        result = self.result(run)
        require(result is not None, f"{run} has no result; run it first")
        assert result is not None
        return result

    def write(self, run: Run, record: Result) -> None:
        """Keep the record of a run."""
        content = {"key": run.key, "task": run.task, "settings": dict(run.settings), **record}
        write_text(self.path(run), json.dumps(content, indent=1, sort_keys=True) + "\n")

    def pack(self, archive: str | Path, runs: Iterable[Run] | None = None) -> int:
        """Write results into one compressed archive; the number of them.

        Args:
            archive: A file ending in ``.tar.xz``.
            runs: Which; all that there are by default. Artefacts stay behind.
        """
        paths = sorted(self.folder.glob("runs/*/*.json")) if runs is None else [self.path(run) for run in runs]
        members = [(str(path.relative_to(self.folder)), path.read_bytes()) for path in paths if path.exists()]
        write_bytes(archive, lzma.compress(tar_of(members)))
        return len(members)

    def unpack(self, archive: str | Path) -> int:
        """Add the results of an archive to those that are here; the number of new ones.

        The whole archive is read and checked before the first result is written.
        """
        path, remedy = path_of(archive), "make one with 'graphmend bench pack'"
        check_file(path, remedy)
        members = members_of(path, plain_of(path, path.read_bytes(), remedy), remedy)
        for name, content in members:
            _check(name, parse_json(f"{path}: {name}", content))
        new = [(within(self.folder, name), content) for name, content in members]
        new = [(target, content) for target, content in new if not target.exists()]
        for target, content in new:
            write_bytes(target, content)
        return len(new)


def _check(place: str | Path, record: Any) -> None:
    """Raise unless this is the record of a run that belongs at ``place``, ``runs/TASK/KEY.json``, and nothing else."""
    is_record = isinstance(record, dict) and isinstance(record.get("settings"), dict)
    require(is_record, f"{place} is not the record of a run; run it again")
    run = Run(record.get("task"), record["settings"])
    is_named = isinstance(run.task, str) and record.get("key") == run.key
    is_placed = is_named and Path(place).parts[-3:] == ("runs", run.task, f"{run.key}.json")
    require(is_placed, f"{place} does not have the task and settings that its name says; run it again")
    status, seconds, memory = (record.get(name) for name in ("status", "seconds", "out_of_memory"))
    is_done = status == "done" and isinstance(record.get("result"), dict) and 0 <= as_float(seconds) < math.inf
    is_failed = status == "failed" and isinstance(record.get("error"), str) and isinstance(memory, bool)
    require(is_done or is_failed, f"{place} says {shown(status)} without all that belongs to it; run it again")
