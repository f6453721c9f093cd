"""``graphmend mend --report`` and ``graphmend explain``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import graphmend
from graphmend.files.graph_files import load_graph, save_graph
from support.commands import run
from support.streams import broken_rows, graph, missing_values, model_and_card

pytestmark = pytest.mark.usefixtures("one_thread")

FACTORY = """
from torch_geometric.nn import GCN
def build():
    return GCN(8, 8, 2, 3)
"""
MODEL = ["--factory", "paged_models:build", "--weights", "gcn.safetensors"]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model with its card, a healthy graph, and two that are not; one of them in double precision with labels."""
    model, card = model_and_card()
    (tmp_path / "paged_models.py").write_text(FACTORY)
    save_file(model.state_dict(), tmp_path / "gcn.safetensors")
    card.save(tmp_path / "gcn.card.safetensors")
    save_graph(tmp_path / "healthy.npz", graph(0))
    save_graph(tmp_path / "gaps.npz", missing_values(1))
    noisy = broken_rows(2)
    noisy.x = noisy.x.double()
    noisy.test_mask = torch.arange(60) < 40
    save_graph(tmp_path / "noisy.npz", noisy)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def mend(*names: str, more: tuple[str, ...] = ("--report",)) -> Any:
    graphs = [part for name in names for part in ("--graph", name)]
    return run("mend", *MODEL, *graphs, "--out", "mended", "-q", *more)


def test_each_graph_has_a_page_and_all_have_an_index(work: Path) -> None:
    pytest.importorskip("jinja2")
    result = mend("healthy.npz", "noisy.npz")
    assert result.exit_code == 0, result.output
    pages = {name: (work / "mended" / f"{name}.html").read_text() for name in ("healthy", "noisy", "index")}
    assert "left alone" in pages["healthy"] and "Did it help?" not in pages["healthy"]
    assert "of 40 with a known label" in pages["noisy"] and "broken feature rows" in pages["noisy"]
    assert 'href="noisy.html"' in pages["index"] and 'href="healthy.html"' in pages["index"]
    stored = json.loads((work / "mended" / "noisy.json").read_text())
    assert set(stored["files"]) == {
        f"noisy{end}" for end in (".npz", ".predictions.npz", ".patch.safetensors", ".html")
    }

    before = (work / "mended" / "noisy.html").stat().st_mtime_ns
    assert mend("healthy.npz", "noisy.npz").exit_code == 0
    assert (work / "mended" / "noisy.html").stat().st_mtime_ns == before, "done before"
    (work / "mended" / "noisy.html").unlink()
    assert mend("noisy.npz").exit_code == 0
    assert (work / "mended" / "noisy.html").is_file(), "a page that is gone is written again"


def test_one_graph_has_no_index(work: Path) -> None:
    pytest.importorskip("jinja2")
    assert mend("gaps.npz").exit_code == 0
    assert (work / "mended" / "gaps.html").is_file() and not (work / "mended" / "index.html").exists()


def test_what_cannot_be_written_is_told_before_any_work(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_graph(work / "index.npz", graph(3))
    for expected, result in (
        ("would be written twice", mend("healthy.npz", "index.npz")),
        ("--verdict-only writes nothing; drop one", mend("healthy.npz", more=("--report", "--verdict-only"))),
    ):
        assert result.exit_code == 2 and expected in result.stderr and result.stderr.count("\n") == 1
    from graphmend.results.report import page

    page._environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = mend("healthy.npz")
    assert result.exit_code == 2 and "pip install 'graphmend[report]'" in result.stderr
    assert not (work / "mended").exists()
    page._environment.cache_clear()


@pytest.mark.parametrize("name", ["noisy", "gaps"])
def test_a_change_is_explained_from_its_patch(name: str, work: Path) -> None:
    """The same as from the result, also where values were missing or the graph has another type than the model."""
    model, card = model_and_card()
    data = load_graph(work / f"{name}.npz")
    data.x = data.x.float()
    result = graphmend.mend(model, data, card=card)
    node = int(result.patch.rows[0])
    expected = result.explain(node)
    assert mend(f"{name}.npz", more=()).exit_code == 0
    asked = ["explain", str(node), *MODEL, "--graph", f"{name}.npz", "--patch", f"mended/{name}.patch.safetensors"]
    told = run(*asked, "--json")
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert (found["node"], found["before"], found["after"]) == (node, expected.before, expected.after)
    assert found["margin"] == pytest.approx(expected.margin, abs=1e-4)
    effects = {(part["kind"], *part["nodes"]): part["effect"] for part in found["parts"]}
    assert effects == pytest.approx({(part.kind, *part.nodes): part.effect for part in expected.parts}, abs=1e-4)
    text = run(*asked)
    assert text.exit_code == 0 and f"Node {node}" in text.stdout and "own row" in text.stdout


def test_an_explanation_is_drawn(work: Path) -> None:
    pytest.importorskip("matplotlib")
    assert mend("noisy.npz", more=()).exit_code == 0
    asked = ["explain", "0", *MODEL, "--graph", "noisy.npz", "--patch", "mended/noisy.patch.safetensors"]
    assert run(*asked, "--plot", "why.svg").exit_code == 0 and (work / "why.svg").read_text().startswith("<?xml")


def test_problems_of_an_explanation_get_a_sentence(work: Path) -> None:
    assert mend("noisy.npz", more=()).exit_code == 0
    patch = "mended/noisy.patch.safetensors"
    for expected, node, name, file in (
        ("0 to 59 (got 60)", "60", "noisy.npz", patch),
        ("patch", "0", "healthy.npz", patch),
        ("there is no file", "0", "noisy.npz", "missing.safetensors"),
    ):
        result = run("explain", node, *MODEL, "--graph", name, "--patch", file)
        assert result.exit_code == 2 and expected in result.stderr and result.stderr.count("\n") == 1, result.output
