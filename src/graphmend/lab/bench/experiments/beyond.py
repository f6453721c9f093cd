"""Does mending help, and does it ever harm? The gate with and without a source card, GTrans and doing nothing, GCN.

Not in the paper. A case is a test graph, averaged over seeds; its change is the score minus that of the frozen model
on the same graph. There are three kinds of cases: distribution shift, 30 % of the test nodes with Gaussian noise for
features, and attacks with 20 % of the edges as budget. GTrans has the published settings of each kind and, in
the last two, labels of training and validation nodes; the gate has no settings and uses no labels.
"""

from __future__ import annotations

from statistics import fmean

from graphmend.lab.bench.experiment import Choice, Experiment
from graphmend.lab.bench.experiments.ood_accuracy import EXPERIMENT as TABLE
from graphmend.lab.bench.experiments.ood_accuracy import method_run
from graphmend.lab.bench.presets import abnormal_settings, attack_settings, data_notes
from graphmend.lab.bench.recipes import BY_LABELS, NOISE, ROBUST_SETS, attacked_run, noisy_run, setting_of
from graphmend.lab.bench.store import Run, Store
from graphmend.lab.bench.tables import Cell, Table

__all__ = ["EXPERIMENT"]

METHODS = ("gtrans", "mend_blind", "mend")
KINDS = ("shift", "abnormal", "attack")
RATE = 0.2
HARM = -0.3  # a case is harmed below this change, in points


def _run(method: str, kind: str, dataset: str, seed: int, choice: Choice) -> Run:
    if kind == "shift":
        return method_run(method, dataset, "gcn", seed, choice)
    is_attack = kind == "attack"
    gtrans = attack_settings(**BY_LABELS) if is_attack else abnormal_settings(dataset, **BY_LABELS)
    adapter = {"erm": None, "gtrans": gtrans}.get(method, {"name": "gate"})
    harmed, amount = (attacked_run, RATE) if is_attack else (noisy_run, NOISE)
    return harmed(choice, dataset, seed, amount, adapter, source=method == "mend")


def _kinds(dataset: str) -> tuple[str, ...]:
    return ("shift",) if setting_of(dataset) == "ood" else ("abnormal", "attack")


def _runs(choice: Choice) -> list[Run]:
    return [
        _run(method, kind, dataset, seed, choice)
        for dataset in choice.datasets
        for kind in _kinds(dataset)
        for method in ("erm", *choice.methods)
        for seed in choice.seeds
    ]


def _changes(method: str, kind: str, choice: Choice, store: Store) -> list[float]:
    """The change of every case that both the method and the frozen model have a score for."""
    changes: list[float] = []
    for dataset in choice.datasets:
        if kind in _kinds(dataset):
            pairs = [
                [store.result(_run(name, kind, dataset, seed, choice)) for name in ("erm", method)]
                for seed in choice.seeds
            ]
            done = [(before["scores"], after["scores"]) for before, after in pairs if before and after]
            cases = zip(*([a - b for b, a in zip(*scores, strict=True)] for scores in done), strict=True)
            changes += [fmean(case) for case in cases]
    return changes


def _render(choice: Choice, store: Store) -> Table:
    cells: dict[tuple[tuple[str, ...], str], Cell] = {}
    rows = [(kind, method) for kind in KINDS for method in choice.methods]
    for row in rows:
        changes = _changes(row[1], row[0], choice, store)
        harmed = [100.0 * (change < HARM) for change in changes]
        for column, values in (("mean change", changes), ("harmed (%)", harmed), ("worst", changes)):
            shown = None if not values else min(values) if column == "worst" else fmean(values)
            cells[row, column] = Cell((shown,))
        cells[row, "cases"] = Cell((float(len(changes)),), digits=0)
    footer = [f"Points of the score; harmed: below {HARM}. Each case is averaged over {choice.seeds_in_words}."]
    footer += data_notes(choice.datasets)
    return Table(EXPERIMENT.item, ["mean change", "harmed (%)", "worst", "cases"], rows, cells, footer)


EXPERIMENT = Experiment(
    "beyond",
    "Beyond the paper: mean change, share of harmed cases and worst case, by kind, GCN",
    Choice((*TABLE.choice.datasets, *ROBUST_SETS), ("gcn",), METHODS),
    "both",
    _runs,
    _render,
)
