"""What ``graphmend watch`` does."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer

from graphmend.cli.card_files import find_card
from graphmend.cli.console import PlainConsole
from graphmend.cli.models import device_of, for_model, load_any_model
from graphmend.errors import require
from graphmend.files.files import check_folder, write_text
from graphmend.files.graph_files import load_graph, save_graph
from graphmend.monitor import Entry, Monitor
from graphmend.monitor.folder import new_files, take_new
from graphmend.monitor.metrics import prometheus_text
from graphmend.monitor.monitor import LEARNED
from graphmend.monitor.page import page
from graphmend.results.adaptation import Adaptation

ALARM = 3  # exit code of one pass while an alarm stands


@dataclass(frozen=True)
class Watching:
    """What was asked for, see the options of the command."""

    folder: Path
    out: Path
    model: Path | None
    factory: str | None
    weights: Path | None
    card: Path | None
    references: list[Path]
    rate: float
    once: bool
    every: float
    mend: bool
    metrics: bool
    restart: bool
    forget: bool
    output: str | int | None
    json: bool
    seed: int
    device: str
    quiet: bool


def run_watch(asked: Watching) -> None:
    """Watch until the pass is done, or for ever."""
    check_folder(asked.out)
    new_files(asked.folder, {})  # before the model is read
    is_same = asked.folder.resolve() == asked.out.resolve()
    require(not is_same, f"--out {asked.out} is the folder that is watched; choose another for the results")
    where = device_of(asked.device)
    net = load_any_model(asked.model, factory=asked.factory, weights=asked.weights).to(where)
    card = find_card(asked.weights if asked.model is None else asked.model, asked.card, False).card
    require(card is not None, "there is no source card; make one with 'graphmend card', or name it with --card")
    assert card is not None
    with Monitor(
        net,
        card,
        asked.out / "state.json",
        log=asked.out / "log.jsonl",
        false_alarm_rate=asked.rate,
        mends=asked.mend,
        seed=asked.seed,
        output=asked.output,
    ) as monitor:
        if asked.restart or asked.forget:
            monitor.restart(forget=asked.forget)
        _write(asked, monitor)  # missing packages show before there is work to lose
        if monitor.state.graphs == monitor.state.decisions[LEARNED]:
            for path in asked.references[monitor.state.graphs :]:
                _show(asked, monitor.learn(for_model(load_graph(path), net, where), path.name))
        keep = partial(_keep, asked) if asked.mend else None
        while True:
            for _, _, entry in take_new(monitor, asked.folder, lambda data: for_model(data, net, where), keep):
                _show(asked, entry)
            _write(asked, monitor)
            if asked.once:
                break
            time.sleep(asked.every)
        if not asked.json and not asked.quiet:
            PlainConsole().say("alarm" if monitor.alarm else "no alarm", _standing(monitor))
        if monitor.alarm is not None:
            raise typer.Exit(ALARM)


def _keep(asked: Watching, name: str, result: Adaptation) -> None:
    save_graph(asked.out / name, result.data)
    result.patch.save(asked.out / f"{Path(name).stem}.patch.safetensors")


def _write(asked: Watching, monitor: Monitor) -> None:
    write_text(asked.out / "page.html", page(monitor, f"graphmend watch {asked.folder}"))
    if asked.metrics:
        write_text(asked.out / "metrics.prom", prometheus_text(monitor))


def _show(asked: Watching, entry: Entry) -> None:
    if asked.json:
        typer.echo(json.dumps(entry.summary()))
    elif not asked.quiet:
        sentence = entry.sentence or entry.decision
        PlainConsole().say(entry.name, sentence if entry.alarm is None else f"{sentence}; ALARM: {entry.alarm}")


def _standing(monitor: Monitor) -> str:
    if monitor.alarm is not None:
        return str(monitor.alarm)
    return f"{monitor.state.graphs} graphs, and no sign that the stream has changed"
