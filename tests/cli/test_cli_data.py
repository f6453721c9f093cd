"""``graphmend data`` as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from graphmend.cli import app
from graphmend.lab.cli.data_run import SIZES
from graphmend.lab.data.published import fb100 as fb100_module
from graphmend.lab.data.published.fb100 import TRIPLES, VALIDATION
from graphmend.lab.data.registry import DATASETS
from support.real_data import home as home_fixture
from support.real_data import nowhere as nowhere_fixture
from support.real_data import places as places_fixture

home, nowhere, places = home_fixture, nowhere_fixture, places_fixture
WIDE = {"COLUMNS": "250"}


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["data", *map(str, arguments)], env=WIDE)


def test_every_command_has_the_common_options() -> None:
    for command in ("list", "check", "fetch"):
        result = run(command, "--help")
        assert result.exit_code == 0
        for option in ("--json", "--seed", "--device", "--quiet", "--data-dir"):
            assert option in result.output, (command, option)


def test_list_says_what_is_missing(nowhere: Path) -> None:
    result = run("list", "--data-dir", nowhere, "--json")
    assert result.exit_code == 0, result.output
    entries = {entry["name"]: entry for entry in json.loads(result.stdout)}
    assert set(entries) == set(DATASETS)
    cora = entries["cora"]
    assert not cora["available"] and cora["missing"][0] == ["planetoid_cora.npz"] and cora["nodes"] == [2708, 2708]
    assert cora["status"] == "missing planetoid_cora.npz or ind.cora.x and 7 more"
    assert entries["wine"]["available"] and entries["csbm"]["status"] == "generated"
    assert entries["twitch-e"]["nodes"] == [1912, 9498] and entries["twitch-e"]["metric"] == "roc_auc"
    table = run("list", "--data-dir", nowhere).output
    assert "1,912-9,498" in table and "missing planetoid_cora.npz" in table and "photo-ood" in table


def test_list_with_the_data(home: Path) -> None:
    entries = {entry["name"]: entry for entry in json.loads(run("list", "--json").stdout)}
    assert entries["cora"]["available"] and entries["cora"]["status"] == "available"


def write_schools(folder: Path, schools: tuple[str, ...]) -> None:
    edges, info = np.array([[0], [1]]), np.ones((2, 7), dtype=np.int32)
    arrays = {f"{school}_{key}": value for school in schools for key, value in (("edges", edges), ("local_info", info))}
    np.savez(folder / "facebook100.npz", **arrays)


def listed_fb100(folder: Path) -> dict[str, Any]:
    result = run("list", "--data-dir", folder, "--json")
    assert result.exit_code == 0, result.output
    return next(entry for entry in json.loads(result.stdout) if entry["name"] == "fb100")


def test_list_names_stand_ins(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_schools(nowhere, (*TRIPLES[0], *VALIDATION, "Brown11", "Rutgers89", "Oklahoma97"))
    monkeypatch.setattr(fb100_module, "read_named", None)  # no array is read
    entry = listed_fb100(nowhere)
    assert entry["available"] and entry["missing"] == [] and entry["loaded"] == "fb100-standin"
    assert entry["stand_ins"] == {"Penn94": "Rutgers89", "Texas80": "Oklahoma97"}
    assert entry["status"] == "available as fb100-standin, with Rutgers89 for Penn94 and Oklahoma97 for Texas80"
    narrow = CliRunner().invoke(app, ["data", "list", "--data-dir", str(nowhere)], env={"COLUMNS": "80"}).output
    table, lines = narrow.split("\n\n", 1)
    assert max(map(len, table.splitlines())) <= 80 and "…" not in table
    row = next(i for i, line in enumerate(table.splitlines()) if line.startswith("fb100"))
    here = [line.split()[-1] for line in table.splitlines()[row : row + 3]]
    assert here == ["fb100-standin", "(Rutgers89,", "Oklahoma97)"]
    assert f"fb100: shift: schools; {entry['status']}\n" in lines


def test_list_with_one_stand_in_in_the_other_layout(nowhere: Path) -> None:
    write_schools(nowhere, (*TRIPLES[0], *VALIDATION, "Brown11", "Penn94", "Rutgers89"))
    entry = listed_fb100(nowhere)
    assert not entry["available"] and entry["loaded"] is None and entry["stand_ins"] == {}
    assert entry["missing"] == [["facebook100/Texas80.mat"]]
    (nowhere / "facebook100").mkdir()
    (nowhere / "facebook100/Oklahoma97.mat").touch()
    assert listed_fb100(nowhere)["status"] == "available as fb100-standin, with Oklahoma97 for Texas80"
    (nowhere / "facebook100/Texas80.mat").touch()
    entry = listed_fb100(nowhere)
    assert entry["status"] == "available" and entry["loaded"] == "fb100" and entry["stand_ins"] == {}


def test_list_survives_a_damaged_file(nowhere: Path) -> None:
    (nowhere / "facebook100.npz").write_bytes(b"no zip")
    entry = listed_fb100(nowhere)
    assert not entry["available"] and "facebook100.npz is not a readable .npz" in entry["status"]
    (nowhere / "facebook100.npz").unlink()
    entry = listed_fb100(nowhere)
    assert entry["status"] == "missing facebook100.npz or facebook100/JohnsHopkins55.mat and 7 more"


def test_check_compares_and_writes_a_page(home: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    result = run("check", "cora", "wine", "--json", "--markdown", page)
    assert result.exit_code == 0, result.output
    reports = json.loads(result.stdout)
    assert [report["name"] for report in reports] == ["cora", "wine"] and not reports[0]["differences"]
    row = {"measured": 5278, "published": 5278, "difference": 0}
    assert reports[0]["graphs"]["cora"]["edges"] == row and reports[0]["compared"] == 7
    text = page.read_text()
    assert (
        "| `cora` | accuracy | cora | 2,708 | 5,278 | 1,433 | 7 | train 140, val 500, test 1,000 | all 7 equal |"
        in text
    )
    assert str(home) not in text
    page.write_text("# Intro\n\n" + text + "\nafter\n")
    assert run("check", "wine", "--quiet", "--markdown", page).stdout == ""
    text = page.read_text()
    assert text.startswith("# Intro\n") and text.endswith("\nafter\n") and "`wine`" in text and "`cora`" not in text
    table = run("check", "wine", "-q").stdout + run("check", "wine").stdout
    assert "178" in table and "all 3 equal" in table


def test_check_keeps_words_whole_in_80_columns(nowhere: Path) -> None:
    write_cora(nowhere)
    command = ["data", "check", "wine", "cora", "--data-dir", str(nowhere)]
    table, lines = CliRunner().invoke(app, command, env={"COLUMNS": "80"}).stdout.split("\n\n")
    assert max(map(len, table.splitlines())) <= 80 and "\u2026" not in table
    assert {"graph", *SIZES, "published", "wine", "cora", "(-2,704)", "(-5,277)", "equal"} <= set(table.split())
    assert lines.splitlines()[0] == "wine: train 36, val 71, test 71"


def write_cora(folder: Path, **more: Any) -> None:
    arrays = {
        "x_data": np.ones(4, dtype=np.float32),
        "x_indices": np.arange(4),
        "x_indptr": np.arange(5),
        "x_shape": np.array([4, 6]),
        "y": np.arange(4),
        "edge_index": np.array([[0, 1], [1, 0]]),
        **{f"{part}_mask": np.arange(4) == i for i, part in enumerate(("train", "val", "test"))},
        **more,
    }
    np.savez(folder / "planetoid_cora.npz", **arrays)


def test_check_shows_differences_and_fails(nowhere: Path) -> None:
    write_cora(nowhere)
    result = run("check", "cora", "--data-dir", nowhere)
    assert result.exit_code == 1 and "4 (-2,704)" in result.stdout and "differs in nodes, edges" in result.stdout
    report = json.loads(run("check", "cora", "--data-dir", nowhere, "--json").stdout)[0]
    assert "cora: nodes is 4, published 2,708" in report["differences"]


def test_fetch(nowhere: Path) -> None:
    result = run("fetch", "cora", "--data-dir", nowhere)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1 and result.stdout == ""
    assert "error: cannot download https://" in result.stderr and "put the file at ind.cora.x below" in result.stderr
    write_cora(nowhere)
    report = json.loads(run("fetch", "cora", "--data-dir", nowhere, "--json").stdout)
    assert report == {"name": "cora", "loaded": "cora", "files": [str(nowhere / "planetoid_cora.npz")]}
    assert run("fetch", "cora", "--data-dir", nowhere).stdout.startswith("cora: ready, from ")
    assert run("fetch", "wine", "--quiet").stdout == ""


@pytest.mark.parametrize("command", ["check", "fetch"])
def test_problems_are_one_sentence(nowhere: Path, command: str) -> None:
    result = run(command, "core", "--data-dir", nowhere)
    assert result.exit_code == 2 and "error: unknown data set 'core'; choose one of arxiv" in result.stderr
    result = run(command, "wine", "--device", "tpu")
    assert result.exit_code == 2 and "unknown device 'tpu'" in result.stderr
    write_cora(nowhere, edge_index=np.array([[0, 9], [9, 0]]))
    result = run(command, "cora", "--data-dir", nowhere)
    assert result.exit_code == 2 and "names node 9, but the nodes are 0 to 3" in result.stderr
