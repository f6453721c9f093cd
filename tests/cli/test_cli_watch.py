"""``graphmend watch``: a folder as a stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file
from typer.testing import CliRunner

from graphmend.cli import app
from graphmend.files.graph_files import load_graph, save_graph
from support.streams import broken_rows, graph, model_and_card

FACTORY = """
from torch_geometric.nn import GCN
def build():
    return GCN(8, 8, 2, 3)
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model with its card, and a folder with 33 healthy graphs."""
    model, card = model_and_card()
    (tmp_path / "streamed_models.py").write_text(FACTORY)
    save_file(model.state_dict(), tmp_path / "gcn.safetensors")
    card.save(tmp_path / "gcn.card.safetensors")
    (tmp_path / "incoming").mkdir()
    for seed in range(33):
        save_graph(tmp_path / "incoming" / f"day{seed:03}.npz", graph(seed))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def watch(*arguments: str) -> Any:
    given = ["--factory", "streamed_models:build", "--weights", "gcn.safetensors", "--out", "watched", "--once"]
    return CliRunner().invoke(app, ["watch", "incoming", *given, *arguments], env={"COLUMNS": "250"})


def entries(result: Any, exit_code: int = 0) -> list[dict[str, Any]]:
    assert result.exit_code == exit_code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_folder_is_watched(work: Path) -> None:
    pytest.importorskip("prometheus_client")
    (work / "incoming" / "day010.npz").write_bytes(b"half a file")
    first = entries(watch("--json", "--metrics"))
    assert [entry["name"] for entry in first] == [f"day{seed:03}.npz" for seed in range(33)]
    assert first[10]["decision"] == "failed" and "day010.npz" in first[10]["sentence"]
    assert {entry["decision"] for entry in first[:10] + first[11:]} == {"looked at"} and first[-1]["p_values"]
    assert entries(watch("--json")) == [], "nothing is new"

    save_graph(work / "incoming" / "day010.npz", graph(10))
    for seed in range(33, 43):
        save_graph(work / "incoming" / f"day{seed:03}.npz", broken_rows(seed))
    second = entries(watch("--json", "--mend"), 3)
    assert [entry["name"] for entry in second] == ["day010.npz", *(f"day{seed:03}.npz" for seed in range(33, 43))]
    (alarm,) = [entry["alarm"] for entry in second if entry["alarm"]]
    assert alarm["kind"] == "rows" and alarm["since_name"] == "day033.npz"
    mended = load_graph(work / "watched" / "day033.npz")
    assert mended.x.abs().max() < 50 and (work / "watched" / "day033.patch.safetensors").is_file()

    log = [json.loads(line) for line in (work / "watched" / "log.jsonl").read_text().splitlines()]
    assert log == first + second
    assert "alarm with graph" in (work / "watched" / "page.html").read_text()
    assert "graphmend_graphs_total" in (work / "watched" / "metrics.prom").read_text()

    told = watch()
    assert told.exit_code == 3 and told.stdout.startswith("alarm: since graph") and "day033.npz" in told.stdout
    assert watch("--restart").exit_code == 0


def test_references_are_compared_with(work: Path) -> None:
    given = [part for seed in range(31) for part in ("--reference", f"incoming/day{seed:03}.npz")]
    for seed in range(31):
        save_graph(work / f"day{seed:03}.npz", graph(seed))
        (work / "incoming" / f"day{seed:03}.npz").unlink()
    given = [part.replace("incoming/", "") for part in given]
    told = entries(watch("--json", *given))
    assert [entry["decision"] for entry in told] == ["learned"] * 31 + ["looked at"] * 2
    assert told[31]["p_values"] and entries(watch("--json", *given)) == []


def test_problems_get_a_sentence(work: Path) -> None:
    def complains(expected: str, *arguments: str) -> None:
        result = watch(*arguments)
        assert result.exit_code == 2 and result.stderr.startswith("error: ") and expected in result.stderr

    complains("choose another", "--out", "incoming")
    complains("no file", "--card", "missing.safetensors")
    complains("no file", "--reference", "missing.npz")
    (work / "watched" / "state.json").write_bytes(b"{")
    complains("state.json")
    (work / "gcn.card.safetensors").unlink()
    complains("graphmend card")
    for name in (work / "incoming").iterdir():
        name.unlink()
    (work / "incoming").rmdir()
    complains("no folder")
