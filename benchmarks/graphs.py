"""The graphs and models that are timed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import Data
from torch_geometric.utils import remove_self_loops, to_undirected

from graphmend.lab.backbones import GAT, GCN, GPR, SAGE
from graphmend.lab.data import load
from graphmend.lab.data.generated.csbm import Blocks, block_edges, block_features
from graphmend.lab.data.readers.arrays import undirected

SETS = {
    "cora": "cora",
    "photo": "photo-ood",
    "twitch": "twitch-e",
    "fb100": "fb100",
    "arxiv-size": "arxiv-size",
    "products-size": "products-size",
}
# nodes, stored entries, features of the real graphs, for stand-ins of the same size where the data is not there
SIZES = {
    "cora": (2708, 10556, 1433),
    "photo": (7650, 238162, 745),
    "twitch": (6549, 225332, 2545),
    "fb100": (8600, 769052, 13027),
}


@functools.lru_cache(maxsize=1)
def graph(name: str, data_dir: Path | None) -> tuple[Data, bool]:
    """An undirected graph without self-loops, sorted, and whether it is real data.

    A name such as ``csbm-1000000`` is a random graph with that many stored entries. Without ``data_dir``, a random
    graph of the real one's size stands in.
    """
    if name.startswith("csbm-"):
        entries = int(name.removeprefix("csbm-"))
        return random_graph(entries // 25, entries, 100), False
    if name in ("arxiv-size", "products-size") or (data_dir is not None and name in SETS):
        data = load(SETS[name], data_dir=data_dir).test[1 if name == "fb100" else 0]  # fb100: Brown11
        edge_index = to_undirected(remove_self_loops(data.edge_index)[0], num_nodes=data.num_nodes)
        return Data(x=data.x, edge_index=edge_index), name not in ("arxiv-size", "products-size")
    return random_graph(*SIZES[name]), False


def random_graph(nodes: int, entries: int, features: int, classes: int = 10) -> Data:
    """A contextual block model, drawn with little more memory than it takes."""
    rng = np.random.default_rng(0)
    y, means = rng.integers(classes, size=nodes), rng.standard_normal((classes, features))
    edge_index = undirected(block_edges(Blocks(y, classes), entries // 2, 0.8, (0, 1)), nodes, sort_by_row=False)
    return Data(x=torch.from_numpy(block_features(y, means, (0, 2))), edge_index=edge_index)


def _gcn(features: int, name: str) -> nn.Module:
    deep = name == "arxiv-size"
    return GCN(features, 32, 10, num_layers=5 if deep else 2, batch_norm=deep)


def _stock_gcn(features: int, name: str) -> nn.Module:
    deep = name == "arxiv-size"
    return pyg.GCN(features, 32, 5 if deep else 2, 10, norm="batch_norm" if deep else None)


MODELS: dict[str, Callable[[int, str], nn.Module]] = {
    "GCN": _gcn,
    "SAGE": lambda features, name: SAGE(features, 32, 10, num_layers=2, batch_norm=True),
    "GPR": lambda features, name: GPR(features, 32, 10),
    "GAT": lambda features, name: GAT(features, 32, 10, heads=4),
    "PyG GCN": _stock_gcn,
    "PyG GraphSAGE": lambda features, name: pyg.GraphSAGE(features, 32, 2, 10, norm="batch_norm"),
    "PyG GAT": lambda features, name: pyg.GAT(features, 128, 2, 10, heads=4, act="elu"),
    "PyG GATv2": lambda features, name: pyg.GAT(features, 128, 2, 10, heads=4, act="elu", v2=True),
    "PyG GIN": lambda features, name: pyg.GIN(features, 32, 2, 10),
}
"""Ours, and the same sizes from ``torch_geometric.nn.models``."""


def model(kind: str, data: Data, name: str) -> nn.Module:
    """A model with random weights and running statistics that are not trivial."""
    torch.manual_seed(0)
    made = MODELS[kind](data.x.size(1), name)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean = torch.rand_like(module.running_mean) - 0.5
            module.running_var = torch.rand_like(module.running_var) + 0.5
    return made.eval()
