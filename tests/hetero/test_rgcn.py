"""RGCN on a plain graph with ``edge_type``: the ordinary way, on which types of edges follow the edges."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

import graphmend
from graphmend import GTrans
from graphmend.adapters import Purify
from graphmend.cards import SourceCard
from support.hetero_cases import CLASSES, PAPER, papers

pytestmark = pytest.mark.usefixtures("one_thread")


class RGCN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.RGCNConv(PAPER, 16, 2), pyg.RGCNConv(16, CLASSES, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index, edge_type).relu(), edge_index, edge_type)


def relations(seed: int, added: int = 0) -> Data:
    """Citations of two types, every third edge of the second, and added edges between nodes at random."""
    data = papers(seed)
    edges = data["paper", "cites", "paper"].edge_index
    more = torch.randint(160, (2, added), generator=torch.Generator().manual_seed(1))
    edge_index = torch.cat([edges, more, more.flip(0)], dim=1)
    kinds = (edge_index.sum(0) % 3 == 0).long()
    return Data(x=data["paper"].x, edge_index=edge_index, edge_type=kinds, y=data["paper"].y)


@functools.cache
def trained() -> tuple[RGCN, SourceCard]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, data = RGCN(), relations(0)
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for _ in range(60):
            optimizer.zero_grad()
            F.cross_entropy(model(data.x, data.edge_index, data.edge_type), data.y).backward()
            optimizer.step()
        return model, graphmend.card(model, data)


def test_a_clean_graph_is_left_alone_and_broken_rows_are_repaired() -> None:
    model, card = trained()
    data = relations(5)
    assert graphmend.mend(model, data, card=card).patch.is_empty
    data.x[:12] *= 50
    result = graphmend.mend(model, data, card=card)
    assert result.patch.rows.tolist() == list(range(12))
    assert result.compare(data.y).helped > result.compare(data.y).harmed  # type: ignore[operator]


def test_types_follow_the_edges_that_are_cut() -> None:
    model, card = trained()
    data = relations(5, added=300)
    result = graphmend.mend(model, data, Purify(), card=card)
    assert result.patch.num_removed > 0
    assert torch.equal(result.data.edge_type, (result.data.edge_index.sum(0) % 3 == 0).long())
    back = result.patch.revert(result.data)
    assert torch.equal(back.edge_type, data.edge_type) and torch.equal(back.edge_index, data.edge_index)


def test_gtrans_learns_features() -> None:
    model, _ = trained()
    assert graphmend.mend(model, relations(5), GTrans(steps=4, edge_steps=0)).patch.num_rows == 160
