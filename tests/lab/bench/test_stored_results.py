"""Everything in docs/results.md follows from the runs that are stored beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from graphmend.lab.bench.page import Stored, opened, wrong_numbers, wrong_tables

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def stored() -> Iterator[Stored]:
    with opened(DOCS / "results") as found:
        yield found


def test_every_table_follows_from_its_runs_of_one_version_of_torch(stored: Stored) -> None:
    assert len(stored.names()) > 10 and wrong_tables(stored) == []


def test_every_number_of_the_page_follows_from_its_runs(stored: Stored) -> None:
    assert wrong_numbers(DOCS / "results.md", stored) == []


def test_every_figure_has_its_runs(stored: Stored) -> None:
    figures = {path.stem for path in (stored.folder / "tables").glob("*.png")}
    assert figures and figures - {"forest"} <= set(stored.names())


def test_the_stored_runs_are_small(stored: Stored) -> None:
    assert sum(path.stat().st_size for path in (stored.folder / "runs").iterdir()) < 3_000_000
