"""The settings of every adapter are options of ``graphmend mend``, read from the adapters' own fields."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmend.adapters import ADAPTERS, Adapter, Case, Proposal
from graphmend.cli import settings
from graphmend.files.graph_files import load_graph
from support.commands import run
from support.processes import run_python
from support.small_files import small_graph, small_model


def mend(folder: Path, adapter: str, *more: str | Path) -> list[str | Path]:
    graph = small_graph(folder / "g.npz", tested=True)
    model = small_model(folder / "m.safetensors")
    return ["mend", "--model", model, "--graph", graph, "--adapter", adapter, "--out", folder / "out", *more]


def test_the_source_says_what_the_classes_say() -> None:
    code = (
        "import sys\nfrom graphmend.cli import settings\nprint(settings.settings())\nassert 'torch' not in sys.modules"
    )
    of_source = run_python(code)
    assert "Setting(name='lr_feature', kind='float', default=0.001, text='How far" in of_source
    of_classes = settings.settings()  # other tests may have registered further ones
    assert of_source.strip() == str({name: of_classes[name] for name in settings._from_source()})


def test_every_field_of_every_adapter_is_an_option() -> None:
    text = run("mend", "--help").output
    for name, those in settings._from_source().items():
        kind = ADAPTERS[name]
        for field in fields(kind) if is_dataclass(kind) else ():
            assert f"{settings.flag(field.name)} " in text, (name, field.name)
        assert all(setting.text for setting in those), name


@pytest.mark.parametrize(
    ("adapter", "options", "expected"),
    [
        ("align", ["--strength", "0.5", "--source", "g.npz"], {"strength": 0.5}),
        ("fine_tune", ["--train-mode", "--lr", "0.01", "--steps", "2"], {"train_mode": True, "lr": 0.01, "steps": 2}),
        (
            "jaccard",
            ["--mask", "test_mask", "--thresholds", "0.1,0.5"],
            {"thresholds": [0.1, 0.5]},
        ),
        (
            "gtrans",
            ["--block-size", "7", "--steps", "1"],
            {"block_size": 7, "surrogate": "contrastive"},
        ),
        ("gtrans", ["--validation", "test_mask", "--steps", "2"], {"validation": "test_mask", "lr_edge": 0.1}),
    ],
)
def test_settings_reach_the_adapter(
    adapter: str, options: list[str], expected: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*mend(tmp_path, adapter, *options), "--json")
    assert result.exit_code == 0, result.output
    (report,) = json.loads(result.stdout)
    assert {name: report["settings"][name] for name in expected} == expected


def test_an_array_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = run(*mend(tmp_path, "jaccard", "--mask", "nowhere"))
    assert result.exit_code == 2 and "--mask" in result.stderr and "'nowhere'" in result.stderr


def test_the_settings_of_a_new_adapter_are_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Shift(Adapter):
        """Add a number to all features.

        Args:
            amount: The number.
        """

        amount: float = 1.0

        def propose(self, case: Case) -> Proposal:
            return Proposal(case.data.x + self.amount)

    monkeypatch.setitem(ADAPTERS, "shift", Shift)
    result = run(*mend(tmp_path, "shift", "--amount", "2.5"))
    assert result.exit_code == 0, result.output
    before, after = load_graph(tmp_path / "g.npz"), load_graph(tmp_path / "out" / "g.npz")
    assert torch.equal(after.x, before.x + 2.5) and "The number. [default: 1.0]" in run("mend", "--help").output


def test_the_table_of_adapters_is_read_whole() -> None:
    """Every name of the registry is in the source that help is made from."""
    registry = ast.parse((settings.ADAPTERS / "registry.py").read_text(encoding="utf-8"))
    assert any(isinstance(node, ast.AnnAssign) for node in registry.body)
    assert set(settings._from_source()) <= set(ADAPTERS) and len(settings._from_source()) >= 11
