"""The work of 'graphmend bench'."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer
from rich.table import Table as Grid

from graphmend.cli.console import PlainConsole, has_terminal, plain_table
from graphmend.cli.models import device_of
from graphmend.errors import choose, require
from graphmend.files.files import check_folder, check_target, write_atomically, write_text
from graphmend.lab.bench.board import duration
from graphmend.lab.bench.execute import Watch, execute, with_needs
from graphmend.lab.bench.experiment import Choice, Experiment, Measure
from graphmend.lab.bench.experiments import EXPERIMENTS
from graphmend.lab.bench.page import number_of_marks, opened, wrong_numbers, wrong_tables
from graphmend.lab.bench.store import Run, Store
from graphmend.lab.bench.tables import Table
from graphmend.workers.local import Workers

NO_RESULTS = "there are no results in {folder}; run an experiment first, or name another folder with --store"


@dataclass(frozen=True)
class Part:
    """The part of an experiment that is wanted."""

    name: str
    datasets: list[str] | None = None
    backbones: list[str] | None = None
    methods: list[str] | None = None
    seeds: int | None = None
    smoke: bool = False

    @property
    def experiment(self) -> Experiment:
        """The experiment, if there is one of this name."""
        return choose("experiment", self.name, EXPERIMENTS)

    def choice(self) -> Choice:
        """The part in terms of the experiment."""
        fixed = {"--dataset": self.datasets, "--seeds": self.seeds}
        given = [flag for flag, value in fixed.items() if self.smoke and value]
        require(not given, f"--smoke has its own data set and one seed; leave out {' and '.join(given)}")
        seeds = None if self.seeds is None else range(self.seeds)
        names = {"datasets": self.datasets, "backbones": self.backbones, "methods": self.methods}
        choice = self.experiment.choice.narrowed(**names, seeds=seeds)
        return choice.for_smoke(self.experiment.setting) if self.smoke else choice


def run_list(as_json: bool) -> None:
    """Print every experiment."""
    if as_json:
        typer.echo(json.dumps([{"name": name, "item": one.item} for name, one in EXPERIMENTS.items()]))
        return
    table = Grid.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, experiment in EXPERIMENTS.items():
        table.add_row(name, experiment.item)
    PlainConsole().print(table)


def run_experiment(
    part: Part,
    folder: Path,
    workers: Workers,
    device: str,
    data_dir: Path | None,
    retry: bool,
    quiet: bool,
) -> None:
    """Carry out what is left of an experiment, and print it."""
    choice = part.choice()
    if not workers.elsewhere:  # this machine need not have the GPUs of a cluster
        device_of(device)
    check_folder(folder)
    store = Store(folder)
    runs = part.experiment.runs(choice)
    shown, console = not quiet and has_terminal(), PlainConsole()
    if shown:
        status = Watch(runs, store)(runs)
        told = f"{status.total} runs, {status.done} of them done before"
        console.print(f"{told}; time left, one after another: {duration(status.seconds_left)}", soft_wrap=True)
    say = Cells(part.experiment, choice, store)
    summary = execute(
        runs, store, device=device, data_dir=data_dir, workers=workers, retry=retry, progress=shown, finished=say
    )
    table = part.experiment.drawn(choice, store)
    if table is not None:
        console.print(table.rich())
    else:
        console.print(f"This is a figure; 'graphmend bench render {part.name} --out FOLDER' draws it.", soft_wrap=True)
    if quiet:
        return
    told = f"{summary.total} runs: {summary.skipped} were there before, {summary.done} are new"
    console.print(f"{told}, {summary.failed} failed. Results are in {folder}.", soft_wrap=True)
    for line in _failures(store, part, choice):
        console.print(line, soft_wrap=True)


class Cells:
    """The cells of a table that a run completes, in words, while others are still at work.

    Args:
        experiment: The experiment.
        choice: The part of it.
        store: Where its results are.
    """

    def __init__(self, experiment: Experiment, choice: Choice, store: Store) -> None:
        self.store, self.by_run = store, dict[Run, list[Measure]]()
        for measure in experiment.measures(choice) if experiment.measures is not None else []:
            for run in measure.runs:
                self.by_run.setdefault(run, []).append(measure)

    def __call__(self, run: Run) -> str:
        """Nothing, if others of the same cell are not finished."""
        measures = [m for m in self.by_run.get(run, []) if all(self.store.read(each) is not None for each in m.runs)]
        return "\n".join(f"{' '.join(m.row)}, {m.column}: {m.cell(self.store).text()}" for m in measures)


def run_status(name: str | None, folder: Path, as_json: bool) -> None:
    """Print how far experiments are."""
    wanted = EXPERIMENTS if name is None else {name: choose("experiment", name, EXPERIMENTS)}
    runs = {each: experiment.runs(experiment.choice) for each, experiment in EXPERIMENTS.items()}
    watch = Watch([run for some in runs.values() for run in some], Store(folder))
    found = {each: watch(runs[each]) for each in wanted}
    if as_json:
        typer.echo(json.dumps({each: asdict(status) for each, status in found.items()}))
        return
    table = plain_table(f"Results in {folder}", "The time is that of one run after another.")
    table.add_column("experiment", overflow="fold")
    for column in ("done", "total", "failed", "time left"):
        table.add_column(column, justify="right", no_wrap=True)
    for each, status in found.items():
        counts = (status.done, status.total, status.failed)
        table.add_row(each, *map(str, counts), duration(status.seconds_left))
    PlainConsole().print(table)


def run_render(part: Part, folder: Path, out: Path, quiet: bool) -> None:
    """Write a table, and the figure beside it if there is one; or a figure."""
    choice, experiment, store = part.choice(), part.experiment, Store(folder)
    require(folder.is_dir(), NO_RESULTS.format(folder=folder))
    check_folder(out)
    drawings = (experiment.drawn(choice, store), experiment.pictured(choice, store))
    paths = [path for drawn in drawings if drawn is not None for path in written(drawn, out / part.name)]
    if not quiet:
        PlainConsole().print("\n".join(map(str, paths)), soft_wrap=True)


def written(drawn: Any, stem: Path) -> list[Path]:
    """The files that a table or figure was written to.

    Args:
        drawn: A :class:`graphmend.lab.bench.tables.Table`, or a figure of matplotlib.
        stem: Where, without the ending.
    """
    writers: dict[str, Callable[[Path], None]]
    if isinstance(drawn, Table):
        texts = {".md": drawn.markdown(), ".csv": drawn.csv(), ".tex": drawn.latex()}
        writers = {end: lambda path: write_text(path, texts[path.suffix]) for end in texts}
    else:
        writers = {end: lambda path: _save(drawn, path) for end in (".png", ".svg")}
    paths = [stem.with_name(stem.name + end) for end in writers]
    for path, write in zip(paths, writers.values(), strict=True):
        write(path)
    return paths


def run_pack(archive: Path, folder: Path, experiments: list[str], quiet: bool) -> None:
    """Pack all results, or those of some experiments and of what they need."""
    require(folder.is_dir(), NO_RESULTS.format(folder=folder))
    check_target(archive)
    chosen = [choose("experiment", name, EXPERIMENTS) for name in experiments]
    runs = with_needs(run for experiment in chosen for run in experiment.runs(experiment.choice))
    count = Store(folder).pack(archive, runs if chosen else None)
    if not quiet:
        PlainConsole().print(f"{count} results are in {archive}.", soft_wrap=True)


def run_unpack(archive: Path, folder: Path, quiet: bool) -> None:
    """Add packed results."""
    check_folder(folder)
    count = Store(folder).unpack(archive)
    if not quiet:
        PlainConsole().print(f"{count} new results are in {folder}.", soft_wrap=True)


def run_verify(page: Path, quiet: bool) -> None:
    """Compare a page and its tables with the stored runs."""
    with opened(page.parent / "results") as stored:
        wrong = [*wrong_tables(stored), *wrong_numbers(page, stored)]
        names = stored.names()
    for line in wrong:
        PlainConsole().print(line, soft_wrap=True)
    if wrong:
        raise typer.Exit(1)
    if not quiet:
        numbers = number_of_marks(page)
        PlainConsole().print(f"{len(names)} tables and figures and {numbers} marked places agree.", soft_wrap=True)


def _save(figure: Any, path: Path) -> None:
    form = path.suffix.removeprefix(".")
    write_atomically(path, lambda temporary: figure.savefig(temporary, format=form, dpi=150, bbox_inches="tight"))


def _failures(store: Store, part: Part, choice: Choice) -> list[str]:
    """A line for every different reason for which runs failed."""
    reasons: dict[str, list[str]] = {}
    for run in with_needs(part.experiment.runs(choice)):
        record = store.read(run)
        if record is not None and record["status"] == "failed":
            reasons.setdefault(record["error"], []).append(str(run))
    more = {reason: f" and {len(runs) - 1} more" if len(runs) > 1 else "" for reason, runs in reasons.items()}
    return [f"failed: {runs[0]}{more[reason]}: {reason}; --retry tries again" for reason, runs in reasons.items()]
