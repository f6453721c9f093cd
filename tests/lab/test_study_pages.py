"""Tables of studies: put where the page has room for them, from runs of the same settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphmend.errors import GraphMendError
from graphmend.lab.studies.pages import put_table, stored_runs, with_deviation

PAGE = "# A page\n\n<!-- written by python -m a.b -->\n| old |\n<!-- end -->\n\nRest <!-- end -->\n"


def test_a_table_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    for _ in range(2):
        put_table(page, "a.b", ["fault", "mended"], [["none", with_deviation([0.5, 0.012], 2)], [r"a\1", "3"]])
        table = "| fault | mended |\n| --- | --- |\n| none | 0.50 ± 0.01 |\n| a\\1 | 3 |"
        assert page.read_text() == PAGE.replace("| old |", table)
    with pytest.raises(GraphMendError, match=r"must have the line <!-- written by python -m other -->"):
        put_table(page, "other", ["a"], [])


def test_runs_of_other_settings_are_not_added_to(tmp_path: Path) -> None:
    file = tmp_path / "runs.json"
    assert stored_runs(file, "runs", {"epochs": 3}) == []
    file.write_text(json.dumps({"settings": {"epochs": 3}, "runs": [{"seed": 0}]}))
    assert stored_runs(file, "runs", {"epochs": 3}) == [{"seed": 0}]
    with pytest.raises(GraphMendError, match="holds runs of other settings"):
        stored_runs(file, "runs", {"epochs": 4})
