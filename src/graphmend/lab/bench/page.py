"""Numbers of a page, filled in from the stored runs of its tables, and the check that they are still those.

A page holds marks that Markdown does not show, each before the text that it stands for:

* ``<!--n:TABLE@ROW@COLUMN@KIND-->text<!--/-->`` for a number. ROW has the words of the row with commas. KIND is one of
  :data:`KINDS`, and for counts of cells one of :data:`COUNTS`; those take patterns (``*``, several with ``;``).
* ``<!--n:FILE.md@ROW@COLUMN@KIND-->`` for the first table of another page, relative to this one, that has the row and
  the column; KIND is ``text``.
* ``<!--b:NAME@TABLE@...-->`` for a block: see :data:`BLOCKS`.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from graphmend.errors import GraphMendError, choose, require
from graphmend.files.files import check_file, read_json
from graphmend.lab.bench.experiments import EXPERIMENTS
from graphmend.lab.bench.store import Store
from graphmend.lab.bench.tables import DEAD_BAND, Cell, Difference, Published, Table

__all__ = ["Stored", "filled", "number_of_marks", "opened", "paper_gain", "wrong_numbers", "wrong_tables"]

MARK = re.compile(r"<!--([nb]):(.*?)-->(.*?)<!--/-->", re.DOTALL)
MISSING = "not run"


@dataclass
class Stored:
    """The tables of a page, made from packed runs when they are asked for.

    Args:
        folder: With ``runs/NAME.tar.xz`` and ``tables/NAME.md``.
        scratch: Where archives are unpacked.
    """

    folder: Path
    scratch: Path
    tables: dict[str, Table] = field(default_factory=dict)

    def names(self) -> list[str]:
        """The experiments that have stored runs."""
        return sorted(path.name.removesuffix(".tar.xz") for path in (self.folder / "runs").glob("*.tar.xz"))

    def store(self, name: str) -> Store:
        """The runs of an experiment."""
        store = Store(self.scratch / name)
        if not store.folder.exists():
            store.unpack(self.folder / "runs" / f"{name}.tar.xz")
        return store

    def table(self, name: str) -> Table:
        """The table of an experiment."""
        if name not in self.tables:
            experiment = choose("experiment", name, EXPERIMENTS)
            table = experiment.drawn(experiment.choice, self.store(name))
            require(table is not None, f"{name} has no table")
            assert table is not None
            self.tables[name] = table
        return self.tables[name]


@contextmanager
def opened(folder: Path) -> Iterator[Stored]:
    """The stored runs of a folder, unpacked while this is open."""
    with tempfile.TemporaryDirectory(prefix="graphmend-") as scratch:
        yield Stored(folder, Path(scratch))


def filled(page: Path, stored: Stored) -> str:
    """The text of a page with its marks filled in anew."""

    def text(match: re.Match[str]) -> str:
        kind, words = match[1], match[2].split("@")
        new = _block(words, stored) if kind == "b" else _number(words, stored, page)
        return f"<!--{kind}:{match[2]}-->{new}<!--/-->"

    return MARK.sub(text, _read(page))


def wrong_numbers(page: Path, stored: Stored) -> list[str]:
    """A sentence for every mark of a page whose text is not what the stored runs give."""
    old, new = MARK.findall(_read(page)), MARK.findall(filled(page, stored))
    pairs = zip(old, new, strict=True)
    return [f"{page}: {was[1]} says {was[2]!r}, the runs give {now[2]!r}" for was, now in pairs if was != now]


def number_of_marks(page: Path) -> int:
    """How many places of a page are filled in."""
    return len(MARK.findall(_read(page)))


def wrong_tables(stored: Stored) -> list[str]:
    """A sentence for every table that does not follow from its stored runs, or mixes versions of torch."""
    wrong = []
    for path in sorted((stored.folder / "tables").glob("*.md")):
        if stored.table(path.stem).markdown() != _read(path):
            wrong.append(f"{path} is not what its runs give")
    for name in stored.names():
        torches = {record["provenance"]["torch"] for record in _records(stored, name) if "provenance" in record}
        if len(torches) > 1:
            wrong.append(f"the runs of {name} are of several versions of torch: {', '.join(sorted(torches))}")
    return wrong


def _records(stored: Stored, name: str) -> list[dict[str, Any]]:
    experiment, store = EXPERIMENTS[name], stored.store(name)
    found = {run: store.read(run) for run in experiment.runs(experiment.choice)}
    return [record for record in found.values() if record is not None]


def _number(words: list[str], stored: Stored, page: Path) -> str:
    require(len(words) == 4, f"a number needs TABLE@ROW@COLUMN@KIND (got {'@'.join(words)})")
    name, row, column, kind = words
    if name.endswith(".md"):
        return _text_of(page.parent / name, row, column)
    if name not in stored.names():
        return MISSING
    table = stored.table(name)
    if kind in COUNTS:
        return str(sum(COUNTS[kind](table, *place) for place in _places(table, row, column)))
    place: tuple[str, ...] = next((found for found in table.rows if ",".join(found) == row), ())
    require(bool(place) and column in table.columns, f"{name} has no cell {row}, {column}")
    return choose("kind of number", kind, KINDS)(table, place, column)


def _places(table: Table, row: str, column: str) -> list[tuple[tuple[str, ...], str]]:
    def fits(text: str, patterns: str) -> bool:
        return any(fnmatch(text, pattern) for pattern in patterns.split(";"))

    return [(r, c) for r in table.rows for c in table.columns if fits(",".join(r), row) and fits(c, column)]


def _mean(table: Table, row: tuple[str, ...], column: str) -> str:
    cell = table.cell(row, column)
    return _rounded(cell, f".{_digits(cell)}f")


def _digits(cell: Cell) -> int:
    """One decimal less than the tables have, but all three of shares."""
    return 3 if cell.digits == 3 else min(cell.digits, 1)


def _rounded(cell: Cell, form: str) -> str:
    return MISSING if cell.mean is None else format(cell.mean, form)


def _mean_in_full(table: Table, row: tuple[str, ...], column: str) -> str:
    return table.cell(row, column).ours()


def _published(cell: Cell, digits: int = 1) -> str:
    return f"{cell.paper.mean:.{digits}f}" if isinstance(cell.paper, Published) else str(cell.paper or "-")


def _difference(table: Table, row: tuple[str, ...], column: str) -> str:
    found = table.difference(row, column)
    return MISSING if found is None else f"{found.mean:+.1f}"


def _interval(table: Table, row: tuple[str, ...], column: str) -> str:
    found = table.difference(row, column)
    return MISSING if found is None else found.text(1) + table.stars(row, column).replace("*", r"\*")


def paper_gain(table: Table, row: tuple[str, ...], column: str) -> float | None:
    """The paper's number minus that of its baseline."""
    ours, base = table.cell(row, column).paper, table.cell((*row[:-1], str(table.baseline)), column).paper
    both = isinstance(ours, Published) and isinstance(base, Published)
    return ours.mean - base.mean if both else None  # type: ignore[union-attr]


def _paper_gain(table: Table, row: tuple[str, ...], column: str) -> str:
    gain = paper_gain(table, row, column)
    return "-" if gain is None else f"{gain:+.1f}"


KINDS: dict[str, Callable[[Table, tuple[str, ...], str], str]] = {
    "mean": _mean,
    "full": _mean_in_full,
    "paper": lambda table, row, column: _published(table.cell(row, column)),
    "paper3": lambda table, row, column: _published(table.cell(row, column), 3),
    "paper0": lambda table, row, column: _published(table.cell(row, column), 0),
    "mean3": lambda table, row, column: _rounded(table.cell(row, column), ".3f"),
    "mean2": lambda table, row, column: _rounded(table.cell(row, column), ".2f"),
    "mean0": lambda table, row, column: _rounded(table.cell(row, column), ",.0f"),
    "n": lambda table, row, column: str(len(table.cell(row, column).known)),
    "diff": _difference,
    "interval": _interval,
    "gain": _paper_gain,
}
"""``mean``: ours (``mean3``: with three decimals); ``full``: with deviation; ``n``: seeds; ``paper``: the published
number; ``diff`` and ``interval``: to the baseline of the table; ``gain``: the paper's difference to it."""


def _has(wanted: Callable[[Difference, str], bool]) -> Callable[[Table, tuple[str, ...], str], bool]:
    def holds(table: Table, row: tuple[str, ...], column: str) -> bool:
        found = table.difference(row, column)
        return found is not None and wanted(found, table.stars(row, column))

    return holds


COUNTS: dict[str, Callable[[Table, tuple[str, ...], str], bool]] = {
    "cells": _has(lambda difference, stars: True),
    "higher": _has(lambda difference, stars: difference.mean >= DEAD_BAND),
    "lower": _has(lambda difference, stars: difference.mean <= -DEAD_BAND),
    "surely higher": _has(lambda difference, stars: difference.mean > 0 and bool(stars)),
    "surely lower": _has(lambda difference, stars: difference.mean < 0 and bool(stars)),
    "compared": lambda table, row, column: _holds_gain(table, row, column) is not None,
    "as published": lambda table, row, column: bool(_holds_gain(table, row, column)),
}
"""How many cells differ from the baseline: by the dead band at least, and with stars; of how many the paper's gain is
known and ours has an interval, and in how many that holds the paper's."""


def _holds_gain(table: Table, row: tuple[str, ...], column: str) -> bool | None:
    found, gain = table.difference(row, column), paper_gain(table, row, column)
    if found is None or gain is None or found.low is None or found.high is None:
        return None
    return found.low <= gain <= found.high


def _block(words: list[str], stored: Stored) -> str:
    name, *rest = words
    if rest and rest[0] not in stored.names():
        return MISSING
    return "\n\n" + choose("block", name, BLOCKS)(stored, *rest) + "\n\n"


def _gains(stored: Stored, name: str, method: str) -> str:
    """Differences of one row of every group to the baseline; in brackets the paper's."""
    table = stored.table(name)
    rows = [row for row in table.rows if row[-1] == method]
    shown = [column for column in table.columns if any(table.difference(row, column) for row in rows)]
    rows = [row for row in rows if any(table.difference(row, column) for column in shown)]

    def text(row: tuple[str, ...], column: str) -> str:
        if table.difference(row, column) is None:
            return "-"
        gain, seeds = paper_gain(table, row, column), table.difference(row, column).seeds  # type: ignore[union-attr]
        told = f", n={seeds}" if seeds < (table.cell(row, column).planned or 0) else ""
        return _interval(table, row, column) + ("" if gain is None else f" ({gain:+.1f})") + told

    lines = [_line([f"{method}, change against {table.baseline}", *shown]), _line(["---"] * (len(shown) + 1))]
    return "\n".join([*lines, *(_line([", ".join(row[:-1]), *(text(row, c) for c in shown)]) for row in rows)])


def _means(stored: Stored, name: str, rows: str, columns: str = "*") -> str:
    """Means of the rows and columns that fit patterns; in brackets the paper's."""
    table = stored.table(name)
    places = [(row, column) for row, column in _places(table, rows, columns) if table.cell(row, column).known]
    shown = [column for column in table.columns if column in {place[1] for place in places}]

    def text(row: tuple[str, ...], column: str) -> str:
        return _told(table, row, column) if table.cell(row, column).known else "-"

    lines = [_line(["", *shown]), _line(["---"] * (len(shown) + 1))]
    own = dict.fromkeys(place[0] for place in places)
    return "\n".join([*lines, *(_line([", ".join(row), *(text(row, column) for column in shown)]) for row in own)])


def _pivot(stored: Stored, name: str, column: str) -> str:
    """One column of a table: a row per method, a column per group of rows; in brackets the paper's."""
    table = stored.table(name)
    known = [row for row in table.rows if table.cell(row, column).known]
    groups, methods = dict.fromkeys(row[:-1] for row in known), dict.fromkeys(row[-1] for row in known)

    def text(row: tuple[str, ...]) -> str:
        return _told(table, row, column) if table.cell(row, column).known else "-"

    lines = [_line([column, *(", ".join(group) for group in groups)]), _line(["---"] * (len(groups) + 1))]
    return "\n".join([*lines, *(_line([method, *(text((*group, method)) for group in groups)]) for method in methods)])


def _told(table: Table, row: tuple[str, ...], column: str) -> str:
    """The mean, in brackets the paper's, and how many seeds where they are fewer than planned."""
    cell = table.cell(row, column)
    known = f" ({_published(cell, _digits(cell))})" if isinstance(cell.paper, Published) else ""
    seeds = f", n={len(cell.known)}" if 0 < len(cell.known) < (cell.planned or 0) else ""
    return _mean(table, row, column) + known + seeds


def _few(stored: Stored) -> str:
    """Cells that have fewer seeds than planned, by table."""
    lines = [_line(["table", "cells", "as planned", "fewer seeds", "not run"]), _line(["---"] * 5)]
    for name in stored.names():
        if EXPERIMENTS[name].measures is None:
            continue
        cells = [cell for cell in stored.table(name).cells.values() if cell.values]
        whole = sum(len(cell.known) >= len(cell.values) for cell in cells)
        none = sum(not cell.known for cell in cells)
        numbers = (len(cells), whole, len(cells) - whole - none, none)
        lines.append(_line([f"[{name}](results/tables/{name}.md)", *map(str, numbers)]))
    return "\n".join(lines)


def _origin(stored: Stored) -> str:
    """How many runs are stored, by device, torch and commit."""
    seen: dict[str, tuple[str, str, str]] = {}
    for name in stored.names():
        for path in stored.store(name).folder.glob("runs/*/*.json"):
            if path.name not in seen:
                told = read_json(path)["provenance"]
                seen[path.name] = (told["device"], told["torch"].partition("+")[0], str(told["commit"]))
    counts = Counter(seen.values())
    lines = [_line(["runs", "device", "torch", "commit"]), _line(["---"] * 4)]
    return "\n".join([*lines, *(_line([f"{n:,}", *place]) for place, n in counts.most_common())])


BLOCKS: dict[str, Callable[..., str]] = {
    "gains": _gains,
    "means": _means,
    "pivot": _pivot,
    "few": _few,
    "origin": _origin,
}
"""``gains@TABLE@METHOD``, ``means@TABLE@ROWS@COLUMNS``, ``pivot@TABLE@COLUMN``, ``few`` and ``origin``: tables for the
page."""


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text_of(path: Path, row: str, column: str) -> str:
    """A cell of the first table of a Markdown file that has the row and the column."""
    header: list[str] = []
    for line in _read(path).splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if cells and not header:
            header = cells
        elif not cells:
            header = []
        elif cells[0].strip("*").startswith(row) and column in header:
            return cells[header.index(column)].strip("*")
    raise GraphMendError(f"{path} has no table with the row {row} and the column {column}")


def _read(path: Path) -> str:
    check_file(path)
    return path.read_text(encoding="utf-8")
