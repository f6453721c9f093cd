"""A real Ray on this machine; where Ray is not installed these tests are skipped."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from graphmend import GraphMendError
from graphmend.lab.bench.execute import execute
from graphmend.lab.bench.experiments import EXPERIMENTS
from graphmend.lab.bench.store import Store
from graphmend.workers.folders import in_folder
from graphmend.workers.local import Lost
from graphmend.workers.ray_cluster import Ray

ray = pytest.importorskip("ray", reason="needs graphmend[ray]")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("one_thread")]

EXPERIMENT = EXPERIMENTS["augmentations"]
CHOICE = EXPERIMENT.choice.for_smoke("ood")


@pytest.fixture(autouse=True)
def own_ray() -> Iterator[None]:
    yield
    ray.shutdown()


def table(store: Store) -> str:
    return str(EXPERIMENT.render(CHOICE, store).markdown())


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The table from this process."""
    store = Store(tmp_path_factory.mktemp("expected"))
    execute(EXPERIMENT.runs(CHOICE), store)
    return table(store)


def kill_one(ours: psutil.Process, stopped: threading.Event, killed: list[int]) -> None:
    """Kill the first of our descendants that is seen to work on a task."""
    while not stopped.wait(0.01):
        for process in ours.children(recursive=True):
            try:
                if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::_call"):
                    process.kill()
                    killed.append(process.pid)
                    return
            except psutil.Error:
                continue


@pytest.mark.parametrize("kills", [False, True], ids=["undisturbed", "one worker killed"])
def test_the_table_is_that_of_one_process(expected: str, tmp_path: Path, kills: bool) -> None:
    store, stopped, killed = Store(tmp_path), threading.Event(), list[int]()
    killer = threading.Thread(target=kill_one, args=(psutil.Process(), stopped, killed))
    if kills:
        killer.start()
    summary = execute(EXPERIMENT.runs(CHOICE), store, workers=Ray(jobs=2))
    stopped.set()
    if kills:
        killer.join()
    assert (summary.done, summary.failed) == (6, 0) and len(killed) == kills
    assert table(store) == expected


def test_what_is_lost_again_and_again_comes_back_and_errors_are_raised(tmp_path: Path) -> None:
    def dies(item: str, folder: Path) -> str:
        if item == "always":
            os.kill(os.getpid(), signal.SIGKILL)
        if item == "raises":
            raise GraphMendError("this is wrong; do that")
        return item

    found = list(in_folder(Ray(jobs=2, retries=1), dies, tmp_path, ["always", "fine"]))
    (lost,) = (each for each in found if isinstance(each, Lost))
    assert lost.item == "always" and "fine" in found
    with pytest.raises(GraphMendError, match=r"^this is wrong; do that$"):
        list(in_folder(Ray(), dies, tmp_path, ["raises"]))
    assert not list(tmp_path.iterdir())


def test_a_cluster_that_is_not_there() -> None:
    with pytest.raises(GraphMendError, match="there is no Ray at 'auto'"):
        list(Ray("auto")(abs, [1]))
