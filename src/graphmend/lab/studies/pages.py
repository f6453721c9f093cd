"""Tables of stored runs, put into the pages that show them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from graphmend.errors import require
from graphmend.files.files import write_text

__all__ = ["DOCS", "put_table", "stored_runs", "with_deviation"]

DOCS = Path(__file__).parents[4] / "docs"  #: of a checkout


def with_deviation(both: Sequence[float], digits: int) -> str:
    """A mean and its standard deviation, ``0.897 ± 0.004``."""
    return f"{both[0]:.{digits}f} ± {both[1]:.{digits}f}"


def put_table(page: Path, module: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a table into a page, between the comment that names its program and ``<!-- end -->``.

    Args:
        page: The Markdown file.
        module: The program, such as ``graphmend.lab.studies.tasks``.
        header: Names of the columns.
        rows: Their cells.
    """
    lines = [header, ["---"] * len(header), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    begin = f"<!-- written by python -m {module} -->"
    text = page.read_text(encoding="utf-8")
    require(text.count(begin) == 1, f"{page} must have the line {begin} once, and <!-- end --> behind it")
    pattern = re.escape(begin) + r"\n.*?<!-- end -->"
    write_text(page, re.sub(pattern, lambda _: f"{begin}\n{table}\n<!-- end -->", text, flags=re.DOTALL))


def stored_runs(path: Path, name: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs that a file already has under a name, if it was made with these settings; none if there is no file."""
    if not path.exists():
        return []
    report = json.loads(path.read_text(encoding="utf-8"))
    same = report.get("settings") == settings
    require(same, f"{path} holds runs of other settings, {report.get('settings')}; move it away, or name another --out")
    return list(report[name])
