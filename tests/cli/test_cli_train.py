"""``graphmend train`` with every trainer and backbone, and options of theirs alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch import Tensor, nn
from typer.testing import CliRunner

from graphmend.cli import app
from graphmend.errors import GraphMendError
from graphmend.files.files import write_safetensors
from graphmend.lab.backbones import BACKBONES, load_model
from graphmend.lab.backbones.layers import keeps_config
from graphmend.lab.cli.settings import SHAPE, backbone_options, own_settings, trainer_options
from graphmend.lab.training import TRAINERS

pytestmark = pytest.mark.usefixtures("one_thread")


def arguments(out: Path, *more: str) -> list[str]:
    return ["train", "--dataset", "wine", "--epochs", "3", "--hidden-channels", "8", "--out", str(out), *more]


def report(out: Path, *more: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, arguments(out, *more, "--json"))
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def complaint(out: Path, *more: str) -> str:
    result = CliRunner().invoke(app, arguments(out, *more))
    assert result.exit_code == 2 and not out.exists(), result.output
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    return result.stderr


@pytest.mark.parametrize("name", TRAINERS)
def test_every_trainer_trains(name: str, tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"
    backbone = "dual_gcn" if name == "uda_gcn" else "gcn"
    made = report(out, "--trainer", name, "--backbone", backbone, "--lr", "0.02", "--optimizer", "adamw")
    assert made["trainer"]["name"] == name and made["trainer"]["lr"] == 0.02
    assert made["trainer"]["optimizer"] == "adamw" and made["test"]["accuracy"] > 0
    assert isinstance(load_model(out), BACKBONES[backbone])


@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_is_trained(name: str, tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"
    assert report(out, "--backbone", name, "--batch-norm")["backbone"] == name
    assert isinstance(load_model(out), BACKBONES[name])


def test_the_trainer_decides_about_the_weights_and_the_default_is_plain_training(tmp_path: Path) -> None:
    weights = {}
    for name, more in {
        "default": [],
        "erm": ["--trainer", "erm"],
        "sr_gnn": ["--trainer", "sr_gnn"],
        "kmm": ["--trainer", "sr_gnn", "--set", "kmm=true"],
        "no discrepancy": ["--trainer", "sr_gnn", "--set", "weight=0"],
    }.items():
        report(tmp_path / name, *more, "--dropout", "0")
        weights[name] = load_file(tmp_path / name)["convs.0.weight"].flatten().tolist()
    assert weights["default"] == weights["erm"]
    assert weights["no discrepancy"] == pytest.approx(weights["erm"])
    assert weights["erm"] != weights["sr_gnn"] != weights["kmm"]


def test_options_reach_the_trainer_and_the_backbone(tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"
    chosen = ["entropy=0.5", "hidden_channels=5", "walks=3", "encoding_channels=6"]
    more = [word for setting in chosen for word in ("--set", setting)]
    trainer = report(out, "--trainer", "uda_gcn", "--backbone", "dual_gcn", *more)["trainer"]
    assert trainer["entropy"] == 0.5 and trainer["hidden_channels"] == 5 and trainer["reversal"] == 0.05
    config = load_model(out).config
    assert isinstance(config, dict) and config["walks"] == 3 and config["encoding_channels"] == 6
    assert config["hidden_channels"] == 8


def test_a_checkpoint_says_how_it_was_trained(tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"
    report(out, "--trainer", "eerm", "--set", "flips=2", "--seed", "7")
    facts = json.loads(CliRunner().invoke(app, ["info", str(out), "--json"]).stdout)
    trainer = facts["trainer"]
    assert trainer["name"] == "eerm" and trainer["flips"] == 2 and trainer["seed"] == 7 and trainer["epochs"] == 3
    assert trainer["candidates"] is None and trainer["released"] is False


@pytest.mark.parametrize("text", ["{", "3", "[" * 100_000, '{"name": {"a": [1]}}', '{"\\u001b[31m": "\\u001b[31m"}'])
def test_whatever_a_checkpoint_says_is_harmless(text: str, tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"
    model = BACKBONES["gcn"](4, 8, 3)
    header = {"format": "graphmend-model-2", "backbone": "gcn", "config": json.dumps(model.config), "trainer": text}
    write_safetensors(out, model.state_dict(), header)
    load_model(out)
    result = CliRunner().invoke(app, ["info", str(out)])
    assert result.exit_code == 0 and result.stdout.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--trainer", "sgd"], "unknown trainer 'sgd'; choose one of dann, eerm, erm, sr_gnn, uda_gcn"),
        (["--backbone", "mlp"], "unknown backbone 'mlp'"),
        (["--optimizer", "sgd"], "unknown optimizer 'sgd'; choose one of adam, adamw"),
        (["--trainer", "uda_gcn"], "UDAGCN trains dual_gcn"),
        (["--set", "weight"], "--set takes NAME=VALUE, such as weight=0.5 (got 'weight')"),
        (["--set", "=3"], "--set takes NAME=VALUE"),
        (
            ["--trainer", "sr_gnn", "--set", "depth=3"],
            "--set has no option 'depth'; the trainer sr_gnn has kmm, weight, the backbone gcn has none",
        ),
        (["--set", "lr=0.1"], "--set has no option 'lr'; use --lr"),
        (["--set", "batch_norm=true"], "--set has no option 'batch_norm'; use --batch-norm"),
        (["--set", "in_channels=3"], "--set has no option 'in_channels'; the trainer erm has"),
        (["--set", "drop_edge=much"], "drop_edge must be a number (got 'much')"),
        (["--set", "drop_edge=2"], "drop_edge must be a number in [0, 1) (got 2.0)"),
        (["--trainer", "sr_gnn", "--set", "kmm=1"], "kmm must be true or false (got '1')"),
        (["--trainer", "eerm", "--set", "views=2.5"], "views must be a whole number (got '2.5')"),
        (["--trainer", "eerm", "--set", "candidates=few"], "candidates must be a whole number or none (got 'few')"),
        (["--set", "drop_edge=0.1", "--set", "drop_edge=0.2"], "--set drop_edge is given twice"),
        (["--backbone", "gat", "--set", "heads=0"], "heads must be a whole number of at least 1 (got 0)"),
    ],
)
def test_what_cannot_be_is_named(more: list[str], message: str, tmp_path: Path) -> None:
    assert message in complaint(tmp_path / "m.safetensors", *more)


def test_texts_become_values_of_the_right_type() -> None:
    of_trainer, of_backbone = own_settings(
        ["candidates=None", "beta=2", "released=FALSE", "views=4", "alpha=0.5", "hops=3"], "eerm", "appnp"
    )
    assert of_trainer == {"candidates": None, "beta": 2.0, "released": False, "views": 4}
    assert of_backbone == {"alpha": 0.5, "hops": 3}
    assert type(of_trainer["beta"]) is float and of_trainer["released"] is False and type(of_backbone["hops"]) is int
    assert own_settings(["candidates=64"], "eerm", "gcn") == ({"candidates": 64}, {})


def test_an_option_of_both_says_whose_it_is() -> None:
    assert "released" in trainer_options("eerm") and "released" in backbone_options("gat")
    with pytest.raises(GraphMendError, match=r"--set released could be .*; write trainer\.released=\.\.\. or backbone"):
        own_settings(["released=true"], "eerm", "gat")
    both = ["trainer.released=false", "backbone.released=true", "backbone.heads=2"]
    assert own_settings(both, "eerm", "gat") == ({"released": False}, {"released": True, "heads": 2})
    with pytest.raises(GraphMendError, match=r"--set has no option 'trainer\.heads'"):
        own_settings(["trainer.heads=2"], "eerm", "gat")
    with pytest.raises(GraphMendError, match="given twice"):
        own_settings(["trainer.beta=2", "beta=2"], "eerm", "gat")


@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_has_the_options_of_the_command_line(name: str) -> None:
    assert set(SHAPE) <= set(BACKBONES[name](8, 8, 3).config)  # type: ignore[arg-type]


class Mine(nn.Module):
    """A model of somebody's own, whose arguments have no annotations."""

    @keeps_config
    def __init__(  # type: ignore[no-untyped-def]
        self, in_channels, hidden_channels, out_channels, num_layers=2, dropout=0.0, batch_norm=False, hops=2, act=len
    ):
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.linear(x)
        return out


def test_a_backbone_without_annotations_is_typed_by_its_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKBONES, "mine", Mine)
    assert own_settings(["hops=3"], "erm", "mine") == ({}, {"hops": 3})
    with pytest.raises(GraphMendError, match="act cannot be set from the command line; set it in Python"):
        own_settings(["act=relu"], "erm", "mine")
