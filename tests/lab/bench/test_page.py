"""The numbers of a page are those of the runs that are stored beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphmend import GraphMendError
from graphmend.cli import app
from graphmend.lab.bench.experiments import EXPERIMENTS
from graphmend.lab.bench.page import filled, opened, wrong_numbers, wrong_tables
from graphmend.lab.bench.store import Store

NAME = "augmentations"
TEXT = (
    "Of <!--n:augmentations@*@*@cells-->9<!--/--> cells ERM has <!--n:augmentations@erm@cora-ood@mean--><!--/--> %.\n"
)
SCORES = {"erm": [90.0, 92.0, 91.0], "drop_edge_05": [93.0, 96.0, 94.2], "drop_node": [90.1, 92.1, 91.1]}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page with a table of one data set, three methods and three seeds."""
    store, experiment = Store(tmp_path / "store"), EXPERIMENTS[NAME]
    choice = experiment.choice.narrowed(datasets=["cora-ood"], seeds=[0, 1, 2])
    for measure in experiment.measures(choice):
        for run, score in zip(measure.runs, SCORES.get(measure.row[0], []), strict=False):
            told = {"status": "done", "seconds": 1.0, "provenance": {"torch": "2.11", "device": "a", "commit": "b"}}
            store.write(run, {**told, "result": {"score": score}})
    store.pack(tmp_path / "results" / "runs" / f"{NAME}.tar.xz")
    path = tmp_path / "page.md"
    path.write_text(TEXT, encoding="utf-8")
    return path


def fill(page: Path, text: str | None = None) -> str:
    if text is not None:
        page.write_text(text, encoding="utf-8")
    with opened(page.parent / "results") as stored:
        return filled(page, stored)


def only(page: Path, words: str) -> str:
    return fill(page, f"<!--{words}-->old<!--/-->").split("-->")[1].removesuffix("<!--/")


def test_numbers_are_filled_in_and_the_rest_stays(page: Path) -> None:
    text = fill(page)
    assert ">2<!--/--> cells" in text and ">91.0<!--/--> %.\n" in text and text.startswith("Of ")
    assert fill(page, text) == text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("drop_edge_05@cora-ood@mean", "94.4"),
        ("drop_edge_05@cora-ood@full", "94.40 ± 1.23 (n=3)"),
        ("drop_edge_05@cora-ood@paper", "94.7"),
        ("drop_edge_05@cora-ood@gain", "+3.1"),  # 94.66 - 91.59
        ("drop_edge_05@cora-ood@n", "3"),
        ("drop_edge_05@cora-ood@diff", "+3.4"),
        ("drop_edge_05@cora-ood@interval", r"+3.4 [+2.1, +4.7]\*\*"),  # differences 3, 4 and 3.2
        ("drop_node@cora-ood@interval", "+0.1 [+0.1, +0.1]"),  # in the dead band
        ("subgraph@cora-ood@mean", "not run"),
        ("*@*@higher", "1"),
        ("*@*@lower", "0"),
        ("*@*@surely higher", "1"),
    ],
)
def test_kinds_of_numbers(page: Path, words: str, text: str) -> None:
    assert only(page, f"n:{NAME}@{words}") == text


def test_a_block_is_a_table(page: Path) -> None:
    assert "| erm | 91.0 (91.6), n=3 |" in only(page, f"b:means@{NAME}@*")
    assert "| 9 | a | 2.11 | b |" in only(page, "b:origin")


def test_a_cell_of_another_page(page: Path) -> None:
    (page.parent / "other.md").write_text("| kind | harmed |\n| --- | --- |\n| **with** | 1.0 % |\n", encoding="utf-8")
    assert only(page, "n:other.md@with@harmed@text") == "1.0 %"
    with pytest.raises(GraphMendError, match="no table with the row without"):
        only(page, "n:other.md@without@harmed@text")


def test_what_is_not_there_is_said(page: Path) -> None:
    assert only(page, "n:budget@a@b@mean") == "not run"
    with pytest.raises(GraphMendError, match="has no cell tent, cora-ood"):
        only(page, f"n:{NAME}@tent@cora-ood@mean")


def test_a_changed_number_a_changed_table_and_mixed_versions_are_found(page: Path, tmp_path: Path) -> None:
    page.write_text(fill(page), encoding="utf-8")
    tables = tmp_path / "results" / "tables"
    tables.mkdir()
    with opened(tmp_path / "results") as stored:
        (tables / f"{NAME}.md").write_text(stored.table(NAME).markdown(), encoding="utf-8")
        assert not wrong_numbers(page, stored) and not wrong_tables(stored)
    verify = ["bench", "verify", str(page)]
    assert CliRunner().invoke(app, verify).exit_code == 0
    page.write_text(page.read_text(encoding="utf-8").replace("91.0", "91.1"), encoding="utf-8")
    (tables / f"{NAME}.md").write_text("another table", encoding="utf-8")
    result = CliRunner().invoke(app, verify)
    assert result.exit_code == 1 and "says '91.1', the runs give '91.0'" in result.stdout
    assert "is not what its runs give" in result.stdout
