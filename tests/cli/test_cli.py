"""The command line, as a person uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch_geometric.nn import GraphSAGE
from typer.testing import CliRunner

import graphmend
from graphmend import Patch
from graphmend.cli import app
from graphmend.files.graph_files import load_graph, save_graph
from graphmend.lab.data import abnormal_features, embedded

run = CliRunner().invoke


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained checkpoint and two harmed graphs, one in each format."""
    folder = tmp_path_factory.mktemp("work")
    result = run(app, ["train", "--dataset", "wine", "--epochs", "40", "--out", str(folder / "gcn.safetensors"), "-q"])
    assert result.exit_code == 0, result.output
    harmed = abnormal_features(embedded("wine"), seed=0).tests[0]
    save_graph(folder / "one.npz", harmed)
    torch.save(harmed, folder / "two.pt")
    return folder


def mend(work: Path, out: Path, *more: str) -> list[str]:
    """By GTrans; the gate is in test_cli_gate.py."""
    return [
        "mend",
        "--adapter",
        "gtrans",
        "--model",
        str(work / "gcn.safetensors"),
        "--graph",
        str(work / "one.npz"),
        "--out",
        str(out),
        *more,
    ]


def test_every_command_has_the_common_options_and_teaches() -> None:
    for command in ("demo", "mend", "card", "train", "info", "apply", "revert"):
        result = run(app, [command, "--help"], env={"COLUMNS": "80"})
        assert result.exit_code == 0 and "Example:" in result.output and f"\n  graphmend {command}" in result.output
        assert max(map(len, result.output.splitlines())) <= 80 and "\u2026" not in result.output
        common = (
            ("--json", "--quiet") if command in ("apply", "revert") else ("--json", "--seed", "--device", "--quiet")
        )
        for option in common:
            assert option in result.output, (command, option)


def test_train_reports_scores_as_json(tmp_path: Path) -> None:
    out = tmp_path / "sub" / "model.safetensors"
    command = ["train", "--dataset", "wine", "--backbone", "appnp", "--epochs", "30", "--out", str(out), "--json"]
    report = json.loads(run(app, command).stdout)
    assert out.exists() and report["test"]["accuracy"] > 0.8
    assert report["card"] == str(tmp_path / "sub" / "model.card.safetensors") and Path(report["card"]).exists()
    assert report["provenance"]["torch"] == torch.__version__


def test_train_on_a_graph_of_ones_own(work: Path, tmp_path: Path) -> None:
    result = run(
        app, ["train", "--graph", str(work / "one.npz"), "--epochs", "5", "--out", str(tmp_path / "m.safetensors")]
    )
    assert result.exit_code == 0, result.output
    described = json.loads(run(app, ["info", str(tmp_path / "m.safetensors"), "--json"]).stdout)
    assert described["kind"] == "GraphMend model" and described["backbone"] == "gcn"


def test_mend_writes_a_graph_a_patch_that_reverts_it_and_a_report(work: Path, tmp_path: Path) -> None:
    more = ["--graph", str(work / "two.pt"), "--label-mask", "train_mask", "--lr-feature", "0.1", "--json"]
    result = run(app, mend(work, tmp_path, *more))
    assert result.exit_code == 0, result.output
    reports = json.loads(result.stdout)
    assert [r["graph"] for r in reports] == ["one.npz", "two.pt"]
    original = load_graph(work / "one.npz")
    for name in ("one", "two"):
        mended = load_graph(tmp_path / f"{name}.npz")
        patch = Patch.load(tmp_path / f"{name}.patch.safetensors")
        assert torch.equal(patch.revert(mended).x, original.x)
        assert torch.equal(patch.revert(mended).edge_index, original.edge_index)
        stored = json.loads((tmp_path / f"{name}.json").read_text())
        assert len(stored["history"]) == 10 and stored["reason"] is None
        assert set(stored["test"]) == {"before", "after"}
        with np.load(tmp_path / f"{name}.predictions.npz") as predicted:
            assert np.array_equal(predicted["logits"].argmax(1), predicted["prediction"])
    assert not list(tmp_path.glob(".*")), "no temporary files are left"


def test_finished_work_is_skipped_and_changed_settings_are_not(work: Path, tmp_path: Path) -> None:
    run(app, mend(work, tmp_path, "-q"))
    first = (tmp_path / "one.npz").stat().st_mtime_ns
    run(app, mend(work, tmp_path, "-q"))
    assert (tmp_path / "one.npz").stat().st_mtime_ns == first
    run(app, mend(work, tmp_path, "-q", "--steps", "3"))
    assert (tmp_path / "one.npz").stat().st_mtime_ns != first
    (tmp_path / "one.patch.safetensors").unlink()  # a part is missing: done again
    run(app, mend(work, tmp_path, "-q", "--steps", "3"))
    assert (tmp_path / "one.patch.safetensors").exists()


def test_feature_steps_are_relative_unless_asked_for_otherwise(work: Path, tmp_path: Path) -> None:
    x = load_graph(work / "one.npz").x
    moved = {}
    for name, more in (("default", []), *((kind, ["--feature-scale", kind]) for kind in ("relative", "absolute"))):
        command = mend(work, tmp_path / name, "--steps", "1", "--edge-steps", "0", "--lr-feature", "0.25", *more, "-q")
        assert run(app, command).exit_code == 0
        moved[name] = (load_graph(tmp_path / name / "one.npz").x - x).abs().amax(0)
        settings = json.loads((tmp_path / name / "one.json").read_text())["settings"]
        assert settings["feature_scale"] == (name if more else "relative")
    assert torch.equal(moved["default"], moved["relative"])
    torch.testing.assert_close(moved["relative"], 0.25 * x.std(0, correction=0), rtol=0.01, atol=0)
    torch.testing.assert_close(moved["absolute"], torch.full_like(x[0], 0.25), rtol=0.01, atol=0)
    said = run(app, mend(work, tmp_path / "none", "--feature-scale", "small"))
    assert said.exit_code != 0 and "unknown feature_scale 'small'; choose one of absolute, relative" in said.output


def test_same_seed_same_result_other_seed_another(work: Path, tmp_path: Path) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert run(app, mend(work, tmp_path / name, "--seed", seed, "-q")).exit_code == 0
    a, b, c = (load_graph(tmp_path / name / "one.npz") for name in "abc")
    assert torch.equal(a.x, b.x) and torch.equal(a.edge_index, b.edge_index)
    assert not torch.equal(a.x, c.x)


def test_limits_from_the_command_line_and_from_the_file(work: Path, tmp_path: Path) -> None:
    data = load_graph(work / "one.npz")
    data.frozen_nodes = torch.arange(data.num_nodes) < 50
    save_graph(tmp_path / "limited.npz", data)
    command = mend(work, tmp_path / "out", "--minimum", "-1", "--maximum", "2", "-q")
    command[command.index("--graph") + 1] = str(tmp_path / "limited.npz")
    assert run(app, command).exit_code == 0
    mended = load_graph(tmp_path / "out" / "limited.npz")
    assert torch.equal(mended.x[:50], data.x[:50])
    assert mended.x[50:].min() >= -1 and mended.x[50:].max() <= 2


WEIGHTS: dict[str, Callable[[nn.Module, str], None]] = {
    "w.safetensors": lambda model, path: save_file(model.state_dict(), path),
    "w.pt": lambda model, path: torch.save(model.state_dict(), path),
    "w.ckpt": lambda model, path: torch.save({"epoch": 1, "state_dict": model.state_dict()}, path),
    "w.pth": lambda model, path: torch.save({"model_state_dict": model.state_dict()}, path),
}


@pytest.mark.parametrize("weights", WEIGHTS)
def test_ones_own_model_through_a_factory(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: str
) -> None:
    (tmp_path / "their_models.py").write_text(
        "from torch_geometric.nn import GraphSAGE\ndef sage():\n    return GraphSAGE(13, 8, 2, 3)\n"
    )
    model = GraphSAGE(13, 8, 2, 3)
    WEIGHTS[weights](model, str(tmp_path / weights))
    monkeypatch.chdir(tmp_path)
    own = ["--factory", "their_models:sage", "--weights", weights]
    result = run(app, ["mend", *own, "--graph", str(work / "one.npz"), "--out", "out", "--adapter", "identity"])
    assert result.exit_code == 0, result.output
    data = load_graph(work / "one.npz")
    with torch.no_grad(), np.load("out/one.predictions.npz") as stored:
        expected = model.eval()(data.x.float(), data.edge_index)
        assert np.allclose(stored["logits"], expected.numpy(), atol=1e-5)
    assert run(app, ["card", *own, "--graph", str(work / "one.npz")]).exit_code == 0
    assert (tmp_path / "w.card.safetensors").exists()


def test_a_pickled_model_in_the_place_of_weights_is_refused(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save(GraphSAGE(13, 8, 2, 3), tmp_path / "w.pt")
    monkeypatch.chdir(tmp_path)
    command = ["mend", "--factory", "their_models:sage", "--weights", "w.pt", "--graph", str(work / "one.npz")]
    (tmp_path / "their_models.py").write_text(
        "from torch_geometric.nn import GraphSAGE\ndef sage():\n    return GraphSAGE(13, 8, 2, 3)\n"
    )
    result = run(app, [*command, "--out", "out"])
    assert result.exit_code == 2 and "w.pt is a pickled model" in result.stderr and not (tmp_path / "out").exists()


@pytest.mark.parametrize(("output", "returned"), [("logits", "{'hidden': out * 2, 'logits': out}"), ("-1", "(0, out)")])
def test_the_part_of_the_output_that_has_the_scores(
    output: str, returned: str, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"returning_{len(output)}"
    (tmp_path / f"{name}.py").write_text(
        "from torch_geometric.nn import GraphSAGE\n"
        "class Returning(GraphSAGE):\n"
        "    def forward(self, x, edge_index):\n"
        "        out = super().forward(x, edge_index)\n"
        f"        return {returned}\n"
        "def build():\n    return Returning(13, 8, 2, 3)\n"
    )
    save_file(GraphSAGE(13, 8, 2, 3).state_dict(), tmp_path / "w.safetensors")
    monkeypatch.chdir(tmp_path)
    own = ["--factory", f"{name}:build", "--weights", "w.safetensors", "--graph", str(work / "one.npz")]
    for command in (["card", *own, "--output", output], ["mend", *own, "--out", "out"]):  # the card knows the part
        result = run(app, command)
        assert result.exit_code == 0, result.output
    result = run(app, ["mend", *own, "--no-card", "--output", output, "--out", "out"])
    assert result.exit_code == 0, result.output
    result = run(app, ["mend", *own, "--no-card", "--out", "out"])
    assert result.exit_code != 0 and "output" in result.output


def test_info_tells_graphs_models_and_patches_apart(work: Path, tmp_path: Path) -> None:
    run(app, mend(work, tmp_path, "-q"))
    kinds = {
        work / "one.npz": "graph",
        work / "two.pt": "graph",
        work / "gcn.safetensors": "GraphMend model",
        work / "gcn.card.safetensors": "source card",
        tmp_path / "one.patch.safetensors": "patch",
    }
    for path, kind in kinds.items():
        assert json.loads(run(app, ["info", str(path), "--json"]).stdout)["kind"] == kind
    assert "graphmend list" in json.loads(run(app, ["info", "--json"]).stdout)["names"]


def test_demo_writes_json_and_plots(tmp_path: Path) -> None:
    result = run(app, ["demo", "--seeds", "1", "--out", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report == json.loads((tmp_path / "demo.json").read_text())
    rows = {row["scenario"]: row for row in report["table"]}
    assert set(rows) == {"shift", "abnormal features", "structure attack"}
    for row in rows.values():
        assert row["after"] > row["before"], "GTrans"
        assert row["gate"] >= row["before"] and row["gate_worse"] == 0
        assert row["gate_clean"] == row["clean"], "clean graphs are left alone"
        assert row["asked"] > row["after"] and 0 < row["labels"] <= 25, "a few labels settle it"
    assert all(rows[name]["gate"] > rows[name]["after"] for name in ("shift", "abnormal features"))
    for outcome in report["outcomes"]:
        assert all(verdict.startswith("left alone: ") for verdict in outcome["clean_verdicts"])
        assert (
            len(outcome["verdicts"]) == len(outcome["clean_verdicts"]) == (3 if outcome["scenario"] == "shift" else 1)
        )
    for name in ("accuracy.png", "embedding.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_demo_shows_what_the_gate_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from graphmend.lab.demo.run import Demo, Outcome

    gated = {"gate": 90.0, "gate_clean": 95.0, "asked": 91.0, "labels": 6.0, "gate_seconds": 0.1}
    said = {"verdicts": ["applied: [why]"], "clean_verdicts": ["left alone: all is well"]}
    tuned = {"clean": 95.0, "before": 80.0, "after": 85.0, "chosen": {}, "seconds": 1.0}
    scores = {"validation_before": 80.0, "validation_after": 85.0}
    names = ("shift", "abnormal features", "structure attack")
    outcomes = [Outcome(scenario=name, seed=4, **gated, **said, **tuned, **scores) for name in names]
    from graphmend.lab.cli import demo_run

    monkeypatch.setattr(demo_run, "run_demo", lambda *_, **__: Demo(outcomes))
    monkeypatch.setattr(demo_run, "_plots", lambda *_: [])
    text = run(app, ["demo", "--out", str(tmp_path)], env={"COLUMNS": "80"}).output
    assert "  shift: applied: [why]\n" in text and "  clean graph: left alone: all is well\n" in text
    assert "Of 3 clean graphs it left 3 alone." in text and "90.0±0.0      91.0±0.0       6" in text


def test_python_dash_m_and_exit_codes_of_the_real_process(tmp_path: Path) -> None:
    def run_here(*arguments: str) -> subprocess.CompletedProcess[str]:
        variables = {**os.environ, "PYTHONPATH": str(Path(graphmend.__file__).resolve().parents[1])}
        command = [sys.executable, "-W", "ignore", "-m", "graphmend", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=variables)

    good = run_here("--version")
    assert good.returncode == 0 and good.stdout == f"graphmend {graphmend.__version__}\n"
    bad = run_here("info", "missing.npz")
    assert bad.returncode == 2
    assert bad.stderr.strip() == "error: there is no file missing.npz; check the path"


def test_changed_labels_and_masks_are_not_taken_for_the_same_work(work: Path, tmp_path: Path) -> None:
    data = load_graph(work / "one.npz")
    graph, out = tmp_path / "g.npz", tmp_path / "out"
    command = ["mend", "--adapter", "gtrans", "--model", str(work / "gcn.safetensors"), "--json"]
    command += ["--graph", str(graph), "--out", str(out)]
    reports = []
    for change in ("nothing", "y", "train_mask"):
        if change == "y":
            data.y = (data.y + 1) % 3
        elif change == "train_mask":
            data.train_mask = data.val_mask.clone()
        save_graph(graph, data)
        result = run(app, [*command, "--label-mask", "train_mask", "--lr-feature", "0.1", "--steps", "2"])
        reports.append(json.loads(result.stdout)[0])
    assert reports[0]["test"]["before"] != reports[1]["test"]["before"]
    assert reports[1]["loss_first"] != reports[2]["loss_first"]


def test_features_alone_are_mended_where_edges_cannot_be(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "edge_models.py").write_text(
        "from torch_geometric.nn import EdgeCNN\ndef build():\n    return EdgeCNN(13, 8, 2, 3)\n"
    )
    from torch_geometric.nn import EdgeCNN

    save_file(EdgeCNN(13, 8, 2, 3).state_dict(), tmp_path / "w.safetensors")
    monkeypatch.chdir(tmp_path)
    command = ["mend", "--factory", "edge_models:build", "--weights", "w.safetensors", "--adapter", "gtrans"]
    command += ["--steps", "2", "--json"]
    result = run(app, [*command, "--graph", str(work / "one.npz"), "--out", "out"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)[0]
    assert report["edge_entries_removed"] == 0 and report["feature_rows_changed"] > 0
    only_edges = run(app, [*command, "--feature-steps", "0", "--graph", str(work / "one.npz"), "--out", "o2"])
    assert only_edges.exit_code == 2 and "EdgeConv has no edge weights" in only_edges.stderr


def test_identity_is_an_adapter_like_any_other() -> None:
    from graphmend import Identity, mend

    data = embedded("wine").test[0]
    assert mend(GraphSAGE(13, 8, 2, 3), data, Identity(), progress=False).reason is None
