"""A graph of five nodes and a model for it, as files; and ten papers with their citations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from graphmend.files.graph_files import save_graph
from graphmend.lab.backbones import GCN, save_model

YEARS = [2010, 2011, 2013, 2014, 2016, 2017, 2018, 2019, 2020, 2005]
EDGES = [(1, 0), (2, 0), (2, 1), (3, 2), (4, 0), (4, 3), (5, 4), (6, 0), (7, 6), (8, 7), (8, 0), (0, 9), (1, 2)]


def small_graph(path: Path, *, tested: bool = False, **more: Any) -> Path:
    """Four features, two classes; with a test mask of three nodes if it shall be scored."""
    x = torch.linspace(-1, 1, 20).view(5, 4)
    edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]])
    values = {"x": x, "edge_index": edges, "y": torch.tensor([0, 1, 0, 1, 0])}
    if tested:
        values["test_mask"] = torch.tensor([True, False, True, True, False])
    save_graph(path, Data(**{**values, **more}))
    return path


def small_model(path: Path) -> Path:
    torch.manual_seed(0)
    save_model(GCN(4, 8, 2).eval(), path)
    return path
