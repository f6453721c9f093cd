"""Every complaint about a graph names the value and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from graphmend import Gate, GTrans, mend
from graphmend.engine.adjacency import Adjacency
from graphmend.errors import GraphMendError
from graphmend.graph.checks import check_graph, check_no_duplicates, is_finite
from graphmend.lab.backbones import GCN
from support.graphs import labelled


def changed(**values: Any) -> Callable[[], Any]:
    """A good graph with other attributes."""

    def make() -> Data:
        data = labelled(6)
        for name, value in values.items():
            data[name] = value
        return data

    return make


def with_entry(value: float) -> torch.Tensor:
    x = torch.ones(6, 2)
    x[1, 1] = value
    return x


edges = torch.tensor([[0, 1], [1, 2]])
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "another kind of graph": (HeteroData, "must be a torch_geometric.data.Data"),
    "no features": (changed(x=None), "no feature tensor x .*; set data.x"),
    "a list": (changed(x=[[1.0]]), "no feature tensor x"),
    "sparse": (changed(x=torch.eye(6).to_sparse()), r"pass a dense tensor, x\.to_dense\(\)"),
    "compressed": (changed(x=torch.eye(6).to_mkldnn()), r"pass a dense tensor, x\.to_dense\(\)"),
    "without values": (changed(x=torch.ones(6, 2, device="meta")), "x is on the meta device, .* load its values first"),
    "complex": (changed(x=torch.ones(6, 2) * 1j), r"complex numbers \(torch.complex64\); take x\.real or x\.abs\(\)"),
    "conjugate": (changed(x=(torch.ones(6, 2) * 1j).conj()), "complex numbers"),
    "negated": (changed(x=(torch.ones(6, 2) * 1j).conj().imag), r"convert it with x\.resolve_neg\(\)"),
    "eight bits": (
        changed(x=torch.ones(6, 2).to(torch.float8_e4m3fn)),
        r"torch.float8_e4m3fn, a type that is only for storage; convert it with x\.float\(\)",
    ),
    "one dimension": (changed(x=torch.ones(6)), r"two dimensions, nodes x features \(got shape \(6,\)\)"),
    "integers": (changed(x=torch.ones(6, 2).long()), r"floating-point \(got torch.int64\); convert it"),
    "no rows": (changed(x=torch.ones(0, 2), num_nodes=0), "the graph is empty"),
    "no columns": (changed(x=torch.ones(6, 0)), "the nodes have no features"),
    "NaN": (changed(x=with_entry(torch.nan)), r"1 non-finite values, first x\[1, 1\] = nan; replace or impute"),
    "infinity": (changed(x=with_entry(-torch.inf)), r"first x\[1, 1\] = -inf"),
    "no edge list": (changed(edge_index=None), "no edge_index tensor"),
    "flat edges": (changed(edge_index=torch.arange(6)), r"shape \(2, edges\) \(got \(6,\)\)"),
    "short edges": (changed(edge_index=edges.int()), r"torch.int64 \(got torch.int32\); convert it"),
    "edges without values": (changed(edge_index=edges.to("meta")), "edge_index is on the meta device"),
    "edges as floats": (changed(edge_index=edges.float()), r"torch.int64 \(got torch.float32\)"),
    "no edges": (changed(edge_index=edges[:, :0]), "the graph has no edges"),
    "a node too high": (changed(edge_index=edges + 5), "names node 7, but the nodes are 0 to 5"),
    "a node too low": (changed(edge_index=edges - 1), "names node -1"),
    "too few weights": (changed(edge_weight=torch.ones(1)), r"edge_weight has shape \(1,\)"),
    "whole weights": (
        changed(edge_index=edges, edge_weight=torch.tensor([1, 2])),
        "edge_weight must be floating-point",
    ),
    "weights of NaN": (changed(edge_index=edges, edge_weight=torch.tensor([1.0, torch.nan])), "non-finite values"),
    "complex weights": (changed(edge_index=edges, edge_weight=torch.ones(2) * 1j), "edge_weight holds complex numbers"),
    "weights of eight bits": (
        changed(edge_index=edges, edge_weight=torch.ones(2).to(torch.float8_e5m2)),
        "edge_weight is torch.float8_e5m2",
    ),
    "sparse weights": (changed(edge_index=edges, edge_weight=torch.ones(2).to_sparse()), "edge_weight is stored as"),
    "a list of weights": (changed(edge_index=edges, edge_weight=[1.0, 2.0]), "edge_weight must be a tensor"),
    "too few labels": (changed(y=torch.arange(5)), r"y has shape \(5,\) but the graph 6 nodes"),
    "complex labels": (changed(y=torch.ones(6) * 1j), r"y holds complex numbers \(torch.complex64\); give classes"),
    "sparse labels": (changed(y=torch.ones(6).to_sparse()), r"pass a dense tensor, y\.to_dense\(\)"),
    "one graph number": (changed(batch=torch.tensor(0)), "batch has 0 rows but there are 6 nodes; give one per node"),
    "too few places": (changed(pos=torch.ones(5, 2)), "pos has 5 rows but there are 6 nodes"),
    "an array of kinds": (changed(edge_type=np.zeros(1)), "edge_type has 1 rows but there are .* edges; give one per"),
    "a wrong number of nodes": (changed(num_nodes=7), "x has 6 rows but num_nodes is 7"),
    "a tensor of numbers of nodes": (changed(num_nodes=torch.arange(6)), "num_nodes is tensor"),
    "sparse edge attributes": (
        changed(edge_index=edges, edge_attr=torch.ones(2, 3).to_sparse()),
        r"pass a dense tensor, edge_attr\.to_dense\(\)",
    ),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD)
def test_bad_graphs(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(GraphMendError, match=message):
        check_graph(make())


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")  # torch is about to drop it, its files remain
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_features_in_unusual_containers_are_refused() -> None:
    quantised = torch.quantize_per_tensor(torch.ones(6, 2), 0.1, 0, torch.quint8)
    with pytest.raises(GraphMendError, match=r"quantised \(torch.quint8\); convert it with x\.dequantize\(\)"):
        check_graph(changed(x=quantised)())
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor([torch.ones(2)] * 6, layout=layout)
        with pytest.raises(GraphMendError, match="x is a nested tensor"):
            check_graph(changed(x=nested)())


def test_good_graphs() -> None:
    check_graph(labelled(6))
    check_graph(changed(y=None, edge_index=edges, edge_weight=torch.ones(2).double(), num_nodes=6)())
    check_graph(changed(x=torch.ones(6, 2, dtype=torch.bfloat16))())


STORED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda x: x.t().contiguous().t(),
    "every other column": lambda x: torch.stack([x, x + 1], dim=2).view(x.size(0), -1)[:, ::2],
    "every other row": lambda x: x.repeat_interleave(2, dim=0)[::2],
    "expanded": lambda x: x[:, :1].expand_as(x),
    "with a gradient": lambda x: x.clone().requires_grad_(),
    "a result with a gradient": lambda x: x.clone().requires_grad_() * 1,
    "a parameter": lambda x: torch.nn.Parameter(x.clone()),
}


@pytest.mark.parametrize("stored", STORED.values(), ids=STORED)
@pytest.mark.parametrize("adapter", [Gate(), GTrans(steps=3)], ids=lambda adapter: type(adapter).__name__)
def test_how_features_are_stored_does_not_matter(stored: Callable[[torch.Tensor], torch.Tensor], adapter: Any) -> None:
    data = labelled(12)
    data.x = stored(data.x)
    model, before = GCN(5, 8, 3), data.x.detach().clone()
    plain = labelled(12)
    plain.x = before.clone()
    found, expected = mend(model, data, adapter), mend(model, plain, adapter)
    torch.testing.assert_close(found.logits, expected.logits)
    torch.testing.assert_close(found.data.x, expected.data.x)
    assert torch.equal(data.x.detach(), before) and not found.data.x.requires_grad
    assert torch.equal(found.patch.apply(data).x, found.data.x)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_features_and_edges_lie_on_one_device() -> None:
    data = labelled(6)
    data.x = data.x.cuda()
    with pytest.raises(GraphMendError, match=r"x is on cuda:0 but edge_index on cpu; move the graph"):
        check_graph(data)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_finite_or_not(dtype: torch.dtype) -> None:
    assert is_finite(torch.ones(3, 2, dtype=dtype))
    for bad in (torch.nan, torch.inf, -torch.inf):
        assert not is_finite(with_entry(bad).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_values_may_be_missing_where_that_is_allowed(dtype: torch.dtype) -> None:
    def graph(x: torch.Tensor) -> Data:
        return Data(x=x.to(dtype), edge_index=edges)

    missing = with_entry(torch.nan)
    assert check_graph(graph(missing), missing_allowed=True)
    assert not check_graph(graph(torch.ones(6, 2)), missing_allowed=True)
    missing[2, 0] = torch.inf
    with pytest.raises(GraphMendError, match=r"x holds 1 infinite values, first x\[2, 0\] = inf; replace"):
        check_graph(graph(missing), missing_allowed=True)
    with pytest.raises(GraphMendError, match="x holds nothing but missing values"):
        check_graph(graph(torch.full((6, 2), torch.nan)), missing_allowed=True)


def test_repeated_edges_are_named() -> None:
    check_no_duplicates(Adjacency(torch.tensor([[1, 0, 2], [3, 1, 4]]), 5))
    with pytest.raises(GraphMendError, match=r"2 edges more than once, first 1 -> 3; merge them with data\.coalesce"):
        check_no_duplicates(Adjacency(torch.tensor([[1, 0, 1, 2, 2], [3, 1, 3, 4, 4]]), 5))


def test_attributes_of_other_edges_are_refused() -> None:
    """PyG takes the number of edges from whichever attribute of edges comes first."""
    first, last = Data(x=torch.ones(6, 2)), Data(x=torch.ones(6, 2), edge_index=edges)
    for data in (first, last):
        data.edge_attr = torch.ones(3, 2)
    first.edge_index = edges
    for data in (first, last):
        with pytest.raises(GraphMendError, match="edge_attr has 3 rows but there are 2 edges; give one per edge"):
            check_graph(data)
