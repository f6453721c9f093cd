"""A checkpoint is compared with itself before anything is built from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from graphmend import GraphMendError
from graphmend.cli.models import load_any_model
from graphmend.files.files import write_safetensors
from graphmend.lab.backbones import APPNP, BACKBONES, GCN, GPR, build, load_model, save_model
from graphmend.lab.backbones.checkpoint import FORMAT, UNCHECKED

IN, HIDDEN, OUT = 4, 6, 3
SIZES = {"in_channels": IN, "hidden_channels": HIDDEN, "out_channels": OUT}


def changed(path: Path, model: torch.nn.Module, **changes: Any) -> Path:
    """A checkpoint with a right checksum and other options."""
    save_model(model, path)
    names = {kind: name for name, kind in BACKBONES.items()}
    config = {**model.config, **changes}
    header = {"format": FORMAT, "backbone": names[type(model)], "config": json.dumps(config)}
    write_safetensors(path, load_file(path), header)
    return path


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("num_layers", 10_000_000, "num_layers is 10000000, more than the tensors in the file allow"),
        ("num_layers", 3, "has no tensor convs.2"),
        ("num_layers", -1, "num_layers must be a whole number of at least 2"),
        ("num_layers", 2.5, "num_layers is 2.5, not of the type int"),
        ("num_layers", True, "num_layers is True, not of the type int"),
        ("hidden_channels", 10**12, "more than the tensors in the file allow"),
        ("hidden_channels", 35, "convs.0.weight has the shape (4, 6), not (4, 35)"),
        ("in_channels", 0, "in_channels must be a whole number of at least 1"),
        ("in_channels", "4", "in_channels is '4', not of the type int"),
        ("in_channels", None, "in_channels is None, not of the type int"),
        ("in_channels", [4] * 1000, "not of the type int"),
        ("batch_norm", 1, "batch_norm is 1, not of the type bool"),
        ("batch_norm", True, "has no tensor norms.0"),
        ("dropout", float("nan"), "dropout must be a number in [0, 1)"),
        ("dropout", {}, "dropout is {}, not of the type float"),
        ("\x1b[31m", 3, "does not take these options"),
    ],
)
def test_options_that_the_tensors_do_not_have(option: str, value: Any, expected: str, tmp_path: Path) -> None:
    path = changed(tmp_path / "m", GCN(**SIZES), **{option: value})
    with pytest.raises(GraphMendError) as caught:
        load_model(path)
    text = str(caught.value)
    assert "does not fit its own header" in text and expected in text and text.isprintable() and len(text) < 400


def test_hops_that_no_graph_needs(tmp_path: Path) -> None:
    for model in (APPNP(**SIZES), GPR(**SIZES)):
        with pytest.raises(GraphMendError, match="hops is 1000000000, more than"):
            load_model(changed(tmp_path / "m", model, hops=10**9))
    with pytest.raises(GraphMendError, match=r"gamma has the shape \(11,\), not \(13,\)"):
        load_model(changed(tmp_path / "m", GPR(**SIZES), hops=12))


def test_tensors_that_are_none_of_the_model(tmp_path: Path) -> None:
    path, tensors = tmp_path / "m", GCN(**SIZES).state_dict()
    header = {"format": FORMAT, "backbone": "gcn", "config": json.dumps(SIZES)}
    for change, expected in [
        ({"more": torch.ones(1)}, "has a further tensor more"),
        ({"convs.0.bias": torch.ones(HIDDEN, dtype=torch.long)}, "convs.0.bias holds torch.int64"),
        ({"convs.0.bias": torch.ones(HIDDEN).to(torch.float8_e5m2)}, "convs.0.bias holds torch.float8_e5m2"),
        ({"convs.0.bias": torch.ones(HIDDEN, 1)}, r"convs.0.bias has the shape \(6, 1\), not \(6,\)"),
    ]:
        write_safetensors(path, {**tensors, **change}, header)
        with pytest.raises(GraphMendError, match=expected):
            load_model(path)


@pytest.mark.parametrize("config", ["{", "[]", "3", "null", '"gcn"', "[" * 5000, "NaN", '{"in_channels": 4}', ""])
def test_options_that_are_none(config: str, tmp_path: Path) -> None:
    header = {"format": FORMAT, "backbone": "gcn", "config": config}
    write_safetensors(tmp_path / "m", GCN(**SIZES).state_dict(), header)
    with pytest.raises(GraphMendError, match="does not fit its own header"):
        load_model(tmp_path / "m")


def test_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    path, model = tmp_path / "m", GCN(**SIZES)
    save_model(model, path)
    raw = path.read_bytes()
    for position in range(len(raw)):
        path.write_bytes(raw[:position] + bytes([raw[position] ^ (1 << position % 8)]) + raw[position + 1 :])
        try:
            loaded = load_model(path)
        except GraphMendError as error:
            assert str(error).isprintable()
            continue
        assert raw[position : position + 1].isspace(), "only the space after the header may change"
        assert loaded.config == model.config


def test_the_format_before_is_still_read(tmp_path: Path) -> None:
    model = GCN(**SIZES)
    header = {"format": UNCHECKED, "backbone": "gcn", "config": json.dumps(model.config)}
    save_file(model.state_dict(), tmp_path / "m", header)
    loaded = load_model(tmp_path / "m").state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("name", BACKBONES)
def test_reading_a_model_draws_no_random_number(name: str, tmp_path: Path) -> None:
    save_model(build(name, IN, HIDDEN, OUT), tmp_path / "m")
    before = torch.get_rng_state()
    load_model(tmp_path / "m")
    assert torch.equal(torch.get_rng_state(), before)


class Counting(GCN):
    """A backbone of somebody's own, which computes with the values of its weights while it is built."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, **options: Any) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, **options)
        self.size = float(self.convs[0].weight.detach().abs().sum())


def test_a_backbone_that_cannot_be_built_without_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKBONES, "counting", Counting)
    model = Counting(**SIZES)
    save_model(model, tmp_path / "m")
    assert torch.equal(load_model(tmp_path / "m").convs[0].weight, model.convs[0].weight)


def test_a_network_that_does_not_fit_into_the_memory_is_named() -> None:
    with pytest.raises(GraphMendError, match="a network of this size does not fit into the memory"):
        GCN(10**9, 10**9, 10**9)


def test_arguments_of_numpy_are_saved_as_plain_numbers(tmp_path: Path) -> None:
    save_model(GCN(np.int64(5), 4, np.int32(3), dropout=np.float32(0.5)), tmp_path / "m")
    assert load_model(tmp_path / "m").config["dropout"] == 0.5


@pytest.mark.parametrize("value", ["x", None, 1j, torch.ones(2), np.ones(3), [], 0.5], ids=repr)
def test_arguments_of_another_type_are_named(value: Any) -> None:
    for name in ("hidden_channels", "num_layers", "batch_norm"):
        with pytest.raises(GraphMendError, match=f"{name} must be "):
            build("gcn", **{"in_channels": 5, "hidden_channels": 4, "out_channels": 3, name: value})


@pytest.mark.parametrize("name", ["broken", "ends"])
def test_a_factory_that_fails_or_ends_the_program_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = "import sys\ndef broken():\n    raise KeyError('x')\ndef ends():\n    sys.exit(7)\n"
    (tmp_path / "some_factory.py").write_text(body)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GraphMendError, match=f"the factory 'some_factory:{name}' failed: (KeyError|SystemExit)"):
        load_any_model(factory=f"some_factory:{name}", weights=tmp_path / "w")
