"""Batches know where the edges of their graphs are, or say that nobody does; see also the patches of batches."""

from __future__ import annotations

import copy

import pytest
import torch
from torch_geometric.data import Batch, Data

from graphmend.graph.edge_lists import edge_bounds, is_per_graph, regroup
from graphmend.graph.edits import edge_attribute_names, without_edges
from support.graphs import undirected


def batch() -> Batch:
    parts = []
    for seed, n in enumerate((5, 1, 7)):
        edge_index = undirected(n, seed, density=0.3) if n > 1 else torch.empty(2, 0, dtype=torch.long)
        names = [str(i) for i in range(edge_index.size(1))]
        parts.append(
            Data(x=torch.rand(n, 2), edge_index=edge_index, edge_attr=torch.rand(len(names)), edge_names=names)
        )
    return Batch.from_data_list(parts)


def test_bounds_are_where_each_graph_begins() -> None:
    data = batch()
    bounds = edge_bounds(data)
    assert bounds is not None and bounds.tolist() == data._slice_dict["edge_index"].tolist()
    assert edge_bounds(data[0]) is None, "a single graph has no pieces"
    assert is_per_graph(data, "edge_names") and not is_per_graph(data, "edge_attr")


def test_fewer_edges_are_those_of_the_pieces() -> None:
    data = batch()
    keep = torch.arange(data.num_edges) % 3 > 0
    pieces = without_edges(data, keep).to_data_list()
    assert [piece.num_nodes for piece in pieces] == [5, 1, 7]
    start = 0
    for piece, whole in zip(pieces, data.to_data_list(), strict=True):
        part = keep[start : start + whole.num_edges]
        start += whole.num_edges
        assert torch.equal(piece.edge_index, whole.edge_index[:, part])
        assert torch.equal(piece.edge_attr, whole.edge_attr[part])
        assert piece.edge_names == [name for name, stays in zip(whole.edge_names, part, strict=True) if stays]


@pytest.mark.parametrize("change", ["between graphs", "out of order"])
def test_a_batch_that_cannot_be_taken_apart_says_so_until_it_can(change: str) -> None:
    data = batch()
    original, other = data.edge_index, copy.copy(data)
    if change == "between graphs":
        other.edge_index = original.clone()
        other.edge_index[1, 0] = 12
    else:
        other.edge_index = original.flip(1)
    regroup(other, ["edge_index", "edge_attr"])
    with pytest.raises(RuntimeError, match="Cannot reconstruct"):
        other.to_data_list()
    assert len(data.to_data_list()) == 3, "the batch it was copied from is as it was"
    other.edge_index = original
    regroup(other, ["edge_index", "edge_attr"])
    assert torch.equal(other[2].edge_index, data[2].edge_index)


def test_what_belongs_to_graphs_is_no_edge_attribute_even_if_there_are_as_many() -> None:
    parts = [
        Data(x=torch.rand(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]][:k]).view(2, -1)[:, :k]) for k in (2, 1, 0)
    ]
    for part in parts:
        part.label, part.edge_age = torch.tensor([7]), torch.arange(part.num_edges)
    data = Batch.from_data_list(parts)
    assert data.num_edges == data.label.numel() == 3 and data.ptr.numel() == 4
    assert edge_attribute_names(data) == ["edge_age"]
    four = Batch.from_data_list([*parts, parts[1]])
    del four.label
    assert four.num_edges == 4 and edge_attribute_names(four) == ["edge_age"]
    three = Batch.from_data_list([parts[0], parts[1]])
    assert three.num_edges == three.ptr.numel() == 3 and edge_attribute_names(three) == ["edge_age"]
