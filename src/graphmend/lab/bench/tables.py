"""Tables with our numbers beside the paper's, as Markdown, CSV and LaTeX, and for terminals of 80 columns."""

from __future__ import annotations

import csv
import functools
import io
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.table import Table as RichTable
from rich.text import Text
from scipy.stats import t

from graphmend.lab.metrics import average_rank, compare_paired, holm

__all__ = ["DEAD_BAND", "FEWEST_SEEDS", "Cell", "Difference", "Published", "Table"]


FEWEST_SEEDS = 3
"""A difference over fewer seeds is not tested."""
DEAD_BAND = 0.3
"""A difference of fewer points is not called one, however small its p-value is."""


@dataclass(frozen=True)
class Published:
    """A number of the paper.

    Args:
        mean: The mean over seeds.
        deviation: The standard deviation, where it is given.
        same_data: Whether ours is on the same data, so that the difference says something.
    """

    mean: float
    deviation: float | None = None
    same_data: bool = True


@dataclass(frozen=True)
class Cell:
    """What was measured for one row and column.

    Args:
        values: One number per seed, in the order of the seeds; ``None`` for a seed that is missing or failed.
        paper: The published number; the text ``"OOM"`` if the paper says so.
        note: Why there is no number, such as ``OOM``, if all seeds failed.
        digits: Decimals to show.
        planned: How many seeds the table is planned with; as many as there are values by default.
    """

    values: tuple[float | None, ...] = ()
    paper: Published | str | None = None
    note: str = ""
    digits: int = 2
    planned: int | None = None

    @property
    def known(self) -> list[float]:
        """The numbers that there are."""
        return [value for value in self.values if value is not None]

    @property
    def mean(self) -> float | None:
        """The mean over seeds."""
        return statistics.fmean(self.known) if self.known else None

    @property
    def deviation(self) -> float | None:
        """The population standard deviation over seeds, as in the paper; ``None`` for a single one."""
        return statistics.pstdev(self.known) if len(self.known) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, on the same data."""
        if self.mean is None or not isinstance(self.paper, Published) or not self.paper.same_data:
            return None
        return self.mean - self.paper.mean

    def ours(self) -> str:
        """Our number in words: ``94.13 ± 0.77``; ``(n=2)`` if there are only two of the seeds."""
        if self.mean is None:
            return self.note or "not run"
        spread = "" if self.deviation is None else f" ± {self.deviation:.{self.digits}f}"
        told = f" (n={len(self.known)})" if len(self.known) < (self.planned or len(self.values)) else ""
        return f"{self.mean:.{self.digits}f}{spread}{told}"

    def published(self) -> str:
        """The paper's number in words."""
        if self.paper is None:
            return "-"
        return self.paper if isinstance(self.paper, str) else f"{self.paper.mean:.{self.digits}f}"

    def text(self, stars: str = "") -> str:
        """Our number, and in brackets the paper's and the difference."""
        text = self.ours() + (f" {stars}" if stars else "")
        if self.paper is None:
            return text
        difference = "" if self.difference is None else f", {self.difference:+.{self.digits}f}"
        return f"{text} ({self.published()}{difference})"


@dataclass(frozen=True)
class Difference:
    """A mean difference of two rows over common seeds.

    Args:
        mean: The mean.
        low: The lower end of its 95 % interval (Student's t); ``None`` for one seed.
        high: The upper end.
        seeds: How many seeds.
    """

    mean: float
    low: float | None
    high: float | None
    seeds: int

    @classmethod
    def of(cls, differences: Sequence[float]) -> Difference:
        """The difference whose values per seed are given."""
        mean, number = statistics.fmean(differences), len(differences)
        if number == 1:
            return cls(mean, None, None, 1)
        half = float(t.ppf(0.975, number - 1)) * statistics.stdev(differences) / math.sqrt(number)
        return cls(mean, mean - half, mean + half, number)

    def text(self, digits: int = 2) -> str:
        """``+2.31 [+1.20, +3.42]``."""
        interval = "" if self.low is None else f" [{self.low:+.{digits}f}, {self.high:+.{digits}f}]"
        return f"{self.mean:+.{digits}f}{interval}"


@dataclass
class Table:
    """Rows and columns of cells.

    Args:
        title: A heading.
        columns: Names of the columns.
        rows: Names of the rows, each of one or several words, such as ``("GCN", "ERM")``.
        cells: By row and column.
        footer: Sentences below: mode, data, seeds.
        baseline: The last word of the rows that others of the same group are compared with by a paired t-test.
        tested: The last words of the rows that are tested against the baseline; all by default.
        ranked: Whether to show the average rank of each row within its group (rows with the same first words).
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, ...]]
    cells: dict[tuple[tuple[str, ...], str], Cell]
    footer: list[str] = field(default_factory=list)
    baseline: str | None = None
    ranked: bool = False
    tested: Sequence[str] | None = None

    def cell(self, row: tuple[str, ...], column: str) -> Cell:
        """A cell; an empty one where nothing was asked for."""
        return self.cells.get((row, column), Cell(note="-"))

    def stars(self, row: tuple[str, ...], column: str) -> str:
        """``**`` or ``*`` if a tested row differs from the baseline by the dead band at the level 0.05 or 0.1.

        The test is paired over seeds and corrected (Holm) for all tests of the table. Fewer than three seeds tell
        nothing.
        """
        p, difference = self._p_values.get((row, column)), self.difference(row, column)
        if p is None or difference is None or abs(difference.mean) < DEAD_BAND:
            return ""
        return "**" if p < 0.05 else "*" if p < 0.1 else ""

    def difference(self, row: tuple[str, ...], column: str) -> Difference | None:
        """To the baseline, over the seeds that both have; ``None`` for the baseline itself and without common seeds."""
        if self.baseline is None or row[-1] == self.baseline:
            return None
        pairs = self._pairs(row, column)
        return Difference.of([a - b for a, b in pairs]) if pairs else None

    @functools.cached_property
    def _p_values(self) -> dict[tuple[tuple[str, ...], str], float]:
        pairs = {
            (row, column): self._pairs(row, column)
            for row in self.rows
            for column in self.columns
            if self.baseline is not None
            and row[-1] != self.baseline
            and (self.tested is None or row[-1] in self.tested)
        }
        tested = {place: pair for place, pair in pairs.items() if len(pair) >= FEWEST_SEEDS}
        return holm({place: compare_paired(*zip(*pair, strict=True)).p for place, pair in tested.items()})

    def _pairs(self, row: tuple[str, ...], column: str) -> list[tuple[float, float]]:
        ours, base = self.cell(row, column), self.cell((*row[:-1], str(self.baseline)), column)
        return [(a, b) for a, b in zip(ours.values, base.values, strict=False) if a is not None and b is not None]

    def ranks(self) -> dict[tuple[str, ...], float | None]:
        """The average rank of each row among those with the same first words; the larger number is the better one."""
        ranks: dict[tuple[str, ...], float | None] = {}
        for group in dict.fromkeys(row[:-1] for row in self.rows):
            members = {row[-1]: row for row in self.rows if row[:-1] == group}
            means = {
                name: {column: self.cell(row, column).mean for column in self.columns} for name, row in members.items()
            }
            found = average_rank(means)
            ranks |= {row: None if math.isnan(found[name]) else found[name] for name, row in members.items()}
        return ranks

    def markdown(self) -> str:
        """For documents; each cell has our number, then the paper's and the difference in brackets.

        Rows and columns that have not run are named below, unless nothing has run.
        """
        rows, columns = self._shown()
        words = len(self.rows[0]) if self.rows else 1
        last = ["rank"] if self.ranked else []
        lines = [f"### {self.title}", "", _line(["", *[""] * (words - 1), *columns, *last])]
        lines.append(_line(["---"] * (words + len(columns) + len(last))))
        ranks = self.ranks() if self.ranked else {}
        for row in rows:
            cells = [self.cell(row, column).text(self.stars(row, column)) for column in columns]
            rank = [] if not self.ranked else ["-" if ranks[row] is None else f"{ranks[row]:.1f}"]
            lines.append(_line([*row, *cells, *rank]))
        left = [" ".join(row) for row in self.rows if row not in rows]
        left += [column for column in self.columns if column not in columns]
        notes = [f"Not run yet: {', '.join(left)}."] if left else []
        return "\n".join([*lines, "", *self.footer, *notes, *self._differences(), ""])

    def _shown(self) -> tuple[list[tuple[str, ...]], list[str]]:
        """Rows and columns that have numbers, or notes why they have none."""

        def is_told(row: tuple[str, ...], column: str) -> bool:
            cell = self.cells.get((row, column))
            return cell is not None and (bool(cell.known) or cell.note not in ("", "-"))

        rows = [row for row in self.rows if any(is_told(row, column) for column in self.columns)]
        columns = [column for column in self.columns if any(is_told(row, column) for row in self.rows)]
        return (rows, columns) if rows else (list(self.rows), list(self.columns))

    def _differences(self) -> list[str]:
        """A second table: the differences to the baseline with their intervals."""
        columns = self._shown()[1]
        rows = [row for row in self.rows if any(self.difference(row, column) for column in columns)]
        if not rows:
            return []
        title = f"Differences from {self.baseline}, in brackets their 95 % intervals over seeds"
        lines = ["", f"#### {title}", "", _line([*[""] * len(rows[0]), *columns])]
        lines.append(_line(["---"] * (len(rows[0]) + len(columns))))
        lines += [_line([*row, *(self._difference_text(row, column) for column in columns)]) for row in rows]
        return lines

    def _difference_text(self, row: tuple[str, ...], column: str) -> str:
        difference = self.difference(row, column)
        if difference is None:
            return "-"
        told = f" (n={difference.seeds})" if difference.seeds < (self.cell(row, column).planned or 0) else ""
        return f"{difference.text(self.cell(row, column).digits)}{told} {self.stars(row, column)}".strip()

    def csv(self) -> str:
        """One line per cell, all numbers in full."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        words = [f"row {i + 1}" for i in range(len(self.rows[0]) if self.rows else 1)]
        writer.writerow([*words, "column", "mean", "deviation", "seeds", "paper", "difference", "note"])
        for row in self.rows:
            for column in self.columns:
                cell = self.cell(row, column)
                paper = cell.paper.mean if isinstance(cell.paper, Published) else cell.paper
                numbers = [cell.mean, cell.deviation, len(cell.known), paper, cell.difference]
                writer.writerow([*row, column, *("" if n is None else n for n in numbers), cell.note])
        return out.getvalue()

    def latex(self) -> str:
        """A tabular environment (booktabs)."""
        words = len(self.rows[0]) if self.rows else 1
        lines = [rf"\begin{{tabular}}{{{'l' * words}{'r' * len(self.columns)}}}", r"\toprule"]
        lines.append(" & ".join([*[""] * words, *map(_tex, self.columns)]) + r" \\")
        lines.append(r"\midrule")
        for row in self.rows:
            cells = [_tex(self.cell(row, column).text(self.stars(row, column))) for column in self.columns]
            lines.append(" & ".join([*map(_tex, row), *cells]) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])

    def rich(self) -> RichTable:
        """For a terminal: one line per cell, so that it is never wider than 80 columns."""
        table = RichTable(title=self.title, caption=" ".join(self.footer), title_justify="left")
        table.add_column("", overflow="fold")
        for name in ("ours", "", "paper", "difference"):
            table.add_column(name, justify="left" if name == "" else "right", no_wrap=True)
        for column in self.columns:
            table.add_section()
            table.add_row(Text(column, style="bold"))
            for row in self.rows:
                cell = self.cell(row, column)
                difference = "" if cell.difference is None else f"{cell.difference:+.{cell.digits}f}"
                table.add_row("  " + " ".join(row), cell.ours(), self.stars(row, column), cell.published(), difference)
        return table


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _tex(text: str) -> str:
    for plain, escaped in {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "±": r"$\pm$"}.items():
        text = text.replace(plain, escaped)
    return text
