"""Rows of results: one line of JSON per source, target and method, in one append-only file per source.

A file holds lines of three kinds: ``{"about": ...}`` says with which versions and on which device the lines after it
were measured; a *row* has a method's result on a target; a row with ``error`` says why there is none. A line that was
torn by a killed process is ignored, and the next line begins on a line of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from graphmend.lab.beyond.sources import Source, named

__all__ = ["RowFile", "append", "failures", "lines_of", "read_rows", "row_path"]

Row = dict[str, Any]


def row_path(source: Source, out: Path) -> Path:
    """The file of a source."""
    return out / "rows" / f"{source}.jsonl"


class RowFile:
    """The rows of one source, to be continued.

    Args:
        path: The file; it need not exist.
        about: The provenance of what will be written; it is written before the first new row.
    """

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path, self.about = path, about
        self.done = {_key(row) for row in lines_of(path) if "method" in row and "error" not in row}
        self._begun = False

    def has(self, target: str, method: str, version: str) -> bool:
        """Whether there is a result."""
        return (target, method, version) in self.done

    def add(self, row: Row) -> None:
        """Write one row, so that it is there whatever happens next."""
        lines = [row] if self._begun else [{"about": self.about}, row]
        self._begun = True
        append(self.path, *lines)
        if "error" not in row:
            self.done.add(_key(row))


def read_rows(out: Path, versions: dict[str, str] | None = None) -> list[Row]:
    """All results below a folder, each with the fields of its source; of repeated ones the last.

    Args:
        out: The folder in which ``rows`` lies.
        versions: The version of each method that counts; any when ``None``.
    """
    found: dict[tuple[Any, ...], Row] = {}
    for path in sorted((out / "rows").glob("*.jsonl")):
        source = asdict(named(path.stem))
        commit = None
        for row in lines_of(path):
            commit = row["about"].get("commit") if "about" in row else commit
            if "method" not in row or "error" in row:
                continue
            if versions is None or versions.get(row["method"]) == row["version"]:
                found[(path.stem, row["target"], row["method"])] = {**source, **row, "commit": commit}
    return list(found.values())


def failures(out: Path, versions: dict[str, str]) -> dict[str, int]:
    """By method, on how many targets there was an error and no result since."""
    found: dict[str, set[tuple[str, str]]] = {name: set() for name in versions}
    for path in sorted((out / "rows").glob("*.jsonl")):
        for row in lines_of(path):
            if "method" in row and versions.get(row["method"]) == row["version"]:
                place = (path.stem, row["target"])
                (found[row["method"]].add if "error" in row else found[row["method"]].discard)(place)
    return {name: len(places) for name, places in found.items() if places}


def _key(row: Row) -> tuple[str, str, str]:
    return row["target"], row["method"], row["version"]


def append(path: Path, *lines: Row) -> None:
    """Write rows at the end of a file, on lines of their own even if the last one there is torn."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        is_torn = size > 0 and file.read(1) != b"\n"
        file.write((b"\n" if is_torn else b"") + "".join(json.dumps(line) + "\n" for line in lines).encode())


def lines_of(path: Path) -> Iterator[Row]:
    """The rows of a file, without lines that are torn because a process was killed while it wrote them."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row
