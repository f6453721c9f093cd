"""A suite that was interrupted or killed goes on where it was, and its tables are those of an undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphmend.lab.bench.execute import execute
from graphmend.lab.bench.experiments import EXPERIMENTS
from graphmend.lab.bench.store import Run, Store
from graphmend.lab.bench.tasks import TASKS
from graphmend.lab.bench.workspace import Workspace
from graphmend.workers.local import Lost

pytestmark = pytest.mark.usefixtures("one_thread")
NAME = "augmentations"
EXPERIMENT = EXPERIMENTS[NAME]
CHOICE = EXPERIMENT.choice.for_smoke("ood")
MAIN = "import graphmend.cli as cli; cli.main()"
KEPT = (".json", ".safetensors", ".seconds")  # what runs leave behind, beside no half-written file


def table(store: Store) -> str:
    return str(EXPERIMENT.render(CHOICE, store).markdown())


def records(store: Store) -> set[Path]:
    return set(store.folder.glob("runs/*/*.json"))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The table of an undisturbed suite."""
    store = Store(tmp_path_factory.mktemp("expected"))
    execute(EXPERIMENT.runs(CHOICE), store)
    return table(store)


def test_an_interrupted_suite_goes_on(expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, runs, carried_out = Store(tmp_path), EXPERIMENT.runs(CHOICE), []
    adapt: Callable[[Run, Workspace], dict[str, Any]] = TASKS["adapt"]

    def interrupted(run: Run, workspace: Workspace) -> dict[str, Any]:
        carried_out.append(run.key)
        result = adapt(run, workspace)
        if len(carried_out) in (1, 3):
            raise KeyboardInterrupt
        return result

    monkeypatch.setitem(TASKS, "adapt", interrupted)
    for finished in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            execute(runs, store)
        assert len(records(store)) == finished
    summary = execute(runs, store)
    assert summary.failed == 0 and summary.skipped == 2 and table(store) == expected
    assert len(carried_out) == len(set(carried_out)) + 2  # only what was interrupted was repeated


def test_a_run_whose_process_died_is_a_failed_cell(tmp_path: Path) -> None:
    """And it is tried again when that is asked for."""

    class Dying:
        elsewhere = False

        def __call__(self, function: Any, items: Any) -> Any:
            return (Lost(item, "killed", out_of_memory=True) for item in items)

    store, run = Store(tmp_path), EXPERIMENT.runs(CHOICE)[0]
    execute(run.needs, store)
    assert execute([run], store, workers=Dying()).failed == 1
    assert "| erm | OOM |" in table(store)
    assert execute([run], store, retry=True).done == 1


def start(folder: Path, jobs: int) -> subprocess.Popen[bytes]:
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "ignore", "-c", MAIN, "bench", NAME, "--smoke", "--store", str(folder)]
    return subprocess.Popen(
        [*command, "--jobs", str(jobs)],
        env=variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_for(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a process ended within some time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_suite_that_is_killed_three_times_has_the_same_table(expected: str, tmp_path: Path, jobs: int) -> None:
    store, draw = Store(tmp_path), random.Random(jobs)
    for _ in range(3):
        before = len(records(store))
        with start(tmp_path, jobs) as process:
            while len(records(store)) <= before and not wait_for(process, 0.02):
                pass
            wait_for(process, draw.uniform(0, 0.5))
            os.killpg(process.pid, signal.SIGKILL)
    with start(tmp_path, jobs) as process:
        assert process.wait(300) == 0
    assert table(store) == expected
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix not in KEPT]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_ends_with_130_and_keeps_what_is_finished(tmp_path: Path, jobs: int) -> None:
    store = Store(tmp_path)
    with start(tmp_path, jobs) as process:
        while not records(store) and not wait_for(process, 0.02):
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    summary = execute(EXPERIMENT.runs(CHOICE), store)
    assert summary.skipped >= 1 and summary.failed == 0
