"""Several views of a graph go through a model as one graph of copies, if that changes nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import FrozenGNN, GTrans
from graphmend.lab.backbones import BACKBONES, build
from graphmend.surrogates import Contrastive
from graphmend.transforms import DropEdge, DropNode, Shuffle
from support.adapter_cases import assert_close_results
from support.graphs import rng
from support.sample_models import (
    HANDWRITTEN,
    HID,
    IN,
    OUT,
    SEES_ALL_NODES,
    ByWeight,
    N,
    TwoConvs,
    basic,
    edge_values,
    make_graph,
    seeded,
)

STOCK = ("GCN", "GraphSAGE", "GAT", "GATv2", "GIN")
ALIKE: dict[str, Callable[[], nn.Module]] = {
    **{name: lambda name=name: build(name, IN, HID, OUT) for name in BACKBONES if name not in SEES_ALL_NODES},
    **{
        f"{name}, deep": lambda name=name: build(name, IN, HID, OUT, num_layers=3)
        for name in BACKBONES
        if name not in SEES_ALL_NODES
    },
    **{f"PyG {name}": lambda name=name: basic(name, num_layers=2) for name in STOCK},
    **{f"PyG {name}, norm": lambda name=name: basic(name, num_layers=3, norm="BatchNorm", jk="cat") for name in STOCK},
    **HANDWRITTEN,
    "layer norm of each node": lambda: basic("GCN", num_layers=2, norm=nn.LayerNorm(HID)),
}


class Mixing(nn.Module):
    """Something that looks at all nodes at once stands before the first layer."""

    def __init__(self, mix: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.inner, self.mix = TwoConvs(pyg.GCNConv), mix

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.inner(self.mix(x), edge_index)


MIXING: dict[str, Callable[[], nn.Module]] = {
    **{
        f"PyG {name}": lambda name=name: basic("GCN", num_layers=2, norm=name)
        for name in ("GraphNorm", "PairNorm", "InstanceNorm", "LayerNorm")
    },
    "batch norm without statistics": lambda: basic(
        "GCN", num_layers=2, norm=nn.BatchNorm1d(HID, track_running_stats=False)
    ),
    "PyG MeanSubtractionNorm": lambda: basic("GCN", num_layers=2, norm=pyg.MeanSubtractionNorm()),
    "centred features": lambda: Mixing(lambda x: x - x.mean(0)),
    "scaled by the largest": lambda: Mixing(lambda x: x / x.abs().max()),
    "global mean": lambda: Mixing(lambda x: torch.tanh(x) + x.exp().mean(0)),
    "attention over all": lambda: Mixing(lambda x: (x @ x.t()).softmax(-1) @ x),
    "first node": lambda: Mixing(lambda x: x + x[:1]),
    "number of nodes": lambda: Mixing(lambda x: x * len(x)),
    "positions": lambda: Mixing(lambda x: x + torch.arange(len(x), dtype=x.dtype)[:, None]),
}


def views(data: Data) -> list[Data]:
    """The graph with presences, one with fewer edges, one shuffled, one with blank nodes."""
    whole = copy.copy(data)
    whole.edge_weight = 0.2 + 0.8 * torch.rand(data.edge_index.size(1), generator=rng(1), dtype=data.x.dtype)
    generator = rng(2)
    return [whole, *(view(whole, generator) for view in (DropEdge(0.5), Shuffle(), DropNode(0.4)))]


def assert_views_are_embedded_as_alone(model: nn.Module, data: Data, stacked: bool) -> None:
    graphs = views(data)
    with FrozenGNN(model, data) as frozen, torch.no_grad():
        together = frozen.embed_views(graphs)
        assert frozen.stacked_views is stacked
        for z, graph in zip(together, graphs, strict=True):
            alone = frozen.embed(graph.x, graph.edge_index, graph.edge_weight)
            torch.testing.assert_close(z, alone, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ALIKE)
def test_copies_side_by_side_equal_views_alone(name: str) -> None:
    assert_views_are_embedded_as_alone(seeded(ALIKE[name], torch.float64).eval(), make_graph(torch.float64), True)


@pytest.mark.parametrize("name", MIXING)
def test_a_model_that_mixes_nodes_gets_its_views_one_by_one(name: str) -> None:
    assert_views_are_embedded_as_alone(seeded(MIXING[name], torch.float64).eval(), make_graph(torch.float64), False)


@pytest.mark.parametrize("name", ["PyG GraphNorm", "centred features", "first node"])
def test_the_whole_adaptation_agrees_where_nodes_are_mixed(name: str) -> None:
    """A view that blanks nodes changes what all nodes have in common, which a shuffled one does not."""
    model, data = seeded(MIXING[name], torch.float64), make_graph(torch.float64)
    adapter = GTrans(Contrastive(DropNode(0.5)), steps=6, lr_feature=0.05)
    fast, plain = (adapter(model, data, mode=mode) for mode in ("auto", "eager"))
    assert_close_results(fast, plain, 1e-9)
    assert not fast.engine.stacked_views


def test_the_graphs_own_weights_reach_every_copy() -> None:
    model = seeded(ByWeight, torch.float64)
    data = make_graph(torch.float64, edge_weight=edge_values(dtype=torch.float64))
    assert_views_are_embedded_as_alone(model, data, True)


def test_views_of_a_model_with_further_arguments_are_run_one_by_one() -> None:
    class WithPositions(TwoConvs):
        def forward(self, x: Tensor, edge_index: Tensor, pos: Tensor) -> Any:
            return super().forward(x + pos, edge_index)

    model = seeded(lambda: WithPositions(pyg.GCNConv), torch.float64)
    data = make_graph(torch.float64, pos=torch.rand(N, IN, generator=rng(), dtype=torch.float64))
    assert_views_are_embedded_as_alone(model, data, False)


def test_views_with_other_edges_are_run_one_by_one() -> None:
    model, data = seeded(lambda: TwoConvs(pyg.GCNConv), torch.float64), make_graph(torch.float64)
    whole, fewer = views(data)[:2]
    fewer = Data(x=fewer.x, edge_index=data.edge_index[:, ::2], edge_weight=fewer.edge_weight[::2])
    with FrozenGNN(model, data) as frozen, torch.no_grad():
        together = frozen.embed_views([whole, fewer])
        assert not frozen.stacked_views
        torch.testing.assert_close(together[1], frozen.embed(fewer.x, fewer.edge_index, fewer.edge_weight))


def test_the_plain_way_runs_views_one_by_one() -> None:
    model, data = seeded(lambda: TwoConvs(pyg.GCNConv)), make_graph()
    graphs = views(data)
    with FrozenGNN(model, data, mode="eager") as frozen, torch.no_grad():
        frozen.embed_views(graphs)
        assert not frozen.stacked_views
