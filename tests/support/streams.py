"""A stream of small random graphs with a model and its card, and faults of every kind; for the tests of the monitor."""

from __future__ import annotations

import functools

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import graphmend
from graphmend import SourceCard
from support.graphs import rng

CLASSES, COLUMNS = 3, 8


def graph(seed: int, nodes: int = 60, shares: tuple[float, ...] = (1.0, 1.0, 1.0)) -> Data:
    """Three classes around centres of their own, with most edges within a class."""
    generator = rng(seed)
    y = torch.multinomial(torch.tensor(shares), nodes, True, generator=generator)
    centres = 1.5 * torch.randn(CLASSES, COLUMNS, generator=rng(1))
    x = centres[y] + torch.randn(nodes, COLUMNS, generator=generator)
    alike = y[:, None] == y[None]
    likely = torch.where(alike, 3.0 / alike.sum(1), 1.0 / nodes)  # a node has as many edges in every mix
    edges = (torch.rand(nodes, nodes, generator=generator) < likely).triu(1).nonzero().t()
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1), y=y)


@functools.cache
def model_and_card() -> tuple[nn.Module, SourceCard]:
    """A GCN that was trained on a larger graph of the same kind."""
    train = graph(10**6, 300)
    train.train_mask = torch.arange(300) % 2 == 0
    torch.manual_seed(0)
    model = GCN(COLUMNS, 8, 2, CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(30):
        optimizer.zero_grad()
        logits = model(train.x, train.edge_index)
        nn.functional.cross_entropy(logits[train.train_mask], train.y[train.train_mask]).backward()
        optimizer.step()
    return model.eval(), graphmend.card(model.eval(), train)


def broken_rows(seed: int) -> Data:
    """A tenth of the rows is a hundred times as large."""
    data = graph(seed)
    data.x[torch.randperm(60, generator=rng(seed))[:6]] *= 100
    return data


def missing_values(seed: int) -> Data:
    """A tenth of the rows is missing."""
    data = graph(seed)
    data.x[torch.randperm(60, generator=rng(seed))[:6]] = torch.nan
    return data


def moved_columns(seed: int) -> Data:
    """Two columns have an offset."""
    data = graph(seed)
    data.x[:, :2] += 3
    return data


def added_edges(seed: int) -> Data:
    """Half as many edges again, at random."""
    data = graph(seed)
    new = torch.randint(60, (2, data.edge_index.size(1) // 4), generator=rng(seed))
    data.edge_index = torch.cat([data.edge_index, new, new.flip(0)], 1)
    return data


def lost_edges(seed: int) -> Data:
    """Half of the edges."""
    data = graph(seed)
    once = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    once = once[:, torch.rand(once.size(1), generator=rng(seed)) < 0.5]
    data.edge_index = torch.cat([once, once.flip(0)], 1)
    return data


def other_mix(seed: int) -> Data:
    """Two thirds of the nodes are of one class."""
    return graph(seed, shares=(4.0, 1.0, 1.0))


def unknown_nodes(seed: int) -> Data:
    """A third of the nodes is of a kind that the model has never seen."""
    data = graph(seed)
    data.x[:20] = 3 * torch.randn(1, COLUMNS, generator=rng(9)).sign() + torch.randn(20, COLUMNS, generator=rng(seed))
    return data


FAULTS = {
    broken_rows: "rows",
    missing_values: "rows",
    moved_columns: "columns",
    added_edges: "edges",
    lost_edges: "edges",
    other_mix: "mix",
    unknown_nodes: "unknown",
}
"""What is wrong, and what the monitor should call it."""
