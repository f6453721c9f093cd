"""Copies of a graph with other edges, and small graphs to try a model on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import GraphMendError
from graphmend.graph.canonical import node_keys
from graphmend.graph.edits import (
    SAMPLE_EDGES,
    attributes_of_added,
    edge_attribute_names,
    edge_attributes,
    sample,
    set_edge_attribute,
    subgraph,
    with_edge_changes,
    with_more_edges,
    without_edges,
)
from support.graphs import directed, labelled, rng, undirected


def graph(n: int = 20) -> Data:
    data = labelled(n)
    data.edge_weight = torch.rand(data.num_edges, generator=rng(1))
    data.edge_attr = torch.arange(3.0 * data.num_edges).view(-1, 3)
    data.edge_label_index = data.edge_index[:, :4]  # pairs of nodes, not edges
    data.name = "a graph"
    return data


def test_which_attributes_belong_to_edges() -> None:
    data = graph()
    assert edge_attribute_names(data) == ["edge_attr", "edge_weight"]
    attributes = edge_attributes(data)
    assert list(attributes) == ["edge_index", "edge_attr", "edge_weight"]
    assert torch.equal(attributes["edge_index"], data.edge_index.t())
    assert list(edge_attributes(data, ["edge_weight", "gone"])) == ["edge_index", "edge_weight"]


def test_edges_are_removed_with_what_belongs_to_them() -> None:
    data = graph()
    before = data.clone()
    keep = torch.arange(data.num_edges) % 3 > 0
    out = without_edges(data, keep)
    assert torch.equal(out.edge_index, data.edge_index[:, keep])
    assert torch.equal(out.edge_weight, data.edge_weight[keep]) and torch.equal(out.edge_attr, data.edge_attr[keep])
    assert out.x is data.x and out.y is data.y and out.edge_label_index is data.edge_label_index
    assert torch.equal(data.edge_index, before.edge_index) and torch.equal(data.edge_weight, before.edge_weight)


def test_new_edges_have_weight_1() -> None:
    data = graph()
    data.edge_attr = data.edge_attr[:, :1]
    longer = torch.cat([data.edge_index, torch.tensor([[0, 1], [2, 3]])], dim=1)
    out = with_more_edges(data, longer)
    assert out.edge_index is longer
    assert torch.equal(out.edge_weight, torch.cat([data.edge_weight, torch.ones(2)]))
    assert torch.equal(out.edge_attr, torch.cat([data.edge_attr, torch.ones(2, 1)]))


def test_the_same_list_keeps_attributes_of_any_width() -> None:
    data = graph()
    other = data.edge_index.clone()
    out = with_more_edges(data, other)
    assert out.edge_index is other and out.edge_attr is data.edge_attr and data.edge_index is not other


def test_what_nobody_can_know_is_refused() -> None:
    data = graph()
    longer = torch.cat([data.edge_index, torch.tensor([[0], [2]])], dim=1)
    with pytest.raises(
        GraphMendError, match=r"there are no values for their edge_attr \(3 values each\); use space='existing'"
    ):
        with_more_edges(data, longer)
    with pytest.raises(GraphMendError, match="2 edges are missing from the edge list; give absent edges the weight 0"):
        with_more_edges(data, data.edge_index[:, 2:])


# ---------------------------------------------------------------- small graphs


def keys_of(data: Data) -> Tensor:
    return node_keys(data.x, data.edge_index)


def test_a_small_graph_is_its_own_sample_in_another_order() -> None:
    data = graph()
    assert data.num_edges <= SAMPLE_EDGES
    keys = keys_of(data)
    small, order = sample(data, keys), keys.argsort()
    assert torch.equal(small.x, data.x[order])
    ends, weights = (order[small.edge_index], small.edge_weight)
    edges = zip(*ends.tolist(), weights.tolist(), strict=True)
    assert sorted(edges) == sorted(zip(*data.edge_index.tolist(), data.edge_weight.tolist(), strict=True))


@pytest.mark.parametrize("density", [0.004, 0.05])
def test_a_sample_does_not_depend_on_the_numbering(density: float) -> None:
    edge_index = directed(300, density=density, loops=True)
    data = Data(x=torch.randn(300, 3, generator=rng(1)), edge_index=edge_index, edge_weight=edge_index.sum(0).float())
    order, edges = torch.randperm(300, generator=rng(2)), torch.randperm(edge_index.size(1), generator=rng(3))
    other = Data(x=data.x[order], edge_index=order.argsort()[edge_index[:, edges]], edge_weight=data.edge_weight[edges])
    one, two = sample(data, keys_of(data)), sample(other, keys_of(other))
    assert torch.equal(one.x, two.x) and torch.equal(one.edge_index, two.edge_index)
    assert torch.equal(one.edge_weight, two.edge_weight)


def test_the_graphs_of_a_batch_stay_side_by_side() -> None:
    data = Data(x=torch.randn(9, 2, generator=rng()), edge_index=undirected(9), batch=torch.arange(9) // 3)
    assert sample(data, keys_of(data)).batch.tolist() == data.batch.tolist()


def test_a_sample_holds_some_nodes_and_all_edges_between_them() -> None:
    edge_index = undirected(400, density=0.05)
    x = torch.arange(400.0).view(-1, 1)  # tells nodes apart
    data = Data(x=x, edge_index=edge_index, edge_weight=edge_index.sum(0).float(), y=torch.arange(400))
    assert data.num_edges > SAMPLE_EDGES
    small = sample(data, keys_of(data))
    nodes = small.y
    assert 0 < nodes.numel() < 400 and nodes.unique().numel() == nodes.numel()
    assert torch.equal(small.x[:, 0], nodes.float())
    back = nodes[small.edge_index]
    inside = torch.isin(edge_index, nodes).all(0)
    assert sorted(back.t().tolist()) == sorted(edge_index[:, inside].t().tolist())
    assert torch.equal(small.edge_weight, back.sum(0).float())
    assert small.num_edges >= SAMPLE_EDGES // 2


def test_a_sample_is_the_same_every_time_and_draws_from_nobody() -> None:
    data = Data(x=torch.zeros(400, 1), edge_index=undirected(400, density=0.05), y=torch.arange(400))
    state, keys = torch.get_rng_state(), keys_of(data)
    assert torch.equal(sample(data, keys).y, sample(data, keys).y) and torch.equal(torch.get_rng_state(), state)


def test_edges_go_and_others_come() -> None:
    data = graph()
    del data.edge_attr
    before, removed, added = data.clone(), torch.tensor([2, 0]), torch.tensor([[1, 5], [3, 1]])
    out = with_edge_changes(data, removed, attributes_of_added(data, added))
    kept = [e for e in range(data.num_edges) if e not in (0, 2)]
    assert out.edge_index.tolist() == torch.cat([data.edge_index[:, kept], added], dim=1).tolist()
    assert out.edge_weight.tolist() == [*data.edge_weight[kept].tolist(), 1.0, 1.0]
    assert out.x is data.x and out.edge_label_index is data.edge_label_index and out.edge_index.is_contiguous()
    for name, value in before.to_dict().items():
        assert data[name] == value if isinstance(value, str) else torch.equal(data[name], value)


def test_nobody_knows_the_attributes_of_edges_that_come() -> None:
    data = graph()
    none = attributes_of_added(data, data.edge_index[:, :0])
    assert {name: tuple(value.shape) for name, value in none.items()} == {
        "edge_index": (0, 2),
        "edge_weight": (0,),
        "edge_attr": (0, 3),
    }
    with pytest.raises(GraphMendError, match=r"edge_attr \(3 values each\); use space='existing'"):
        attributes_of_added(data, torch.tensor([[0], [1]]))


def test_edge_attributes_can_be_put_back() -> None:
    data = graph()
    out = Data(x=data.x)
    for name, value in edge_attributes(data).items():
        set_edge_attribute(out, name, value)
        assert torch.equal(out[name], data[name])


def test_arrays_come_along_into_a_subgraph() -> None:
    data = labelled(6)
    nodes, edges = torch.tensor([True, True, True, True, False, True]), data.edge_index.size(1)
    data.train_mask, data.edge_names = np.arange(6) % 2 == 0, np.array([f"e{i}" for i in range(edges)])
    data.other = np.arange(3)
    part = subgraph(data, nodes)
    kept = nodes[data.edge_index].all(0).numpy()
    assert part.train_mask.tolist() == [True, False, True, False, False] and part.num_nodes == 5
    assert part.edge_names.tolist() == data.edge_names[kept].tolist() and len(part.other) == 3
    assert part.edge_index.size(1) == kept.sum() and data.train_mask.size == 6
