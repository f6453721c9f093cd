"""Paths of any type: a sentence, not a ``TypeError`` from the depths, and nothing is read without end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from graphmend import GraphMendError, Patch, SourceCard
from graphmend.cli.mend_inputs import answers_in
from graphmend.files.graph_files import load_graph, save_graph
from graphmend.files.tars import members_of, plain_of
from graphmend.lab.backbones import GCN, load_model, save_model
from graphmend.lab.bench.store import Store

GRAPH = Data(x=torch.rand(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))
TAKES: dict[str, Callable[[Any], object]] = {
    "load_graph": load_graph,
    "save_graph": lambda path: save_graph(path, GRAPH),
    "card": SourceCard.load,
    "patch": Patch.load,
    "load_model": load_model,
    "save_model": lambda path: save_model(GCN(2, 2, 2), path),
    "store": Store,
    "archive": lambda path: Store("here").unpack(path),
}


class NotText:
    def __fspath__(self) -> bytes:
        return b"x.npz"


@pytest.mark.parametrize("value", [None, 3, 1.5, True, b"x.npz", [], NotText(), object()])
@pytest.mark.parametrize("name", TAKES)
def test_a_path_of_another_type(name: str, value: Any) -> None:
    with pytest.raises(GraphMendError, match=r"a path must be a text or a pathlib\.Path \(got .*; give the name"):
        TAKES[name](value)


READS = {name: TAKES[name] for name in ("card", "patch", "load_model", "archive")} | {"labels": answers_in}


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs devices")
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom", "/dev/stdin", "/"])
@pytest.mark.parametrize("name", READS)
def test_a_device_without_end(name: str, device: str) -> None:
    with pytest.raises(GraphMendError, match=r"there is no file|is not a file"):
        READS[name](Path(device))


@pytest.mark.parametrize("read", [plain_of, members_of])
def test_names_in_messages_are_printable(read: Callable[..., object]) -> None:
    with pytest.raises(GraphMendError) as caught:
        read("\x1b[31m.tar", b"no archive at all", "pack it again")
    assert str(caught.value).isprintable()
