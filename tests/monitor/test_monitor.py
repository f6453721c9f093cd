"""The monitor on small graphs: alarms, what they say, and what is remembered."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

import graphmend
from graphmend import Failure, GraphMendError
from graphmend.monitor import KINDS, Monitor
from graphmend.monitor.betting import WARM_UP
from graphmend.monitor.metrics import prometheus_text
from graphmend.monitor.page import page
from support.processes import run_python
from support.streams import FAULTS, broken_rows, graph, model_and_card, moved_columns

HEALTHY = 50


def made(state: Path | None = None, **options: object) -> Monitor:
    return Monitor(*model_and_card(), state, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state after some healthy graphs."""
    path = tmp_path_factory.mktemp("monitor") / "state.json"
    with made(path, mends=False) as monitor:
        for seed in range(HEALTHY):
            monitor.update(graph(seed), f"day {seed}")
        assert monitor.alarm is None and monitor.found == []
    return path


def copied(path: Path, folder: Path) -> Path:
    copy = folder / "state.json"
    copy.write_bytes(path.read_bytes())
    return copy


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_every_kind_of_fault_raises_its_alarm(fault: Callable[[int], Data], healthy: Path, tmp_path: Path) -> None:
    with made(copied(healthy, tmp_path), mends=False) as monitor:
        for seed in range(HEALTHY, HEALTHY + 20):
            monitor.update(fault(seed), f"day {seed}")
        alarm = monitor.alarm
    assert alarm is not None
    assert FAULTS[fault] in monitor.found and (alarm.kind == FAULTS[fault])
    assert abs(alarm.since - HEALTHY) <= 5 and alarm.since_name == f"day {alarm.since}"
    assert f"since graph {alarm.since}" in str(alarm) and KINDS[alarm.kind] in str(alarm)


def test_a_graph_is_mended_as_without_a_monitor() -> None:
    model, card = model_and_card()
    with made() as monitor:
        for data in (graph(0), broken_rows(1), moved_columns(2)):
            before, alone = data.clone(), graphmend.mend(model, data, card=card)
            result, entry = monitor.update(data)
            assert not isinstance(result, Failure)
            assert entry.decision == alone.decision and entry.sentence == alone.sentence
            assert torch.equal(result.data.x, alone.data.x) and torch.equal(result.logits, alone.logits)
            assert torch.equal(data.x, before.x) and torch.equal(data.edge_index, before.edge_index)


def test_a_bad_graph_costs_nothing_but_an_entry(healthy: Path, tmp_path: Path) -> None:
    with made(copied(healthy, tmp_path), mends=False, log=tmp_path / "log.jsonl") as monitor:
        before = monitor.capital
        for bad in (
            Data(x=torch.rand(3, 2), edge_index=torch.zeros(2, 0, dtype=torch.long)),
            ValueError("half a file"),
        ):
            result, entry = monitor.update(bad, "bad")
            assert isinstance(result, Failure) and entry.decision == "failed" and entry.scores == entry.p_values == {}
        assert monitor.capital == before and monitor.state.decisions["failed"] == 2
        with pytest.raises(GraphMendError, match="restart"):
            monitor.learn(graph(0))
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["graph"] for line in lines] == [HEALTHY, HEALTHY + 1] and "half a file" in lines[1]["sentence"]


def test_learned_graphs_stand_in_for_the_first_of_the_stream() -> None:
    with made(mends=False) as monitor:
        for seed in range(40):
            assert monitor.learn(graph(seed)).decision == "learned"
        assert set(monitor.update(graph(40))[1].p_values) == set(KINDS)
        with pytest.raises(GraphMendError, match="half a file"):
            monitor.restart(forget=True)
            monitor.learn(GraphMendError("half a file"))  # type: ignore[arg-type]
        assert monitor.state.graphs == 41


def test_an_alarm_stands_until_the_restart(healthy: Path, tmp_path: Path) -> None:
    with made(copied(healthy, tmp_path), mends=False) as monitor:
        for seed in range(10):
            monitor.update(broken_rows(seed))
        alarm = monitor.alarm
        monitor.update(graph(0))
        assert alarm is not None and monitor.alarm == alarm
        monitor.restart()
        assert monitor.alarm is None and monitor.found == []
        entry = monitor.update(graph(1))[1]
        assert set(entry.p_values) == set(KINDS), "the first graphs are still known"
        monitor.restart(forget=True)
        assert monitor.update(graph(2))[1].p_values == {}


def test_the_state_does_not_grow_with_the_stream(tmp_path: Path) -> None:
    """A thousand entries of it are written as they would be after a thousand graphs."""
    path, sizes = tmp_path / "state.json", []
    with made(path, mends=False) as monitor:
        for seed in range(WARM_UP + 15):
            monitor.update(graph(seed % 7), "a day")
        for number in (310, 1000):
            while monitor.state.graphs < number:  # the entries alone grow; the counts have their levels
                monitor.update(ValueError("no graph"), "a day")
            sizes.append(path.stat().st_size)
    assert sizes[1] <= 1.1 * sizes[0] < 200_000


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "other JSON": lambda content: b"[1, 2]",
    "another format": lambda content: content.replace(b"monitor-1", b"monitor-9"),
    "a word for a number": lambda content: content.replace(b'"rounds":', b'"rounds":"x","was":'),
    "a negative count": lambda content: content.replace(b'"graphs":', b'"graphs":-'),
    "a part is missing": lambda content: content.replace(b'"bag"', b'"bug"'),
    "a rate of 2": lambda content: content.replace(b'"rate":0.01', b'"rate":2'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_gets_a_sentence(damage: str, healthy: Path, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(DAMAGES[damage](healthy.read_bytes()))
    assert path.read_bytes() != healthy.read_bytes()
    with pytest.raises(GraphMendError, match=r"state\.json"):
        made(path)


def test_a_state_belongs_to_its_card_rate_and_seed(healthy: Path, tmp_path: Path) -> None:
    path = copied(healthy, tmp_path)
    model, _ = model_and_card()
    with pytest.raises(GraphMendError, match="source card"):
        Monitor(model, graphmend.card(model, graph(5, 100)), path)
    with pytest.raises(GraphMendError, match=r"0\.01"):
        made(path, false_alarm_rate=0.02)
    with pytest.raises(GraphMendError, match="seed 0"):
        made(path, seed=1)
    with pytest.raises(GraphMendError, match="false_alarm_rate"):
        made(false_alarm_rate=1.5)
    made(path).close()


def test_two_monitors_on_one_state_get_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    with made(path), pytest.raises(GraphMendError, match="another monitor"):
        made(path)
    made(path).close()


KILLED = """
import os, signal, sys
from pathlib import Path
os.environ["OMP_NUM_THREADS"] = "1"  # a process with threads of its own may stand still after a fork
from support.streams import graph, model_and_card, broken_rows
from graphmend.monitor import Monitor

model, card = model_and_card()
graphs = [graph(seed) for seed in range(24)] + [broken_rows(seed) for seed in range(3)]
folder = Path(sys.argv[1])

def run(name, fatal=None):
    path = folder / name
    path.mkdir(exist_ok=True)
    if fatal is not None:
        seen = [0]
        def hook(event, arguments):
            if event in ("open", "os.rename", "os.remove", "os.truncate", "os.mkdir") and name in str(arguments[0]):
                seen[0] += 1
                if seen[0] == fatal:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(hook)
    with Monitor(model, card, path / "state.json", log=path / "log.jsonl", mends=False) as monitor:
        for number, data in enumerate(graphs[monitor.state.graphs:], monitor.state.graphs):
            monitor.update(data, f"day {number}")

def child(*arguments):
    process = os.fork()
    if process == 0:
        run(*arguments)
        os._exit(0)
    return os.waitpid(process, 0)[1]

assert child("whole") == 0
whole = {file.name: file.read_bytes() for file in (folder / "whole").iterdir()}
killed = 0
for fatal in (1, 2, 3, 4, 5, 6, 7, 8, 9, 60, 61, 62, 63, 64, 65, 125):
    name = f"killed-{fatal}"
    (folder / name).mkdir()
    killed += child(name, fatal) == signal.SIGKILL
    assert child(name) == 0
    again = {file.name: file.read_bytes() for file in (folder / name).iterdir()}
    assert again == whole, (fatal, sorted(again), sorted(whole))
print(killed)
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")
def test_a_killed_monitor_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    """It is killed when it opens, renames or removes a file for the n-th time; state and log are the same bytes."""
    assert int(run_python(KILLED, str(tmp_path))) >= 15


def test_prometheus_text_can_be_read(healthy: Path, tmp_path: Path) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    with made(copied(healthy, tmp_path), mends=False) as monitor:
        for seed in range(8):
            monitor.update(broken_rows(seed))
        text = prometheus_text(monitor)
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["graphmend_graphs_total", "looked at"] == HEALTHY + 8
    assert samples["graphmend_alarm", "rows"] == 1 and samples["graphmend_alarm", "mix"] == 0
    assert samples["graphmend_evidence", "rows"] >= samples["graphmend_evidence_limit",] == pytest.approx(monitor.limit)
    assert samples["graphmend_alarm_since_graph",] == HEALTHY and samples["graphmend_false_alarm_rate",] == 0.01


def test_the_page_shows_the_series_and_trusts_no_name(healthy: Path, tmp_path: Path) -> None:
    with made(copied(healthy, tmp_path), mends=False) as monitor:
        calm = page(monitor)
        for seed in range(8):
            monitor.update(broken_rows(seed), "<script>alert(1)</script>")
        text = page(monitor, "<b>mine</b>")
    words = ("alarm with graph", "Since graph", "broken or missing feature rows")
    assert "no alarm" in calm and all(word in text for word in words)
    assert text.count("<polyline") == len(KINDS) and "<script" not in text and "<b>mine" not in text
    assert "http" not in text.replace("http-equiv", ""), "nothing is loaded from elsewhere"
    assert "changed, after 0 graphs" in page(made())


def test_the_log_says_what_happens(healthy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="graphmend.monitor")
    with made(copied(healthy, tmp_path)) as monitor:
        monitor.update(ValueError("half a file"), "torn.npz")
        for seed in range(8):
            monitor.update(broken_rows(seed), f"{seed}.npz")
    texts = [(record.levelname, record.getMessage()) for record in caplog.records if "monitor" in record.name]
    assert ("WARNING", f"graph {HEALTHY} (torn.npz) is left out: half a file") in texts
    assert sum(level == "WARNING" and "since graph" in text for level, text in texts) == 1
    assert any(level == "INFO" and "0.npz" in text and "applied" in text for level, text in texts)
