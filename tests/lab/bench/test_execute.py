"""Runs are carried out once, in order, and a failed one does not end the suite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmend import GraphMendError
from graphmend.errors import MissingDataError
from graphmend.lab.bench.execute import Times, execute, ordered
from graphmend.lab.bench.recipes import adapt_run, attack_run, train_run, tune_run, tuned_training_run
from graphmend.lab.bench.store import Run, Store
from graphmend.lab.bench.tasks import TASKS
from graphmend.workers.local import Local

FEW = {"name": "erm", "epochs": 2}


def erm(seed: int = 0, **trainer: Any) -> Run:
    return train_run("wine", "gcn", seed, {**FEW, **trainer})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_the_same_content_is_the_same_run() -> None:
    assert erm().key == erm().key and erm() == erm() and erm().key != erm(1).key
    assert adapt_run(erm()).key != adapt_run(erm(), {"name": "gtrans"}).key


def test_what_is_needed_comes_first_and_once() -> None:
    train, attack = erm(), attack_run(erm(), 0.1)
    tune = tune_run(erm(), {"name": "gtrans"}, {"steps": [1]}, attack=attack)
    levels = ordered([adapt_run(train, attack=attack, tune=tune), adapt_run(train), adapt_run(erm())])
    assert [sorted(run.task for run in level) for level in levels] == [
        ["train"],
        ["adapt", "attack"],
        ["tune"],
        ["adapt"],
    ]


def test_a_finished_run_is_skipped_and_a_damaged_record_is_not(store: Store) -> None:
    run = adapt_run(erm())
    assert execute([run], store).done == 2
    assert execute([run, run], store) == execute([run], store)
    before = store.path(run).stat().st_mtime_ns
    assert execute([run], store).skipped == 2 and store.path(run).stat().st_mtime_ns == before
    store.path(run).write_text(store.path(run).read_text()[:50])
    assert store.result(run) is None and execute([run], store).done == 1 and store.result(run) is not None


def test_a_failed_run_is_recorded_and_the_others_go_on(store: Store) -> None:
    bad, good = adapt_run(erm(), {"name": "tent"}), adapt_run(erm())
    summary = execute([bad, good], store)
    assert (summary.done, summary.failed) == (2, 1) and store.result(good) is not None
    record = store.read(bad)
    assert record is not None and record["status"] == "failed" and "batch normalisation" in record["error"]
    assert execute([bad], store).failed == 0  # it is not tried again,
    assert execute([bad], store, retry=True).failed == 1  # unless that is wanted


def test_a_run_whose_data_were_missing_is_tried_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has to say so once the files are there."""
    monkeypatch.setitem(TASKS, "read", read)
    run = Run("read", {"path": str(tmp_path / "data")})
    assert execute([run], store).failed == 1
    (tmp_path / "data").touch()
    summary = execute([run], store)
    assert (summary.skipped, summary.done, summary.failed) == (0, 1, 0) and store.require(run) == {"found": True}


def read(run: Run, workspace: Any) -> dict[str, Any]:
    if not Path(run.settings["path"]).exists():
        raise MissingDataError("the file is not here")
    return {"found": True}


def test_processes_find_what_one_process_finds(store: Store, tmp_path: Path) -> None:
    runs = [adapt_run(erm(seed), {"name": "gtrans", "steps": 2}) for seed in (0, 1)]
    other = Store(tmp_path / "other")
    execute(runs, store)
    execute(runs, other, workers=Local(2))
    for run in runs:
        assert store.require(run)["score"] == other.require(run)["score"]


def test_a_record_has_what_is_needed_to_repeat_it(store: Store) -> None:
    run = adapt_run(erm(), {"name": "gtrans", "steps": 2, "surrogate_weight": 0.1}, abnormal=0.3)
    execute([run], store)
    record = json.loads(store.path(run).read_text())
    assert record["settings"] == dict(run.settings) and record["provenance"]["torch"] == torch.__version__
    assert {"seconds", "peak_memory_gb"} <= record.keys()
    (graph,) = record["result"]["graphs"].values()
    assert {"score", "abnormal", "seconds", "loss_first", "loss_last"} <= graph.keys()


def test_the_time_of_a_training_is_that_of_the_training_also_when_its_model_is_already_there(store: Store) -> None:
    run = erm()
    execute([run], store)
    seconds = store.require(run)["seconds"]
    store.path(run).unlink()  # as after a kill between the model and its record
    execute([run], store)
    assert store.require(run)["seconds"] == seconds > 0


def test_settings_are_chosen_by_another_run(store: Store) -> None:
    tune = tune_run(erm(), {"name": "gtrans", "edge_steps": 0}, {"steps": [1, 2]})
    run = adapt_run(erm(1), {"name": "gtrans", "edge_steps": 0}, tune=tune)
    execute([run], store)
    assert store.require(run)["adapter"] == {"name": "gtrans", "edge_steps": 0, **store.require(tune)["settings"]}


def test_an_attack_is_shared(store: Store) -> None:
    attack = attack_run(erm(), 0.05, epochs=2, block_size=2000)
    execute([adapt_run(erm(), attack=attack), adapt_run(erm(), {"name": "jaccard"}, attack=attack)], store)
    assert store.require(attack)["flips"] > 0 and len(list(store.folder.glob("runs/attack/*.json"))) == 1


def test_an_archive_holds_results_and_nothing_else(store: Store, tmp_path: Path) -> None:
    run = adapt_run(erm())
    execute([run], store)
    assert store.pack(tmp_path / "a.tar.xz") == 2
    other = Store(tmp_path / "other")
    assert other.unpack(tmp_path / "a.tar.xz") == 2 and other.result(run) == store.result(run)
    assert other.unpack(tmp_path / "a.tar.xz") == 0
    (tmp_path / "b.tar.xz").write_bytes(b"no archive")
    with pytest.raises(GraphMendError, match=r"b\.tar\.xz is damaged"):
        other.unpack(tmp_path / "b.tar.xz")


def test_an_unknown_task_is_named(store: Store) -> None:
    with pytest.raises(GraphMendError, match=f"unknown task 'cook'; choose one of {', '.join(sorted(TASKS))}"):
        execute([Run("cook", {})], store)


def test_a_cell_is_finished_before_the_next_one_begins(store: Store) -> None:
    """What a finished run makes possible comes next, and everything that ends is told."""
    runs, told = [adapt_run(erm(0)), adapt_run(erm(1))], []
    execute(runs, store, finished=lambda run: told.append(f"{run.task} {run.settings['seed']}") or "")
    assert told == ["train 0", "adapt 0", "train 1", "adapt 1"]


def test_the_time_left_is_that_of_like_runs() -> None:
    done = {"status": "done", "seconds": 2.0}
    slow = train_run("wine", "gat", 0, FEW)
    times = Times({erm(0): done, erm(1): {**done, "seconds": 4.0}, slow: {**done, "seconds": 9.0}})
    assert times.left([erm(2), erm(3)], 1) == 6.0  # the mean of 2 and 4, twice
    assert times.left([erm(2), train_run("wine", "gat", 1, FEW)], 2) == 6.0
    assert times.left([train_run("digits", "gcn", 0, FEW)], 1) == 5.0  # the mean over all trainings
    assert times.left([adapt_run(erm())], 1) is None
    times.add(adapt_run(erm()), {**done, "seconds": 1.0})
    assert times.left([adapt_run(erm(1))], 1) == 1.0


def test_a_training_with_tuned_settings_is_the_one_that_was_chosen(store: Store) -> None:
    tune = tuned_training_run(erm(), {"drop_edge": [0.9, 0.0]})
    run = adapt_run(erm(1), tune_training=tune)
    execute([run], store)
    chosen = store.require(tune)["settings"]["drop_edge"]
    plain = adapt_run(erm(1, drop_edge=chosen))
    execute([plain], store)
    assert store.require(run)["score"] == store.require(plain)["score"]
    assert len(store.require(tune)["trials"]) == 2


def test_one_draw_of_the_data_serves_all_seeds() -> None:
    runs = [train_run("cora-ood", "gcn", seed) for seed in (0, 1)]
    redrawn = [train_run("cora-ood", "gcn", seed, redraw=True) for seed in (0, 1)]
    assert runs[0] == redrawn[0] and runs[1] != redrawn[1]
    assert runs[1].settings["draw"] == 0 and "draw" not in redrawn[1].settings
    assert "draw" not in train_run("twitch-e", "gcn", 1).settings


def test_an_unpacked_attack_is_found_again(store: Store, tmp_path: Path) -> None:
    """Archives hold no flips, which the next run on the attacked graph needs."""
    attack = attack_run(erm(), 0.05, epochs=2, block_size=2000)
    execute([adapt_run(erm(), attack=attack)], store)
    store.pack(tmp_path / "a.tar.xz")
    other, run = Store(tmp_path / "other"), adapt_run(erm(), {"name": "jaccard", "threshold": -1.0}, attack=attack)
    other.unpack(tmp_path / "a.tar.xz")
    assert execute([run], other).failed == 0
    assert other.require(run)["score"] == store.require(adapt_run(erm(), attack=attack))["score"]
