"""Heterogeneous graphs of papers and authors in classes, and trained models of all kinds for them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
import torch_geometric.transforms as T
from torch import Tensor, nn
from torch_geometric.data import HeteroData

import graphmend
from graphmend.hetero import HeteroCard

CLASSES, PAPER, AUTHOR = 3, 8, 6
METADATA = (
    ["paper", "author"],
    [("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "rev_writes", "author")],
)


def papers(seed: int = 0, number: int = 160, authors: int = 70) -> HeteroData:
    """Papers that cite each other and authors who write them, mostly within a class; papers have labels."""
    rng = torch.Generator().manual_seed(seed)
    centres = torch.Generator().manual_seed(99)
    y, field = (torch.randint(CLASSES, (n,), generator=rng) for n in (number, authors))
    data = HeteroData()
    for kind, label, width in (("paper", y, PAPER), ("author", field, AUTHOR)):
        centre = torch.randn(CLASSES, width, generator=centres)
        data[kind].x = centre[label] + torch.randn(len(label), width, generator=rng)
    data["paper"].y = y
    data["paper"].train_mask = torch.rand(number, generator=rng) < 0.5
    data["author", "writes", "paper"].edge_index = _edges(field, y, rng)
    cites = _edges(y, y, rng)
    data["paper", "cites", "paper"].edge_index = cites[:, cites[0] != cites[1]]
    return T.ToUndirected()(data)


def _edges(source: Tensor, target: Tensor, rng: torch.Generator) -> Tensor:
    ends = torch.stack([torch.randint(len(y), (10 * len(target),), generator=rng) for y in (source, target)])
    share = torch.where(source[ends[0]] == target[ends[1]], 0.9, 0.1)
    return torch.unique(ends[:, torch.rand(ends.size(1), generator=rng) < share], dim=1)


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv((-1, -1), 16), pyg.SAGEConv((-1, -1), CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Mixed(nn.Module):
    """A ``HeteroConv`` with another layer for each edge type, called with weights of edges if there are some."""

    def __init__(self) -> None:
        super().__init__()
        layers = [{k: pyg.GraphConv((-1, -1), 16) if k[0] == k[2] else pyg.SAGEConv((-1, -1), 16) for k in METADATA[1]}]
        layers += [{k: pyg.SAGEConv((-1, -1), 16) for k in METADATA[1]}]
        self.convs = nn.ModuleList(map(pyg.HeteroConv, layers))
        self.lin = nn.Linear(16, CLASSES)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        for conv in self.convs:
            x_dict = {kind: x.relu() for kind, x in conv(x_dict, edge_index_dict).items()}
        return self.lin(x_dict["paper"])


class Transformer(nn.Module):
    """HGT as in PyG's examples, with the whole graph as its argument."""

    def __init__(self) -> None:
        super().__init__()
        self.lins = nn.ModuleDict({kind: pyg.Linear(-1, 16) for kind in METADATA[0]})
        self.convs = nn.ModuleList([pyg.HGTConv(16, 16, METADATA, 2) for _ in range(2)])
        self.lin = nn.Linear(16, CLASSES)

    def forward(self, data: HeteroData) -> Tensor:
        x_dict = {kind: self.lins[kind](x).relu() for kind, x in data.x_dict.items()}
        for conv in self.convs:
            x_dict = conv(x_dict, data.edge_index_dict)
        return self.lin(x_dict["paper"])


MODELS: dict[str, Callable[[], nn.Module]] = {
    "to_hetero": lambda: pyg.to_hetero(Plain(), METADATA),
    "HeteroConv": Mixed,
    "HGTConv": Transformer,
}


def scores(model: nn.Module, data: HeteroData) -> Tensor:
    """The model's scores of papers, however it is called."""
    out = model(data) if isinstance(model, Transformer) else model(data.x_dict, data.edge_index_dict)
    return out["paper"] if isinstance(out, dict) else out


@functools.cache
def _trained(name: str) -> tuple[nn.Module, HeteroCard]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, data = MODELS[name](), papers()
        with torch.no_grad():
            scores(model, data)
        optimizer = torch.optim.Adam(model.parameters(), 0.01, weight_decay=5e-4)
        for _ in range(60):
            optimizer.zero_grad()
            mask = data["paper"].train_mask
            F.cross_entropy(scores(model, data)[mask], data["paper"].y[mask]).backward()
            optimizer.step()
        optimizer.zero_grad()
        card: Any = graphmend.card(model, data)
        return model, card


def trained(name: str) -> tuple[nn.Module, HeteroCard]:
    """A trained model and its card."""
    model, card = _trained(name)
    return copy.deepcopy(model), card


def broken(data: HeteroData, kind: str, number: int = 12, factor: float = 50.0) -> HeteroData:
    """A copy in which the first rows of a type are far too large."""
    out = copy.copy(data)
    x = data[kind].x.clone()
    x[:number] *= factor
    out[kind].x = x
    return out


def with_gaps(data: HeteroData, share: float = 0.2, seed: int = 0) -> HeteroData:
    """A copy in which values of every type are missing."""
    out, rng = copy.copy(data), torch.Generator().manual_seed(seed)
    for kind in data.node_types:
        x = data[kind].x.clone()
        x[torch.rand(x.shape, generator=rng) < share] = torch.nan
        out[kind].x = x
    return out


def contents(data: HeteroData) -> dict[Any, Any]:
    """Every bit of a graph, by store and name."""
    return {
        (store._key, name): (value.dtype, tuple(value.shape), value.contiguous().numpy().tobytes())
        if isinstance(value, Tensor)
        else value
        for store in data.stores
        for name, value in store.items()
    }


def lazy_mixed() -> nn.Module:
    """The model as the command line builds it: its sizes are known once it has run."""
    model = Mixed()
    with torch.no_grad():
        scores(model, papers())
    return model
