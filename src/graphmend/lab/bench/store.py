"""Runs, named by their content, and a folder of their results: one JSON per run, and what runs leave for others.

Everything is written atomically under a name that is derived from its content, so a suite that was killed goes on where
it was, and several processes, or machines that share the folder, can work on it at the same time."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphmend.errors import GraphMendError, require
from graphmend.files.files import write_atomically, write_text

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
        self.folder = Path(folder)

    def path(self, run: Run) -> Path:
        """Where the result of a run lies."""
        return self.folder / "runs" / run.task / f"{run.key}.json"

    def artefact(self, run: Run, ending: str) -> Path:
        """Where a run leaves a file for others."""
        return self.folder / "artefacts" / run.task / f"{run.key}{ending}"

    def read(self, run: Run) -> Result | None:
        """The record of a run that has ended, well or not; ``None`` if there is none that can be read."""
        try:
            record: Any = json.loads(self.path(run).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) and record.get("key") == run.key and "status" in record else None

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
        paths = [path for path in paths if path.exists()]

        def write(temporary: Path) -> None:
            with tarfile.open(temporary, "w:xz") as file:
                for path in paths:
                    file.add(path, str(path.relative_to(self.folder)), recursive=False)

        write_atomically(archive, write)
        return len(paths)

    def unpack(self, archive: str | Path) -> int:
        """Add the results of an archive to those that are here; the number of new ones."""
        new = 0
        try:
            with tarfile.open(archive, "r:*") as file:
                for member in file:
                    parts = Path(member.name).parts
                    fits = member.isfile() and len(parts) == 3 and parts[0] == "runs" and parts[2].endswith(".json")
                    require(fits and ".." not in parts, f"{archive} holds {member.name}, which is no result of a run")
                    target = self.folder / member.name
                    content = file.extractfile(member)
                    if content is not None and not target.exists():
                        write_text(target, content.read().decode())
                        new += 1
        except (OSError, tarfile.TarError, UnicodeDecodeError) as error:
            raise GraphMendError(f"{archive} is no archive of results ({error}); make one with bench pack") from error
        return new
