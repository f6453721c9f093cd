"""The commands take heterogeneous graphs: card, mend, apply, revert and info."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from graphmend import load_graph, save_graph
from support.commands import run
from support.hetero_cases import broken, contents, papers, trained

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("ending", ["npz", "pt"])
def test_from_a_card_to_the_mended_graph_and_back(ending: str, tmp_path: Path) -> None:
    model, _ = trained("HeteroConv")
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    own = ["--factory", "support.hetero_cases:lazy_mixed", "--weights", tmp_path / "w.safetensors"]
    train, today = tmp_path / f"train.{ending}", tmp_path / f"today.{ending}"
    save_graph(train, papers())  # type: ignore[arg-type]
    save_graph(today, broken(papers(5), "author"))  # type: ignore[arg-type]
    done = run("card", *own, "--graph", train, "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["predicts"] == "paper", done.output
    done = run("mend", *own, "--graph", today, "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    (report,) = json.loads(done.stdout)
    assert report["verdict"]["menders"] == ["impute"] and report["feature_rows_changed_by_type"]["author"] == 12
    assert run("mend", *own, "--graph", today, "--verdict-only").exit_code == 0
    patch, mended = tmp_path / "out" / "today.patch.safetensors", tmp_path / "out" / "today.npz"
    assert run("revert", patch, mended, "--out", tmp_path / "old.npz").exit_code == 0
    assert run("apply", patch, today, "--out", tmp_path / "new.npz").exit_code == 0
    before: Any = load_graph(today)
    assert contents(load_graph(tmp_path / "old.npz")) == contents(before)  # type: ignore[arg-type]
    assert contents(load_graph(tmp_path / "new.npz")) == contents(load_graph(mended))  # type: ignore[arg-type]
    for path in (today, patch, tmp_path / "w.card.safetensors"):
        shown = run("info", path)
        assert shown.exit_code == 0 and "heterogeneous" in shown.stdout and "author" in shown.stdout, shown.output


def test_what_it_does_not_serve_is_said_in_one_sentence(tmp_path: Path) -> None:
    model, _ = trained("HeteroConv")
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    own = ["--factory", "support.hetero_cases:lazy_mixed", "--weights", tmp_path / "w.safetensors"]
    save_graph(tmp_path / "g.npz", papers())  # type: ignore[arg-type]
    done = run("mend", *own, "--graph", tmp_path / "g.npz", "--verdict-only", "--questions", "5")
    assert done.exit_code == 2 and "--questions does not serve a heterogeneous graph" in done.stderr
    done = run("mend", *own, "--graph", tmp_path / "g.npz", "--adapter", "tent", "--out", tmp_path / "o")
    assert done.exit_code == 2 and "does not serve a HeteroData" in done.stderr
    assert torch.is_grad_enabled()
