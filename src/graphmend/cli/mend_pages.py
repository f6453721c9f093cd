"""The pages that 'graphmend mend --report' writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from graphmend.cli.common import name_of
from graphmend.cli.mend_scores import Scored
from graphmend.results.adaptation import Adaptation
from graphmend.results.report.facts import Facts
from graphmend.results.report.gather import facts_of
from graphmend.results.report.index import INDEX, Row, write_index
from graphmend.results.report.page import check_page, write_page
from graphmend.results.verdict import APPLIED, LEFT_ALONE

__all__ = ["Facts", "check_pages", "facts_for", "write_index_of", "write_page_of"]

COUNTS = {
    "missing_values_filled": "missing values filled",
    "feature_rows_changed": "feature rows changed",
    "edge_entries_removed": "edge entries removed",
    "edge_entries_added": "edge entries added",
    "edge_weights_changed": "edge weights changed",
    "seconds": "seconds",
}


def check_pages(out: Path, graphs: int) -> list[Path]:
    """The page about all graphs, if there is one; raises where no page can be made."""
    check_page(out / INDEX)
    return [out / INDEX] if graphs > 1 else []


def facts_for(path: Path, result: Adaptation, data: Data, tested: Scored | None) -> Facts:
    """What the page of a graph says; with scores where the graph has labels and a mask of what is tested."""
    if tested is None:
        return facts_of(result, title=path.name)
    return facts_of(result, data.y, tested.mask, path.name)


def write_page_of(path: Path, facts: Facts | None) -> None:
    """Write the page of a graph."""
    assert facts is not None
    write_page(path, facts)


def write_index_of(out: Path, reports: Sequence[tuple[Path, dict[str, Any]]]) -> None:
    """Write the page about all graphs, if there are several."""
    if len(reports) < 2:
        return
    write_index(out / INDEX, [_row(path, report) for path, report in reports], out.name)


def _row(path: Path, report: dict[str, Any]) -> Row:
    numbers = {text: report.get(name) or 0 for name, text in COUNTS.items()}
    verdict = report["verdict"]
    if verdict is None:
        changed = any(number for text, number in numbers.items() if text != "seconds")
        decision, sentence = APPLIED if changed else LEFT_ALONE, report["reason"] or ""
    else:
        decision, sentence = verdict["decision"], verdict["sentence"]
    return Row(path.name, decision, sentence, f"{name_of(path)}.html", tuple(numbers.items()))
