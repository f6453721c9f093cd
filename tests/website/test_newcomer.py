"""From the README to a report of an own graph: five lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GINConv, Linear

from support.website import ROOT

pytest.importorskip("jinja2", reason="pages need: pip install 'graphmend[report]'")


class Own(nn.Module):
    """A model that nobody here has seen before."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = GINConv(Linear(6, 12)), Linear(12, 2)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x, edge_index).tanh())  # type: ignore[no-any-return]


def own_graph(seed: int) -> Data:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(120, (2, 500), generator=generator)
    return Data(x=torch.randn(120, 6, generator=generator), edge_index=edges, y=torch.arange(120) % 2)


def five_lines() -> str:
    (code,) = re.findall(
        r"<!-- five lines -->\n```py\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S
    )
    assert len(code.strip().splitlines()) == 5
    return str(code)


@pytest.mark.parametrize("broken", [0, 12])
def test_five_lines_lead_to_a_report(
    broken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    today = own_graph(1)
    today.x[:broken] *= 1000
    names = {"model": Own().eval(), "train_graph": own_graph(0), "todays_graph": today}
    exec(compile(five_lines(), "README.md", "exec", dont_inherit=True), names)
    told = capsys.readouterr().out.strip()
    assert told.startswith("applied: 12 broken feature rows" if broken else "left alone: ")
    page = Path("today.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>") and told.split(": ", 1)[1][1:20] in page
