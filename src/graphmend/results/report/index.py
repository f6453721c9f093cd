"""One page about many graphs: what was decided about each, and where more is said about it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmend.errors import require
from graphmend.files.files import check_folder, write_text
from graphmend.results.report.page import ENDINGS, check_page, render
from graphmend.results.tables import graph_columns

if TYPE_CHECKING:
    from graphmend.results.results import Results

__all__ = ["Row", "write_index", "write_reports"]

INDEX = "index.html"


@dataclass(frozen=True)
class Row:
    """A graph in the list.

    Args:
        name: What it is called.
        decision: What was done to it.
        sentence: Why.
        link: The page about it, beside the list; empty if there is none.
        numbers: How much was changed and so on, by name; ``None`` where that is not known.
    """

    name: str
    decision: str
    sentence: str
    link: str = ""
    numbers: tuple[tuple[str, float | None], ...] = ()


def write_index(path: str | Path, rows: Iterable[Row], title: str = "") -> None:
    """Write the page about some graphs, completely or not at all.

    Args:
        path: The file.
        rows: The graphs.
        title: What they are called.
    """
    rows = tuple(rows)
    columns = tuple(dict.fromkeys(name for row in rows for name, _ in row.numbers))
    most = {name: max((dict(row.numbers).get(name) or 0 for row in rows), default=0) for name in columns}
    text = render(
        "index.html.j2",
        title=title,
        rows=rows,
        columns=[name for name in columns if most[name] or name == "predictions changed"],
        counts=Counter(row.decision for row in rows).most_common(),
    )
    write_text(path, text)


def write_reports(path: str | Path, results: Results, y: Any = None, mask: Any = None, title: str = "") -> None:
    """Write the pages of several results; see :meth:`graphmend.Results.report`."""
    path = Path(path)
    for name, values in (("y", y), ("mask", mask)):
        fits = values is None or (not hasattr(values, "shape") and len(values) == len(results))
        require(fits, f"{name} must be a list with one entry for each of the {len(results)} graphs")
    in_folder = path.suffix.lower() not in ENDINGS
    check_page(path / INDEX if in_folder else path)
    links = [""] * len(results)
    if in_folder:
        check_folder(path)
        for number, entry in enumerate(results):
            if entry.decision == "failed":
                continue
            links[number] = f"graph-{number}.html"
            labels, scored = (None if values is None else values[number] for values in (y, mask))
            name = f"graph {number}" + (f" of {title}" if title else "")
            entry.report(path / links[number], labels, scored, title=name)  # type: ignore[union-attr]
    columns = graph_columns(results)
    texts = [columns.pop(name) for name in ("graph", "decision", "sentence")]
    rows = []
    for number, (graph, decision, sentence) in enumerate(zip(*texts, strict=True)):
        numbers = tuple((name.replace("_", " "), _known(values[number])) for name, values in columns.items())
        rows.append(Row(f"graph {graph}", decision, sentence, links[number], numbers))
    write_index(path / INDEX if in_folder else path, rows, title)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
