"""An experiment: the runs behind one table or figure of the paper, and how it is drawn from their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from graphmend.errors import GraphMendError, listed, require
from graphmend.files.files import first_line
from graphmend.lab.bench.presets import GENERATED, SUBSTITUTED, data_notes
from graphmend.lab.bench.store import Result, Run, Store
from graphmend.lab.bench.tables import DEAD_BAND, FEWEST_SEEDS, Cell, Published, Table

__all__ = ["Choice", "Experiment", "Measure", "published", "table_of"]

T = TypeVar("T")
SMOKE = {"ood": ("digits-shift",), "robust": ("wine",), "both": ("digits-shift", "wine")}
"""Embedded data that replace everything else in a smoke test."""


@dataclass(frozen=True)
class Choice:
    """Which part of an experiment is wanted.

    Args:
        datasets: Data sets.
        backbones: Backbones.
        methods: Rows of the table.
        seeds: Run seeds.
        smoke: Whether to run on small embedded data for a few epochs, to see that everything works.
    """

    datasets: tuple[str, ...]
    backbones: tuple[str, ...] = ("gcn",)
    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = tuple(range(5))
    smoke: bool = False

    @property
    def seeds_in_words(self) -> str:
        """``"3 seeds"``."""
        return "1 seed" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"

    def trainer(self, name: str = "erm", **settings: Any) -> dict[str, Any]:
        """A trainer, with few epochs in a smoke test."""
        return {"name": name, **settings, **({"epochs": 5} if self.smoke else {})}

    def few(self, values: Sequence[T]) -> Sequence[T]:
        """The steps of a scale, such as rates; the first two in a smoke test."""
        return values[:2] if self.smoke else values

    def narrowed(self, **given: Sequence[Any] | None) -> Choice:
        """Only what was asked for; an error lists the names that exist."""
        wanted: dict[str, Any] = {name: tuple(values) for name, values in given.items() if values}
        for name in wanted.keys() - {"seeds"}:
            wrong = set(wanted[name]) - set(getattr(self, name))
            require(not wrong, f"there is no {listed(wrong)} among the {name} here: {listed(getattr(self, name))}")
        return replace(self, **wanted)

    def for_smoke(self, setting: str) -> Choice:
        """The same on embedded data, with one seed."""
        return replace(self, datasets=SMOKE[setting], backbones=self.backbones[:1], seeds=(0,), smoke=True)


@dataclass(frozen=True)
class Measure:
    """One cell: a run per seed, and the number that is read from each result."""

    row: tuple[str, ...]
    column: str
    runs: tuple[Run, ...]
    value: Callable[[Result], float]
    paper: Published | str | None = None
    digits: int = 2

    def cell(self, store: Store, planned: int | None = None) -> Cell:
        """What was measured so far."""
        records = [store.read(run) for run in self.runs]
        values = tuple(
            self.value(record["result"]) if record is not None and record["status"] == "done" else None
            for record in records
        )
        failed = [record for record in records if record is not None and record["status"] == "failed"]
        note = ("OOM" if all(record["out_of_memory"] for record in failed) else "failed") if failed else ""
        return Cell(values, self.paper, note, self.digits, planned)


@dataclass(frozen=True)
class Experiment:
    """A table or figure.

    Args:
        name: As it is typed.
        item: What it is in the paper.
        choice: All of it.
        setting: ``"ood"``, ``"robust"`` or ``"both"``, which decides the data of a smoke test.
        runs: The runs for a choice.
        render: Makes the table, if there is one.
        figure: Draws the figure, if there is one; it returns a ``matplotlib.figure.Figure``.
        measures: The cells of the table, where each is a number per seed.
    """

    name: str
    item: str
    choice: Choice
    setting: str
    runs: Callable[[Choice], list[Run]]
    render: Callable[[Choice, Store], Table] | None = None
    figure: Callable[[Choice, Store], Any] | None = None
    measures: Callable[[Choice], list[Measure]] | None = None

    def drawn(self, choice: Choice, store: Store) -> Table | None:
        """The table from the results that there are; ``None`` if this is a figure alone."""
        return self._read(self.render, choice, store)

    def pictured(self, choice: Choice, store: Store) -> Any:
        """The figure; ``None`` if there is none, or not the runs for it."""
        return self._read(self.figure, choice, store)

    def _read(self, draw: Callable[[Choice, Store], T] | None, choice: Choice, store: Store) -> T | None:
        """Results come from files, which may be forged: they must hold what their task measures."""
        if draw is None:
            return None
        try:
            return draw(choice, store)
        except GraphMendError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
            message = f"the results in {store.folder} do not hold what {self.name} is made of ({reason})"
            raise GraphMendError(f"{message}; run it again in another folder with --store") from error

    @classmethod
    def of_measures(
        cls,
        name: str,
        item: str,
        choice: Choice,
        setting: str,
        measures: Callable[[Choice], list[Measure]],
        draw: Callable[[Table], Any] | None = None,
        **table: Any,
    ) -> Experiment:
        """An experiment whose table follows from its measures, and its figure, if any, from the table."""

        def runs(wanted: Choice) -> list[Run]:
            return [run for measure in measures(wanted) for run in measure.runs]

        def render(wanted: Choice, store: Store) -> Table:
            return table_of(item, measures(wanted), wanted, store, **table)

        def figure(wanted: Choice, store: Store) -> Any:
            return None if draw is None else draw(render(wanted, store))

        return cls(name, item, choice, setting, runs, render, None if draw is None else figure, measures)


def table_of(title: str, measures: Iterable[Measure], choice: Choice, store: Store, **options: Any) -> Table:
    """A table from the results that there are."""
    cells: dict[tuple[tuple[str, ...], str], Cell] = {}
    rows: dict[tuple[str, ...], None] = {}
    columns: dict[str, None] = {}
    for measure in measures:
        rows[measure.row] = columns[measure.column] = None
        cells[measure.row, measure.column] = measure.cell(store, len(choice.seeds))
    footer = [
        *_footer(choice, options.get("baseline"), options.get("tested")),
        *options.pop("footer", []),
        *data_notes(choice.datasets),
    ]
    return Table(title, list(columns), list(rows), cells, footer, **options)


def published(cell: Any, dataset: str | None = None, *, edges: bool = False) -> Published | str | None:
    """A number of ``paper.toml``; no difference is shown where the data are not the paper's.

    Args:
        cell: The number, with its deviation or without.
        dataset: The data set that ours is on.
        edges: Whether the number depends on edges and labels alone.
    """
    if cell is None or isinstance(cell, str):
        return cell
    mean, *deviation = cell if isinstance(cell, list) else [cell]
    spread = float(deviation[0]) if deviation else None
    same = dataset not in GENERATED and (edges or dataset not in SUBSTITUTED)
    return Published(float(mean), spread, same_data=same)


def _footer(choice: Choice, baseline: str | None, tested: Sequence[str] | None) -> list[str]:
    seeds = choice.seeds_in_words + (", or as many as n says" if len(choice.seeds) > 1 else "")
    where = " on embedded data for a few epochs: a smoke test, no result" if choice.smoke else ""
    notes = [f"{seeds}{where}. Beside our number: the paper's and the difference."]
    if baseline is not None and tested != () and len(choice.seeds) >= FEWEST_SEEDS:
        rows = f" Tested: {', '.join(tested)}." if tested else ""
        notes.append(
            f"Stars: differs from {baseline} by more than {DEAD_BAND} points and by a paired t-test over seeds, "
            f"corrected (Holm) for all tests of the table; * at the level 0.1, ** at 0.05.{rows}"
        )
    return notes
