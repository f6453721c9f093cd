"""Edges in a sparse matrix are the edges that PyG's layers see in it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
import torch_geometric.transforms as T
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.utils import to_torch_coo_tensor

import graphmend
from graphmend import GraphMendError, GTrans
from graphmend.graph.convert import with_edge_index
from graphmend.lab.attacks import GRBCD
from graphmend.lab.data import EdgeSubsample, LabelShift, Splits
from graphmend.lab.data.corruptions import RandomEdges
from graphmend.transforms import DropEdge, Jaccard, Subgraph
from support.graphs import dense, directed, labelled, rng

N = 20
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "coo": lambda matrix: matrix,
    "uncoalesced": lambda matrix: torch.sparse_coo_tensor(
        matrix.indices().flip(1), matrix.values().flip(0), matrix.shape, check_invariants=False
    ),
    "csr": lambda matrix: matrix.to_sparse_csr(),
    "csc": lambda matrix: matrix.to_sparse_csc(),
}


def one_way(n: int = N, weighted: bool = False) -> Data:
    """A graph whose edges go one way, sorted by target, so that a transposition shows."""
    data = labelled(n)
    edges = directed(n, 3)
    data.edge_index = edges[:, (edges[1] * n + edges[0]).argsort()]
    if weighted:
        data.edge_weight = torch.rand(data.num_edges, generator=rng(1)) + 0.5
    return data


def with_matrix(data: Data, layout: str = "csr", name: str = "adj_t") -> Data:
    """The same graph with its edges in a sparse matrix."""
    out = copy.copy(data)
    coo = to_torch_coo_tensor(data.edge_index.flip(0), data.edge_weight, size=data.num_nodes)
    del out.edge_index
    if "edge_weight" in out:
        del out.edge_weight
    out[name] = LAYOUTS[layout](coo)
    return out


@pytest.mark.parametrize("name", ["adj_t", "edge_index"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("weighted", [True, False])
def test_every_layout_is_read_transposed_as_layers_read_it(weighted: bool, layout: str, name: str) -> None:
    data = one_way(weighted=weighted)
    sparse = with_matrix(data, layout, name)
    found = with_edge_index(sparse)
    assert torch.equal(found.edge_index, data.edge_index) and "adj_t" not in found
    assert ("edge_weight" in found) == weighted
    if weighted:
        assert torch.equal(found.edge_weight, data.edge_weight)
    if layout == "csr":
        conv = pyg.GraphConv(5, 3)
        expected = conv(data.x, sparse[name])
        torch.testing.assert_close(conv(found.x, found.edge_index, found.edge_weight), expected)


def test_the_graph_itself_is_left_as_it_was() -> None:
    sparse = with_matrix(one_way(), "uncoalesced")
    matrix = sparse.adj_t
    with_edge_index(sparse)
    assert sparse.adj_t is matrix and not matrix.is_coalesced() and "edge_index" not in sparse
    plain = labelled()
    assert with_edge_index(plain) is plain


def test_reading_a_matrix_does_not_count_as_a_write_into_it() -> None:
    data = with_matrix(one_way(), "coo")
    before = data.adj_t._version
    with_edge_index(data)
    assert data.adj_t._version == before


def test_other_attributes_of_edges_stay_with_their_edges() -> None:
    data = labelled()
    data.edge_attr = torch.stack([data.edge_index[0] * 100 + data.edge_index[1]] * 2, dim=1).float()
    found = with_edge_index(T.ToSparseTensor()(copy.copy(data)))
    assert torch.equal(found.edge_attr[:, 0], found.edge_index[0] * 100.0 + found.edge_index[1])
    several = with_edge_index(T.ToSparseTensor(attr="edge_attr")(copy.copy(data)))
    assert torch.equal(several.edge_attr, found.edge_attr) and torch.equal(several.edge_index, found.edge_index)


def test_weights_have_the_type_of_the_features() -> None:
    data = with_matrix(one_way(weighted=True))
    data.x = data.x.double()
    assert with_edge_index(data).edge_weight.dtype == torch.float64
    data.adj_t = (torch.rand(N, N, generator=rng()) < 0.2).long().mul(3).to_sparse()
    assert with_edge_index(data).edge_weight.unique().tolist() == [3.0]


def test_an_edge_list_beside_a_matrix_counts_and_the_matrix_goes() -> None:
    data = T.ToSparseTensor(remove_edge_index=False)(labelled())
    found = with_edge_index(data)
    assert torch.equal(found.edge_index, data.edge_index) and "adj_t" not in found and "adj_t" in data


def test_an_edge_index_of_pyg_is_a_plain_tensor_afterwards() -> None:
    data = labelled()
    data.edge_index = EdgeIndex(data.edge_index, sparse_size=(N, N))
    found = with_edge_index(data).edge_index
    assert type(found) is Tensor and torch.equal(found, labelled().edge_index)
    assert graphmend.mend(pyg.GCN(5, 8, 2, 3), data, GTrans(steps=2)).data.num_edges > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"adj_t": torch.eye(N)}, r"adj_t must be a sparse matrix .*\(got torch.strided\); .*dense_to_sparse"),
        ({"adj_t": torch.eye(N - 1).to_sparse()}, r"adj_t has shape \(19, 19\), but there are 20 nodes"),
        ({"adj_t": torch.eye(N).to_sparse().to("meta")}, "on the meta device"),
        ({"adj_t": [[0, 1]]}, r"in COO, CSR or CSC \(got list\)"),
        ({"adj_t": torch.eye(N).mul(torch.nan).to_sparse()}, "edge_weight holds non-finite values"),
        ({}, "no edge_index tensor"),
    ],
)
def test_what_holds_no_edges_is_named(change: dict[str, Any], message: str) -> None:
    data = Data(x=labelled().x, **change)
    with pytest.raises(GraphMendError, match=message):
        graphmend.mend(pyg.GCN(5, 8, 2, 3), data)


class OfMatrix(torch.nn.Module):
    """As many PyG examples write it: the second argument is called, and was in training, a sparse matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = pyg.GCNConv(5, 8), pyg.GCNConv(8, 3)

    def forward(self, x: Tensor, adj_t: Tensor) -> Tensor:
        out: Tensor = self.last(self.first(x, adj_t).relu(), adj_t)
        return out


@pytest.mark.parametrize("layout", ["csr", "coo"])
def test_mending_a_graph_with_a_matrix_equals_mending_its_edge_list(layout: str) -> None:
    data = one_way()
    sparse = with_matrix(data, layout)
    torch.manual_seed(0)
    model = OfMatrix()
    card, expected_card = graphmend.card(model, sparse, task="classes"), graphmend.card(model, data, task="classes")
    assert torch.equal(card.first_mean, expected_card.first_mean) and card.noise == expected_card.noise
    found, expected = (graphmend.mend(model, graph, GTrans(steps=3), card=card) for graph in (sparse, data))
    assert torch.equal(found.logits, expected.logits)
    assert torch.equal(found.data.edge_index, expected.data.edge_index) and "adj_t" not in found.data
    again = T.ToSparseTensor()(copy.copy(found.data))
    torch.testing.assert_close(model.eval()(again.x, again.adj_t), found.logits)
    applied = found.patch.apply(sparse)
    assert torch.equal(applied.x, found.data.x) and torch.equal(applied.edge_index, found.data.edge_index)
    assert torch.equal(found.patch.revert(applied).edge_index, data.edge_index)


def test_splits_and_transforms_take_a_matrix() -> None:
    data = labelled()
    data.test_mask = data.val_mask
    sparse = T.ToSparseTensor()(copy.copy(data))
    assert Splits.transductive(sparse).train[0].num_edges == data.num_edges
    listed = with_edge_index(sparse)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for transform in (
            Jaccard(0.5, "cosine"),
            RandomEdges(0.5),
            EdgeSubsample(),
            LabelShift(),
            GRBCD(pyg.GCN(5, 8, 2, 3), rate=0.1, epochs=2),
        ):
            changed = transform(sparse)
            assert "adj_t" not in changed and torch.equal(changed.edge_index, transform(listed).edge_index)
        for view in (DropEdge(0.5), Subgraph(3, 2)):
            assert torch.equal(view(sparse, rng()).edge_weight, view(listed, rng()).edge_weight)
    assert "adj_t" in sparse and torch.equal(dense(listed.edge_index, N), dense(data.edge_index, N))
