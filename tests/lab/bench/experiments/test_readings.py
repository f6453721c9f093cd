"""What experiments read from records, checked on records written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphmend.lab.bench.execute import execute
from graphmend.lab.bench.experiment import Choice
from graphmend.lab.bench.experiments import EXPERIMENTS
from graphmend.lab.bench.recipes import adapt_run, train_run
from graphmend.lab.bench.store import Run, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def write(store: Store, run: Run, result: dict[str, Any], memory: float = 1.0) -> None:
    told = {"status": "done", "seconds": 1.0, "peak_memory_gb": memory, "provenance": {"device": "a device"}}
    store.write(run, {**told, "result": result})


def choice_of(name: str, **given: Any) -> Choice:
    return EXPERIMENTS[name].choice.narrowed(**given)


def test_time_for_one_graph_is_that_of_the_last_of_the_largest(store: Store) -> None:
    choice = choice_of("efficiency", datasets=["photo-ood"], methods=["gtrans", "sr_gnn", "eerm"], seeds=[0])
    gtrans, sr_gnn, eerm = EXPERIMENTS["efficiency"].runs(choice)
    graphs = [{"nodes": 9, "seconds": 5.0}, {"nodes": 9, "seconds": 0.5}, {"nodes": 3, "seconds": 0.25}]
    write(store, gtrans, {"graphs": dict(zip("abc", graphs, strict=True))}, memory=2.5)
    trained = [{**graph, "training_seconds": 10.0} for graph in graphs]
    write(store, sr_gnn, {"graphs": dict(zip("abc", trained, strict=True))})
    write(store, eerm, {"seconds": 400.0})
    text = EXPERIMENTS["efficiency"].render(choice, store).markdown()
    assert "| photo-ood | gtrans | 0.50 (0.50, +0.00) | 5.75 (4.90, +0.85) | 2.50 (1.50, +1.00) |" in text
    assert "| photo-ood | sr_gnn | 10.50 | 35.75 (83.50, -47.75) | 1.00 |" in text
    assert "| photo-ood | eerm | 400.00 (396.40, +3.60) | 400.00 | 1.00 (10.50, -9.50) |" in text
    assert "a device" in text


def test_adapting_tells_sizes_and_the_time_of_training_for_each_graph(store: Store) -> None:
    train = train_run("wine", "gcn", 0, {"name": "sr_gnn", "epochs": 1, "target": "each"})
    run = adapt_run(train)
    execute([run], store)
    (graph,) = store.require(run)["graphs"].values()
    assert graph["nodes"] == 178 and graph["training_seconds"] > 0


def test_each_set_has_as_many_columns_as_test_graphs(store: Store) -> None:
    choice = choice_of("cmd-shift", datasets=["fb100", "twitch-e"], seeds=[0])
    fb100, _, _, _ = EXPERIMENTS["cmd-shift"].runs(choice)
    write(store, fb100, {"validation": 1.0, "tests": [30.0, 17.0, 33.0]})
    text = EXPERIMENTS["cmd-shift"].render(choice, store).markdown()
    assert "| fb100 | 5 moments | 1.0 | 30.0 (29.7, +0.3) | 17.0 (16.9, +0.1) | 33.0 (32.9, +0.1) |" in text
    assert "Not run yet: fb100 3 moments, twitch-e 5 moments, twitch-e 3 moments, G3, G4." in text


def test_periods_are_validation_and_test_graphs(store: Store) -> None:
    choice = choice_of("cmd-periods", seeds=[0])
    for run in EXPERIMENTS["cmd-periods"].runs(choice):
        write(store, run, {"validation": 2.5, "tests": [14.0, 20.0, 10.0], "score": 45.0, "scores": [41.0, 38.0, 35.0]})
    text = EXPERIMENTS["cmd-periods"].render(choice, store).markdown()
    assert "| arxiv-size-ood | validation | 2.5 (2.5) | 2.5 (2.5) | 45.00 (45.32) | 45.00 (45.82) |" in text
    assert "| arxiv-size-ood | test 3 | 10.0 (10.4) | 10.0 (10.4) | 35.00 (35.78) | 35.00 (38.81) |" in text


def test_there_is_a_box_per_test_graph_and_method_at_its_own_score(store: Store) -> None:
    """Records keep names in alphabetical order, whatever the order of the test graphs."""
    choice = choice_of("ood-boxplots", datasets=["fb100", "citation"], methods=["erm", "gtrans"], seeds=[0, 1])
    scores = {"Rutgers89": 54.0, "Brown11": 53.0, "Oklahoma97": 55.0}
    for run in EXPERIMENTS["ood-boxplots"].runs(choice):
        if run.settings["dataset"] == "fb100":
            graphs = {name: {"score": score} for name, score in scores.items()}
            write(store, run, {"scores": list(scores.values()), "graphs": graphs})
    first, second = EXPERIMENTS["ood-boxplots"].figure(choice, store).axes
    assert len(first.patches) == 6 and second.texts[0].get_text() == "not run"
    shown = [label.get_text() for label in first.get_xticklabels()]
    heights = [patch.get_path().get_extents().y0 for patch in first.patches[:3]]
    assert dict(zip(shown, heights, strict=True)) == scores


def test_graphs_that_are_scored_together_are_shown_as_groups(store: Store) -> None:
    choice = choice_of("ood-boxplots", datasets=["elliptic-size"], methods=["erm"], seeds=[0])
    (run,) = EXPERIMENTS["ood-boxplots"].runs(choice)
    write(store, run, {"scores": [50.0, 60.0], "graphs": {f"test {i}": {"score": 0.0} for i in range(5)}})
    (axis,) = EXPERIMENTS["ood-boxplots"].figure(choice, store).axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["G0", "G1"]


def test_attacked_graphs_are_shared_with_the_table_of_attacks() -> None:
    attacks = {run.key for run in _attacked("attack")}
    edges = [run for run in _attacked("feature-vs-structure") if run.settings["adapter"]["name"] == "identity"]
    assert edges and {run.key for run in edges} <= attacks


def _attacked(name: str) -> list[Run]:
    choice = choice_of(name, datasets=["cora"], seeds=[0])
    return [run for run in EXPERIMENTS[name].runs(choice) if "attack" in run.settings]
