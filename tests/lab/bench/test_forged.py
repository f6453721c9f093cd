"""Records and archives of somebody else: what cannot be the result of a run is not taken for one."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from graphmend import GraphMendError
from graphmend.files.tars import tar_of
from graphmend.lab.bench.execute import Watch
from graphmend.lab.bench.experiments import EXPERIMENTS
from graphmend.lab.bench.store import Run, Store
from graphmend.lab.beyond import archive as beyond

EXPERIMENT = EXPERIMENTS["self-supervision"]
CHOICE = EXPERIMENT.choice.for_smoke("ood")
RUN = EXPERIMENT.runs(CHOICE)[0]
DONE = {"status": "done", "result": {"x": 1}, "seconds": 1.0}


def record(**changes: Any) -> str:
    whole = {"key": RUN.key, "task": RUN.task, "settings": dict(RUN.settings), **DONE, **changes}
    return json.dumps({name: value for name, value in whole.items() if value != "left out"})


FORGED = {
    "deeply nested": "[" * 100_000,
    "nested inside": record(result={"x": "nested"}).replace('"nested"', "[" * 100_000 + "]" * 100_000),
    "a list": "[]",
    "of other settings": record(settings={}),
    "of another task": record(task="cook"),
    "a task of another type": record(task=3),
    "of another key": record(key="0" * 16),
    "no result": record(result="left out"),
    "a result of another type": record(result=3),
    "no status": record(status="left out"),
    "a status of another type": record(status=["done"]),
    "failed without an error": record(status="failed", out_of_memory=False),
    "failed without a reason": record(status="failed", error="x"),
    "seconds are NaN": record(seconds=float("nan")),
    "seconds are a text": record(seconds="1"),
    "seconds below zero": record(seconds=-1),
    "too long a number": record(seconds=1.25).replace("1.25", "9" * 5000),
}


@pytest.mark.parametrize("text", FORGED.values(), ids=FORGED)
def test_a_forged_record_is_no_result(text: str, tmp_path: Path) -> None:
    store, other = Store(tmp_path / "here"), Store(tmp_path / "there")
    store.path(RUN).parent.mkdir(parents=True)
    store.path(RUN).write_text(text)
    assert store.read(RUN) is None and store.result(RUN) is None
    assert Watch([RUN], store)([RUN]).done == 0
    packed = tmp_path / "a.tar.xz"
    assert store.pack(packed) == 1
    with pytest.raises(GraphMendError, match=rf"{RUN.key}\.json"):
        other.unpack(packed)
    assert not other.folder.exists()


def test_a_sound_record_is_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(RUN, DONE)
    assert store.result(RUN) == {"x": 1}


@pytest.mark.parametrize("result", [{}, {"graphs": 3}, {"graphs": {"a": {"score": "x"}}}, {"graphs": {"a": None}}])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_result_of_another_form_ends_in_a_sentence(name: str, result: dict[str, Any], tmp_path: Path) -> None:
    experiment, store = EXPERIMENTS[name], Store(tmp_path)
    choice = experiment.choice.for_smoke(experiment.setting)
    for run in experiment.runs(choice):
        store.write(run, {**DONE, "result": result})
    try:
        drawn = experiment.drawn(choice, store), experiment.pictured(choice, store)
    except GraphMendError as error:
        assert "run it" in str(error)
    else:
        assert drawn


@pytest.mark.parametrize("name", ["../a.json", "/a.json", "runs/../../a.json", "runs/train/x.json", "a.json", "runs"])
def test_an_archive_writes_nowhere_else(name: str, tmp_path: Path) -> None:
    packed = tmp_path / "a.tar.xz"
    packed.write_bytes(lzma.compress(tar_of([(name, record().encode())])))
    with pytest.raises(GraphMendError):
        Store(tmp_path / "in" / "store").unpack(packed)
    assert list(tmp_path.rglob("*")) == [packed]


@pytest.mark.parametrize("name", ["../a.xz", "/a.xz", "models/a.npz", "models/../../a.xz"])
def test_a_packed_store_writes_nowhere_else(name: str, tmp_path: Path) -> None:
    packed = tmp_path / "store-0.tar"
    packed.write_bytes(tar_of([("models/b.npz.xz", lzma.compress(b"b")), (name, lzma.compress(b"a"))]))
    with pytest.raises(GraphMendError):
        beyond.unpack([packed], tmp_path / "in" / "store")
    assert list(tmp_path.rglob("*")) == [packed]


def test_a_store_whose_folders_are_links_is_packed_whole(tmp_path: Path) -> None:
    places = [tmp_path / "there" / name for name in ("runs", "models", "attacks")]
    for place in places:
        place.mkdir(parents=True)
    folder = tmp_path / "here"
    folder.mkdir()
    for place in places:
        (folder / place.name).symlink_to(place)
    store = Store(folder)
    store.write(RUN, DONE)
    (places[1] / "wine-gcn-0.safetensors").write_bytes(b"model")
    (places[2] / "file.npz").write_bytes(b"attack")
    (folder / "attacks" / "link.npz").symlink_to(places[2] / "file.npz")
    assert store.pack(tmp_path / "a.tar.xz") == 1 == Store(tmp_path / "copy").unpack(tmp_path / "a.tar.xz")
    assert beyond.unpack(beyond.pack(folder, tmp_path / "packed"), tmp_path / "copy") == 3
    assert (tmp_path / "copy" / "attacks" / "link.npz").read_bytes() == b"attack"


def test_runs_with_the_same_settings_are_packed_to_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Store(tmp_path / name).write(Run("train", {"seed": 0}), DONE)
        Store(tmp_path / name).pack(tmp_path / f"{name}.tar.xz")
    assert (tmp_path / "a.tar.xz").read_bytes() == (tmp_path / "b.tar.xz").read_bytes()
