"""Weights of somebody's own model, from safetensors and from torch.save; nothing in a file is run."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch_geometric.nn import GraphSAGE

from graphmend import GraphMendError
from graphmend.files.weights import read_weights


def model() -> GraphSAGE:
    torch.manual_seed(0)
    return GraphSAGE(3, 4, 2, 2)


GOOD: dict[str, Callable[[], Any]] = {
    "alone": lambda: model().state_dict(),
    "plain dict": lambda: dict(model().state_dict()),
    "state_dict": lambda: {"epoch": 3, "state_dict": model().state_dict(), "lr": 0.1},
    "model_state_dict": lambda: {
        "model_state_dict": model().state_dict(),
        "optimizer_state_dict": torch.optim.Adam(model().parameters()).state_dict(),
    },
}


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ckpt", ".bin", ".PT"])
@pytest.mark.parametrize("kind", GOOD)
def test_a_state_dict_is_found(kind: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"w{suffix}"
    torch.save(GOOD[kind](), path)
    read = read_weights(str(path))
    assert list(read) == list(model().state_dict())
    assert all(torch.equal(value, read[name]) for name, value in model().state_dict().items())
    fresh = GraphSAGE(3, 4, 2, 2)
    fresh.load_state_dict(read)


def test_safetensors_by_any_other_name(tmp_path: Path) -> None:
    for name in ("w.safetensors", "w"):
        save_file(model().state_dict(), tmp_path / name)
        assert set(read_weights(tmp_path / name)) == set(model().state_dict())


class Harmful:
    """What a file may hold that does harm when it is unpickled."""

    def __init__(self, target: str) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.target,)


def test_no_code_is_run(tmp_path: Path) -> None:
    for content in (Harmful(str(tmp_path / "harm")), {"state_dict": Harmful(str(tmp_path / "harm"))}):
        torch.save(content, tmp_path / "w.pt")
        with pytest.raises(GraphMendError, match=r"w\.pt is a pickled model, or holds more than tensors .*mkdir"):
            read_weights(tmp_path / "w.pt")
    assert not (tmp_path / "harm").exists()


def script(path: Path) -> None:
    torch.jit.script(torch.nn.Linear(2, 2)).save(str(path))


def cut_off(path: Path) -> None:
    torch.save(model().state_dict(), path)
    path.write_bytes(path.read_bytes()[:-200])


def flipped(path: Path) -> None:
    torch.save(model().state_dict(), path)
    content = bytearray(path.read_bytes())
    weights = next(iter(model().state_dict().values())).numpy().tobytes()
    content[content.index(weights) + 1] ^= 255
    path.write_bytes(bytes(content))


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pickled model": (lambda path: torch.save(model(), path), "is a pickled model.*GraphSAGE"),
    "a script": (script, "is a TorchScript model"),
    "a tensor": (lambda path: torch.save(torch.ones(2), path), "holds a Tensor, not a state_dict"),
    "a list": (lambda path: torch.save([torch.ones(2)], path), "holds a list, not a state_dict"),
    "something else": (lambda path: torch.save({"weights": 3}, path), r"holds no state_dict .*\(but weights\)"),
    "nothing": (lambda path: torch.save(OrderedDict(), path), "holds no state_dict"),
    "numbers for names": (lambda path: torch.save({1: torch.ones(2)}, path), "holds no state_dict"),
    "no archive": (lambda path: path.write_bytes(b"\x80\x02."), "is damaged, or was not written by torch.save"),
    "the old format": (
        lambda path: torch.save(model().state_dict(), path, _use_new_zipfile_serialization=False),
        "of version 1.6 or later",
    ),
    "cut off": (cut_off, "is damaged"),
    "a changed byte": (flipped, "is damaged"),
    "no file": (lambda path: None, "there is no file"),
}


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_state_dict_gets_a_sentence(kind: str, tmp_path: Path) -> None:
    write, said = BAD[kind]
    write(tmp_path / "w.pt")
    with pytest.raises(GraphMendError, match=said) as caught:
        read_weights(tmp_path / "w.pt")
    assert "w.pt" in str(caught.value) and ";" in str(caught.value)
