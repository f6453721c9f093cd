from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from graphmend.errors import GraphMendError
from graphmend.lab.attacks import GRBCD, PRBCD
from graphmend.lab.backbones import GCN
from graphmend.lab.data import attacked
from support.graphs import rng, undirected


def graph() -> Data:
    val_mask = torch.arange(20) % 2 == 0
    return Data(x=torch.rand(20, 5, generator=rng()), edge_index=undirected(20), val_mask=val_mask)


def test_attacked_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHMEND_CACHE", str(tmp_path))
    data, model = graph(), GCN(5, 8, 3)
    calls: list[int] = []
    run = PRBCD.__call__

    def counted(self: PRBCD, data: Data) -> Data:
        calls.append(1)
        return run(self, data)

    monkeypatch.setattr(PRBCD, "__call__", counted)
    options: dict[str, Any] = {"rate": 0.2, "epochs": 3, "nodes": data.val_mask}
    first = attacked(data, model, PRBCD, **options)
    again = attacked(data, copy.deepcopy(model), PRBCD, progress=False, **options)
    assert len(calls) == 1
    assert torch.equal(first.edge_index, again.edge_index)
    assert torch.equal(first.edge_index, run(PRBCD(model, **options), data).edge_index)
    assert first.is_undirected()
    other = copy.copy(data)
    other.x = data.x + 1
    attacked(other, model, PRBCD, **options)
    attacked(data, GCN(5, 8, 3), PRBCD, **options)
    attacked(data, model, PRBCD, **{**options, "seed": 1})
    attacked(data, model, PRBCD, **{**options, "nodes": ~data.val_mask})
    assert len(calls) == 5
    attacked(data, model, GRBCD, rate=0.2, epochs=2)
    with pytest.raises(GraphMendError, match="dataclass"):
        attacked(data, model, lambda model: lambda data: data)
