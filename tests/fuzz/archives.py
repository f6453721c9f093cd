"""Archives of results and of stores, and records of runs: damaged, or forged so that their checksums fit."""

from __future__ import annotations

import copy
import io
import json
import lzma
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzz.cases import Case, Violation
from fuzz.damage import damaged
from fuzz.own_files import ODD_JSON, to_json
from graphmend.files.tars import tar_of
from graphmend.lab.bench.execute import Watch
from graphmend.lab.bench.experiments import EXPERIMENTS
from graphmend.lab.bench.store import Run, Store
from graphmend.lab.beyond import archive as store_archive

Members = list[tuple[str, bytes]]
NAMES = (
    "../x.json",
    "/x.json",
    "runs/../x.json",
    "runs/train/x.json",
    "runs",
    "",
    "a" * 300,
    "\x1b[31m",
    "runs/x\x00y",
)


def _runs(rng: random.Random) -> tuple[str, list[Run]]:
    name = rng.choice(list(EXPERIMENTS))
    experiment = EXPERIMENTS[name]
    return name, experiment.runs(experiment.choice.for_smoke(experiment.setting))


def _record(run: Run) -> dict[str, Any]:
    """A sound one, with what results of most tasks hold."""
    graph = {"score": 0.5, "seconds": 0.1, "loss_first": 1.0, "loss_last": 0.5, "abnormal": 0.4}
    result = {"graphs": {"one": graph}, "score": 0.5, "seconds": 1.0, "settings": {}, "flips": 3}
    done = {"status": "done", "result": result, "seconds": 1.5, "peak_memory_gb": 0.5, "provenance": {}}
    return {"key": run.key, "task": run.task, "settings": dict(run.settings), **done}


def _odd(rng: random.Random, record: dict[str, Any]) -> dict[str, Any]:
    """One entry anywhere is another one, or gone."""
    place: Any = copy.deepcopy(record)
    whole = place
    while inner := [value for value in place.values() if isinstance(value, dict) and value]:
        if rng.random() < 0.4:
            break
        place = rng.choice(inner)
    key = rng.choice(list(place))
    if rng.random() < 0.2:
        del place[key]
    else:
        place[key] = rng.choice(ODD_JSON)
    return dict(whole)


def _content(rng: random.Random, run: Run, sound: float) -> bytes:
    record = _record(run)
    chance = rng.random()
    if rng.random() < sound:
        return json.dumps(record).encode()
    if chance < 0.2:
        return damaged(rng, json.dumps(record).encode())[1]
    try:
        return to_json(_odd(rng, record)).encode()
    except UnicodeEncodeError:
        return b"{}"


def _members(rng: random.Random, runs: list[Run]) -> Members:
    store = Store("")
    sound = rng.choice((1.0, 1.0, 0.3))
    members = [(str(store.path(run)), _content(rng, run, sound)) for run in rng.sample(runs, min(3, len(runs)))]
    if rng.random() < 0.1:
        members.append((rng.choice(NAMES), b"{}"))
    return members + members[:1] if rng.random() < 0.05 else members


def _odd_tar(rng: random.Random) -> bytes:
    """Entries that are no plain files, or whose headers say what cannot be."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=rng.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))) as tar:
        entry = tarfile.TarInfo(rng.choice(("runs/train/0.json", *NAMES[:4])))
        entry.type = rng.choice((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.REGTYPE))
        entry.linkname = "/etc/passwd"
        size = rng.choice((0, 1, 2**30, 2**40, -1))
        if entry.type == tarfile.REGTYPE:
            numbers = {"major": "0", "minor": "1", "numblocks": "1", "map": f"{size},0", "size": str(size)}
            entry.pax_headers = {f"GNU.sparse.{name}": value for name, value in numbers.items()}
        tar.addfile(entry)
    return buffer.getvalue()


def _compressed(rng: random.Random, content: bytes) -> bytes:
    forms = (lzma.FORMAT_XZ, lzma.FORMAT_XZ, lzma.FORMAT_XZ, lzma.FORMAT_ALONE)
    return lzma.compress(content, rng.choice(forms), preset=rng.choice((0, 6)))


def archives(rng: random.Random, folder: Path) -> Case:
    """Unpacking an archive of results, or of a store; and looking at what was unpacked."""
    name, runs = _runs(rng)
    path, told = folder / "given.tar.xz", "members"
    chance = rng.random()
    if chance < 0.1:
        told, plain = "a bomb", bytes(rng.choice((2**20, 2**25)))
    elif chance < 0.25:
        told, plain = "odd entries", _odd_tar(rng)
    else:
        plain = tar_of([(given.replace("\x00", ""), content) for given, content in _members(rng, runs)])
    if rng.random() < 0.2:
        more, plain = damaged(rng, plain)
        told += f", tar {more}"
    of_store = rng.random() < 0.25
    content = plain if of_store and rng.random() < 0.5 else _compressed(rng, plain)
    if of_store:
        content = tar_of([(rng.choice(("models/a.npz.xz", *NAMES[:4])), content)]) if rng.random() < 0.8 else content
    if rng.random() < 0.25:
        more, content = damaged(rng, content)
        told += f", {more}"
    path.write_bytes(content)
    target = folder / "in" / "store"

    def run() -> None:
        try:
            if of_store:
                store_archive.unpack([path], target)
            else:
                Store(target).unpack(path)
                _look(name, Store(target))
        finally:
            outside = [other for other in folder.rglob("*") if other.is_file() and target not in other.parents]
            if outside != [path]:
                raise Violation(f"written outside of the store: {outside}")

    return Case(f"{'a store' if of_store else f'results of {name}'}, {told}", run)


def records(rng: random.Random, folder: Path) -> Case:
    """Results in a folder, drawn."""
    name, runs = _runs(rng)
    store = Store(folder)
    for run in runs:
        path = store.path(run)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_content(rng, run, 0.4))
    return Case(f"records of {name}", lambda: _look(name, store))


def _look(name: str, store: Store) -> None:
    """What 'bench status', 'bench render' and 'bench pack' do."""
    experiment = EXPERIMENTS[name]
    choice = experiment.choice.for_smoke(experiment.setting)
    looks: tuple[Callable[[], object], ...] = (
        lambda: Watch(experiment.runs(choice), store)(experiment.runs(choice)),
        lambda: store.pack(store.folder / "again.tar.xz"),
        lambda: experiment.drawn(choice, store),
    )
    for look in looks:
        look()
