"""The average rank of each method of Table 1, with and without EERM, over the sets of the paper.

A method is ranked within its backbone, on each set over the seeds that all ranked methods have."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from graphmend.lab.bench.experiment import Choice, Experiment
from graphmend.lab.bench.experiments.ood_accuracy import EXPERIMENT as TABLE
from graphmend.lab.bench.experiments.ood_accuracy import PAPER_SETS
from graphmend.lab.bench.presets import GENERATED, data_notes
from graphmend.lab.bench.store import Run, Store
from graphmend.lab.bench.tables import Cell, Published, Table
from graphmend.lab.metrics import average_rank

__all__ = ["EXPERIMENT"]

METHODS = ("erm", "drop_edge", "tent", "eerm", "gtrans")
PAPER = {  # in the order of METHODS
    "gcn": (3.8, 3.6, 3.3, 2.9, 1.0),
    "sage": (3.2, 4.2, 2.3, 3.4, 1.7),
    "gat": (3.0, 3.3, 3.3, 3.0, 2.0),
    "gpr": (2.7, 3.3, None, 2.0, 1.7),
}


def _render(choice: Choice, store: Store) -> Table:
    scores = TABLE.drawn(choice, store)
    assert scores is not None
    real = tuple(name for name in choice.datasets if name not in GENERATED)
    columns = {
        "all methods": (choice.methods, choice.datasets),
        "without EERM": (tuple(m for m in choice.methods if m != "eerm"), choice.datasets),
        "without EERM, real sets": (tuple(m for m in choice.methods if m != "eerm"), real),
    }
    cells: dict[tuple[tuple[str, ...], str], Cell] = {}
    rows = []
    for backbone in choice.backbones:
        known = dict(zip(METHODS, PAPER.get(backbone, (None,) * len(METHODS)), strict=True))
        methods = [method for method in choice.methods if (backbone, method) in scores.rows]
        rows += [(backbone, method) for method in methods]
        for column, (ranked, datasets) in columns.items():
            there = tuple(method for method in methods if method in ranked)
            found = _ranks(scores, backbone, there, datasets)
            for method in there:
                number = known[method] if column == "all methods" else None
                paper = None if number is None else Published(number, same_data=False)
                rank = found.get(method)
                cells[(backbone, method), column] = Cell((rank,), paper, digits=1)
    footer = [
        "1 is best; in brackets the paper's rank. On each set over the seeds that all methods have that have run there."
    ]
    return Table(EXPERIMENT.item, list(columns), rows, cells, [*footer, *data_notes(choice.datasets)])


def _ranks(table: Table, backbone: str, methods: Sequence[str], datasets: Sequence[str]) -> dict[str, float]:
    means: dict[str, dict[str, float | None]] = {method: {} for method in methods}
    for dataset in datasets:
        cells = {method: table.cell((backbone, method), dataset) for method in methods}
        values = {method: cell.values for method, cell in cells.items() if cell.known}
        shortest = min((len(numbers) for numbers in values.values()), default=0)
        common = [i for i in range(shortest) if all(numbers[i] is not None for numbers in values.values())]
        for method in values:
            known = [number for i in common if (number := values[method][i]) is not None]
            means[method][dataset] = fmean(known) if known else None
    return {method: rank for method, rank in average_rank(means).items() if rank == rank}


def _runs(choice: Choice) -> list[Run]:
    return TABLE.runs(choice)


EXPERIMENT = Experiment(
    "ood-ranks",
    "Table 1: average ranks over the paper's six sets",
    Choice(PAPER_SETS, TABLE.choice.backbones, METHODS, TABLE.choice.seeds),
    "ood",
    _runs,
    _render,
)
