"""Every table in docs/results follows from the runs that are stored beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphmend.lab.bench.experiments import EXPERIMENTS
from graphmend.lab.bench.store import Store

STORED = Path(__file__).parents[3] / "docs" / "results"
TABLES = sorted((STORED / "tables").glob("*.md"))


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_a_table_follows_from_its_stored_runs(table: Path, tmp_path: Path) -> None:
    experiment = EXPERIMENTS[table.stem]
    store = Store(tmp_path)
    assert store.unpack(STORED / "runs" / f"{table.stem}.tar.xz") > 0
    assert experiment.render(experiment.choice, store).markdown() == table.read_text(encoding="utf-8")


def test_every_figure_has_its_runs() -> None:
    figures = {path.stem for path in (STORED / "tables").glob("*.png")}
    assert figures and figures <= {path.name.removesuffix(".tar.xz") for path in (STORED / "runs").iterdir()}
