"""The harness by which menders are judged: it resumes, it hides labels, and it counts what it says it counts."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphmend.errors import GraphMendError
from graphmend.metrics import score

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.beyond import archive, sources
from benchmarks.beyond.baselines import hidden
from benchmarks.beyond.cells import ORACLE, cells_of, summary, with_oracle
from benchmarks.beyond.measure import measure_source
from benchmarks.beyond.methods import METHODS, VERSIONS
from benchmarks.beyond.rows import Row, read_rows, row_path
from benchmarks.beyond.sources import Source, model_of, model_path, rounded, splits_of
from benchmarks.beyond.tables import report
from benchmarks.beyond.targets import half, permuted, shuffled_edges, targets_of, training_graphs

pytestmark = pytest.mark.usefixtures("one_thread")
WINE = Source("wine", "gcn")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one model, hardly trained."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sources.SETS, "wine", replace(sources.SETS["wine"], epochs=3))
        model_of(WINE, folder)
    return folder


def test_measuring_goes_on_where_it_stopped(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measure_source(WINE, store, tmp_path, methods=["identity"]) == 3
    path = row_path(WINE, tmp_path)
    whole = path.read_text()
    assert whole.count("about") == 1
    assert measure_source(WINE, store, tmp_path, methods=["identity"]) == 0
    assert path.read_text() == whole
    path.write_text(whole[:-20])  # as if the process had been killed while it wrote its last line
    assert len(read_rows(tmp_path)) == 2
    assert measure_source(WINE, store, tmp_path, methods=["identity"]) == 1
    assert len(read_rows(tmp_path)) == 3
    monkeypatch.setitem(VERSIONS, "identity", "2")
    assert measure_source(WINE, store, tmp_path, methods=["identity"]) == 3
    assert {row["version"] for row in read_rows(tmp_path)} == {"2"}
    assert all(row["after"] == row["before"] and row["flips"] == 0 for row in read_rows(tmp_path))
    assert "| identity | 3 | +0.00 |" in report(tmp_path, ["identity"])


def test_an_error_is_noted_and_tried_again(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> None:
        raise GraphMendError("no such luck")

    identity = METHODS["identity"]
    monkeypatch.setitem(METHODS, "identity", fails)
    measure_source(WINE, store, tmp_path, methods=["identity"])
    assert "no such luck" in row_path(WINE, tmp_path).read_text() and not read_rows(tmp_path)
    monkeypatch.setitem(METHODS, "identity", identity)
    assert measure_source(WINE, store, tmp_path, methods=["identity"]) == 3


def test_methods_see_no_label_that_is_scored(store: Path) -> None:
    for target in targets_of(WINE, model_of(WINE, store), store):
        seen = hidden(target.data)
        assert "mask" not in seen
        assert bool((seen.y[target.data.mask] == -1).all()) and bool((seen.y[seen.train_mask] >= 0).all())
    for graph in training_graphs(WINE):
        assert torch.equal(graph.y >= 0, graph.train_mask | graph.val_mask)


def test_unshifted_graphs_are_the_same_graph(store: Path) -> None:
    model, data = model_of(WINE, store), splits_of(WINE).test[0]
    value = score("accuracy", model(data.x, data.edge_index), data.y, data.mask)
    for change in (permuted, shuffled_edges):
        other = change(data, 1)
        assert not torch.equal(other.edge_index, data.edge_index)
        assert score("accuracy", model(other.x, other.edge_index), other.y, other.mask) == value
    assert half(data, 1).num_nodes < data.num_nodes


def test_archives_bring_the_store_back(store: Path, tmp_path: Path) -> None:
    written = archive.pack(store, tmp_path / "packed", jobs=1)
    assert archive.unpack(written, tmp_path / "store") == 1
    assert model_path(WINE, tmp_path / "store").read_bytes() == model_path(WINE, store).read_bytes()


def test_weights_are_rounded_to_the_nearest() -> None:
    weight = torch.randn(1000)
    near = rounded(weight, bits=8)
    assert float(((near - weight) / weight).abs().max()) <= 2**-9
    assert torch.equal(rounded(near, bits=8), near)


def test_cells_average_seeds_and_the_oracle_takes_the_best() -> None:
    def row(method: str, seed: int, after: float) -> Row:
        common = {"name": "wine", "backbone": "gcn", "target": "clean", "kind": "unshifted", "seconds": 1.0}
        return {**common, "seed": seed, "method": method, "before": 50.0, "after": after, "flips_all": 0.1}

    cells = cells_of([row("a", 0, 49.0), row("a", 1, 50.0), row("b", 0, 51.0), row("b", 1, 54.0)])
    assert [(cell.method, cell.change, cell.seeds) for cell in cells] == [("a", -0.5, 2), ("b", 2.5, 2)]
    assert summary(cells[:1]).harmed == 1.0 and summary(cells[1:]).harmed == 0.0
    assert [cell.change for cell in with_oracle(cells) if cell.method == ORACLE] == [2.5]
    assert [cell.change for cell in with_oracle(cells[:1]) if cell.method == ORACLE] == [0.0]
