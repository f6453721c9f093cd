"""Curves: a panel per group, a line per row through our means, and the paper's numbers as dots."""

from __future__ import annotations

from graphmend.lab.bench.figures import curves
from graphmend.lab.bench.tables import Cell, Published, Table

ROWS = [("cora", "gcn"), ("cora", "gtrans"), ("pubmed", "gcn")]
CELLS = {
    (ROWS[0], "5%"): Cell((70.0, 72.0), Published(69.0)),
    (ROWS[0], "10%"): Cell((60.0, 62.0)),
    (ROWS[1], "5%"): Cell((80.0,)),
    (ROWS[1], "10%"): Cell((None,), note="OOM"),
    (ROWS[2], "5%"): Cell((None,)),
    (ROWS[2], "10%"): Cell((50.0,)),
}


def test_lines_go_through_the_means_that_there_are() -> None:
    figure = curves(Table("A table", ["5%", "10%"], ROWS, CELLS), "rate")
    first, second = figure.axes
    assert [first.get_title(), second.get_title(), second.get_xlabel()] == ["cora", "pubmed", "rate"]
    points = [(list(line.get_xdata()), list(line.get_ydata())) for line in first.get_lines()]
    assert points == [([0, 1], [71.0, 61.0]), ([0], [69.0]), ([0], [80.0])]
    assert [list(line.get_ydata()) for line in second.get_lines()] == [[50.0]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["gcn", "gtrans"]


def test_a_variant_has_the_colour_of_what_it_varies_and_other_dashes() -> None:
    rows = [("cora", name) for name in ("gcn", "mend", "mend_blind", "mend_other")]
    cells = {(row, "5%"): Cell((1.0,)) for row in rows}
    gcn, *mend = curves(Table("A table", ["5%"], rows, cells), "rate").axes[0].get_lines()
    assert {line.get_color() for line in mend} == {mend[0].get_color()} != {gcn.get_color()}
    assert len({line.get_linestyle() for line in mend}) == 3
