"""Efficiency table of the paper: extra seconds and memory of EERM, SR-GNN, GTrans and GTrans with AD-GCL, GCN.

*training* and *forward* are plain training and one prediction, which every method needs. For the others the time is
what they take beside those: EERM its training, which serves all test graphs; SR-GNN a training per test graph; GTrans
the adaptation. *One graph* is the largest test graph, the last of several equally large ones, as in the paper. Memory
is the peak of the GPU during the run; on a CPU, of the process. The paper used a V100 and read memory from the driver;
its times for all graphs of Photo and for AD-GCL on OGB-Arxiv are in its text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphmend.lab.bench.experiment import Choice, Experiment, published
from graphmend.lab.bench.experiments.methods import shifted
from graphmend.lab.bench.experiments.ood_accuracy import method_run
from graphmend.lab.bench.experiments.ood_variants import SURROGATES
from graphmend.lab.bench.presets import STAND_INS, data_notes, ood_settings, paper
from graphmend.lab.bench.recipes import adapt_run, train_run
from graphmend.lab.bench.store import Run, Store
from graphmend.lab.bench.tables import Cell, Table

__all__ = ["EXPERIMENT"]

SETS = ("cora-ood", "photo-ood", "elliptic-size", "arxiv-votes-ood")
METHODS = ("training", "forward", "eerm", "sr_gnn", "gtrans", "gtrans_adgcl")


def _run(method: str, dataset: str, seed: int, choice: Choice) -> Run:
    """The run whose time and memory count."""
    if method == "eerm":
        (train,) = method_run(method, dataset, "gcn", seed, choice).needs
        return train
    if method == "training":
        return train_run(dataset, "gcn", seed, choice.trainer())
    if method == "forward":
        return method_run("erm", dataset, "gcn", seed, choice)
    if method == "sr_gnn":
        return shifted(method, dataset, seed, choice)
    surrogate: dict[str, Any] = {} if method == "gtrans" else {"surrogate": SURROGATES["adgcl"]}
    return adapt_run(train_run(dataset, "gcn", seed, choice.trainer()), ood_settings(dataset, **surrogate))


def _seconds_for_one(record: dict[str, Any]) -> float | None:
    result = record["result"]
    if record["task"] == "train":
        seconds: float | None = result["seconds"]
        return seconds
    graphs = list(enumerate(result["graphs"].values()))
    _, largest = max(graphs, key=lambda graph: (graph[1].get("nodes", 0), graph[0]))
    return _extra(largest)


def _seconds_for_all(record: dict[str, Any]) -> float | None:
    result = record["result"]
    if record["task"] == "train":
        return _seconds_for_one(record)  # one training serves all graphs
    seconds = [_extra(graph) for graph in result["graphs"].values()]
    known = [one for one in seconds if one is not None]
    return sum(known) if len(known) == len(seconds) else None


def _extra(graph: dict[str, Any]) -> float | None:
    training = graph.get("training_seconds", 0.0)
    return None if training is None else float(training + graph["seconds"])


COLUMNS: dict[str, tuple[str, Callable[[dict[str, Any]], float | None]]] = {
    "one graph (s)": ("one", _seconds_for_one),
    "all graphs (s)": ("all", _seconds_for_all),
    "memory (GB)": ("memory", lambda record: float(record["peak_memory_gb"])),
}
"""Columns with their name among the paper's numbers and what is read from a record."""


def _render(choice: Choice, store: Store) -> Table:
    cells: dict[tuple[tuple[str, ...], str], Cell] = {}
    rows = [(dataset, method) for dataset in choice.datasets for method in choice.methods]
    for dataset, method in rows:
        records = [store.read(_run(method, dataset, seed, choice)) for seed in choice.seeds]
        failed = [record for record in records if record is not None and record["status"] == "failed"]
        note = ("OOM" if all(record["out_of_memory"] for record in failed) else "failed") if failed else ""
        known = paper("efficiency").get(method, {}).get(STAND_INS.get(dataset, dataset), {})
        for column, (key, value) in COLUMNS.items():
            done = tuple(value(r) if r is not None and r["status"] == "done" else None for r in records)
            cells[(dataset, method), column] = Cell(done, published(known.get(key), dataset), note)
    found = [record for run in _runs(choice) if (record := store.read(run)) is not None]
    where = ", ".join(sorted({record["provenance"]["device"] for record in found})) or "no device yet"
    footer = [f"{choice.seeds_in_words}; {where}. Beside our number: the paper's (V100) and the difference."]
    footer += data_notes(choice.datasets)
    return Table(EXPERIMENT.item, list(COLUMNS), rows, cells, footer)


def _runs(choice: Choice) -> list[Run]:
    return [
        _run(m, dataset, seed, choice) for dataset in choice.datasets for m in choice.methods for seed in choice.seeds
    ]


EXPERIMENT = Experiment(
    "efficiency",
    "Efficiency: extra seconds and memory under distribution shift, GCN",
    Choice(SETS, ("gcn",), METHODS),
    "ood",
    _runs,
    _render,
)
