"""Tables: means, ranks with ties, significance, cells out of memory, and seeds that are missing."""

from __future__ import annotations

import io

from rich.console import Console

from graphmend.lab.bench.tables import Cell, Difference, Published, Table

GCN = [("gcn", "erm"), ("gcn", "gtrans"), ("gcn", "eerm")]


def made(baseline: str | None = "erm", ranked: bool = True) -> Table:
    cells = {
        (GCN[0], "cora"): Cell((90.0, 91.0, 92.0), Published(91.59, 1.44)),
        (GCN[1], "cora"): Cell((93.0, 94.1, 95.0), Published(94.66, 0.63)),
        (GCN[2], "cora"): Cell((91.0, None, 91.0), Published(87.21, 0.53)),
        (GCN[0], "arxiv"): Cell((40.0, 40.0, 40.0), Published(38.59)),
        (GCN[1], "arxiv"): Cell((40.0, 40.0, 40.0), Published(41.59)),
        (GCN[2], "arxiv"): Cell((None, None, None), "OOM", "OOM"),
    }
    return Table("A table", ["cora", "arxiv"], GCN, cells, ["3 seeds."], baseline, ranked)


def test_a_cell_tells_its_numbers() -> None:
    assert Cell((90.0, 91.0, 92.0)).ours() == "91.00 ± 0.82"
    assert Cell((90.0,)).ours() == "90.00"
    assert Cell((90.0, None, 92.0)).ours() == "91.00 ± 1.00 (n=2)"
    assert Cell((None,), note="OOM").ours() == "OOM" and Cell((None,)).ours() == "not run"
    assert Cell((90.0,), Published(91.5)).difference == -1.5 and Cell((90.0,), "OOM").difference is None
    assert Cell((90.0,), Published(91.5, same_data=False)).difference is None


def test_ranks_average_ties_and_leave_out_what_has_no_number() -> None:
    """On Cora 91 (ERM and EERM) share the ranks 2 and 3; on Arxiv ERM and GTrans share 1 and 2, and EERM has none."""
    assert made().ranks() == {GCN[0]: (2.5 + 1.5) / 2, GCN[1]: (1.0 + 1.5) / 2, GCN[2]: 2.5}


def test_a_row_without_numbers_has_no_rank() -> None:
    table = made()
    for column in table.columns:
        table.cells[GCN[2], column] = Cell((None,))
    assert table.ranks()[GCN[2]] is None and "Not run yet: gcn eerm." in table.markdown()


def test_significance_is_paired_and_corrected() -> None:
    table = made()
    assert table.stars(GCN[1], "cora") == "**" and table.stars(GCN[0], "cora") == ""
    assert table.stars(GCN[1], "arxiv") == "" and table.stars(GCN[2], "arxiv") == ""
    assert made(baseline=None).stars(GCN[1], "cora") == ""


def test_all_tests_of_a_table_are_one_family() -> None:
    """Further columns and methods make each test stricter, unless they are not tested."""
    table = made(ranked=False)
    alone = table._p_values[GCN[1], "cora"]  # two tests: in the column arxiv all pairs are equal, which is one, too
    for row in GCN:
        table.cells[row, "more"] = Cell((1.0, 2.0, 3.5))
    wider = Table("", ["cora", "arxiv", "more"], GCN, table.cells, baseline="erm")
    assert wider._p_values[GCN[1], "cora"] == 2 * alone  # with GTrans and EERM in the column more: four tests
    narrow = Table("", ["cora", "arxiv", "more"], GCN, table.cells, baseline="erm", tested=["eerm"])
    assert (GCN[1], "cora") not in narrow._p_values and narrow.stars(GCN[1], "cora") == ""


def test_a_difference_in_the_dead_band_has_no_stars() -> None:
    """Every seed gains 0.2 points: p is 0, but nobody would notice."""
    base, better = Cell((90.0, 91.0, 92.0)), Cell((90.2, 91.2, 92.2))
    cells = {(GCN[0], "cora"): base, (GCN[1], "cora"): better}
    table = Table("", ["cora"], GCN[:2], cells, baseline="erm")
    assert table._p_values[GCN[1], "cora"] < 0.01 and table.stars(GCN[1], "cora") == ""


def test_a_difference_has_the_interval_of_students_t() -> None:
    """Differences 1, 2 and 3: mean 2, standard deviation 1, and t = 4.303 with two degrees of freedom."""
    difference = Difference.of([1.0, 2.0, 3.0])
    assert difference.text() == "+2.00 [-0.48, +4.48]" and difference.seeds == 3
    assert abs(difference.high - 2.0 - 4.302653 / 3**0.5) < 1e-5
    assert Difference.of([1.5]).text(1) == "+1.5"


def test_markdown_has_differences_with_intervals() -> None:
    text = made().markdown()
    assert "| gcn | gtrans | +3.03 [+2.89, +3.18] ** | +0.00 [+0.00, +0.00] |" in text
    assert "#### Differences from erm" in text and "#### Differences" not in made(baseline=None).markdown()


def test_two_seeds_are_not_tested() -> None:
    table = made()
    table.cells[GCN[1], "cora"] = Cell((93.0, 94.0, None))
    assert table.stars(GCN[1], "cora") == ""


def test_markdown_has_ours_the_papers_and_the_difference() -> None:
    text = made().markdown()
    assert "| gcn | erm | 91.00 ± 0.82 (91.59, -0.59) | 40.00 ± 0.00 (38.59, +1.41) | 2.0 |" in text
    assert "| gcn | eerm | 91.00 ± 0.00 (n=2) (87.21, +3.79) | OOM (OOM) | 2.5 |" in text
    assert text.startswith("### A table\n") and "3 seeds." in text


def test_csv_has_a_line_per_cell_and_latex_its_symbols() -> None:
    lines = made().csv().splitlines()
    assert lines[0] == "row 1,row 2,column,mean,deviation,seeds,paper,difference,note" and len(lines) == 7
    assert lines[-1] == "gcn,eerm,arxiv,,,0,OOM,,OOM"
    assert r"91.00 $\pm$ 0.82" in made().latex() and r"\toprule" in made().latex()


def test_a_terminal_of_80_columns_is_enough() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(made().rich())
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80 and any("94.03 ± 0.82" in line and "94.66" in line for line in lines)
