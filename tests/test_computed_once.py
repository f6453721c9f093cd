"""Facts that cost a pass over the graph or the weights are computed once in a call."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from graphmend import card, mend
from graphmend.cli import app
from graphmend.files import digest
from graphmend.files.graph_files import load_graph, save_graph
from graphmend.lab.backbones import load_model
from graphmend.results import fingerprint
from support.small_files import small_graph, small_model

COUNTED: dict[CodeType, str] = {
    fingerprint.fingerprint_of.__code__: "fingerprints",
    digest._digest.__code__: "digests",
}


def counted(call: Callable[[], Any]) -> Counter[str]:
    """How often the graph was fingerprinted and the weights were digested in a call."""
    counts: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in COUNTED:
            counts[COUNTED[frame.f_code]] += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return counts


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("adapter", ["gate", "gtrans", "align"])
def test_one_command(adapter: str, dtype: torch.dtype, tmp_path: Path) -> None:
    graph = small_graph(tmp_path / "g.npz", tested=True)
    data = load_graph(graph)
    data.x = data.x.to(dtype)
    save_graph(graph, data)
    model = small_model(tmp_path / "m.safetensors")
    command = ["mend", "--model", model, "--graph", graph, "--out", tmp_path / "out", "--adapter", adapter]
    command += [] if adapter == "gtrans" else ["--source", graph]
    arguments = list(map(str, command))

    def once() -> None:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output

    counts = counted(once)
    assert counts["fingerprints"] <= 2 and counts["digests"] == 1, counts
    again = counted(once)  # finished work is recognised by the fingerprint of the file
    assert again["fingerprints"] == 1 and again["digests"] == 1


@pytest.mark.parametrize("source", [False, True])
def test_one_call(source: bool, tmp_path: Path) -> None:
    data = load_graph(small_graph(tmp_path / "g.npz"))
    model = load_model(small_model(tmp_path / "m.safetensors"))
    data.x = 3 * data.x + 1
    options: Any = {"source": data} if source else {"card": card(model, data)}
    counts = counted(lambda: mend(model, data, **options))
    assert counts == {"fingerprints": 1, "digests": 1}
