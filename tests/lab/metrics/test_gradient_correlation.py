"""The correlation of gradients against finite differences, and losses for which it is known."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.data import Data

from graphmend.errors import GraphMendError, UnsupportedLayerError
from graphmend.lab.metrics import gradient_correlation
from graphmend.surrogates import ADGCL, SURROGATES, Reconstruction, Supervised
from support.graphs import directed
from support.surrogate_cases import IN, OUT, N, graph, model, some
from support.untouched import assert_same, state_of

pytestmark = pytest.mark.usefixtures("one_thread")

OF = ["features", "structure", "both"]
STEP = 1e-6


def nll(net: Any, x: Tensor, edge_index: Tensor, weight: Tensor, y: Tensor, mask: Tensor) -> float:
    logs = net(x, edge_index, weight).log_softmax(1)
    return float(-torch.stack([logs[i, y[i]] for i in range(N) if mask[i]]).mean())


def slopes(function: Callable[[Tensor, Tensor], float], data: Data, of: str) -> Tensor:
    """Central differences, entry by entry; both directions of an undirected edge move together."""
    x, weight = data.x, torch.ones(data.edge_index.size(1), dtype=torch.float64)
    out = []
    if of != "structure":
        for i in range(N):
            for k in range(IN):
                move = torch.zeros_like(x)
                move[i, k] = STEP
                out.append((function(x + move, weight) - function(x - move, weight)) / (2 * STEP))
    if of != "features":
        ends = data.edge_index.t().tolist()
        directions = {tuple(sorted(e)) for e in ends} if is_undirected(ends) else {tuple(e) for e in ends}
        for pair in sorted(directions):
            same = [tuple(sorted(e)) == pair if is_undirected(ends) else tuple(e) == pair for e in ends]
            move = STEP * torch.tensor(same, dtype=torch.float64)
            out.append(-(function(x, weight + move) - function(x, weight - move)) / (2 * STEP))
    return torch.tensor(out, dtype=torch.float64)


def is_undirected(ends: list[list[int]]) -> bool:
    return all([j, i] in ends for i, j in ends)


@torch.no_grad()
@pytest.mark.parametrize("of", OF)
@pytest.mark.parametrize("edges", ["undirected", "directed"])
def test_it_is_the_cosine_of_finite_differences(of: str, edges: str) -> None:
    data, net, mask = graph(), model(), some()
    if edges == "directed":
        data.edge_index = directed(N, 2)
    surrogate = Reconstruction()

    def other(x: Tensor, weight: Tensor) -> float:
        return float(surrogate(net, Data(x=x, edge_index=data.edge_index, edge_weight=weight)))

    test = slopes(lambda x, weight: nll(net, x, data.edge_index, weight, data.y, mask), data, of)
    expected = torch.cosine_similarity(test, slopes(other, data, of), dim=0)
    assert gradient_correlation(net, data, surrogate, data.y, mask, of=of) == pytest.approx(float(expected), abs=1e-4)


@pytest.mark.parametrize("of", OF)
def test_the_test_loss_itself_has_correlation_1_and_its_opposite_minus_1(of: str) -> None:
    data, net = graph(), model()
    for factor in (3.0, -3.0):
        rho = gradient_correlation(net, data, factor * Supervised(some()), data.y, some(), of=of)
        assert rho == pytest.approx(math.copysign(1.0, factor))
    everywhere = Supervised(torch.ones(N, dtype=torch.bool))
    assert gradient_correlation(net, data, everywhere, data.y, of=of) == pytest.approx(1.0)
    assert abs(gradient_correlation(net, data, everywhere, data.y, some(), of=of)) < 0.999


@pytest.mark.parametrize("name", SURROGATES)
def test_every_surrogate_has_one_and_everything_is_left_as_it_was(name: str) -> None:
    data, net = graph(), model()
    before = state_of(net, data)
    rho = gradient_correlation(net, data, ADGCL(steps=3) if name == "adgcl" else name, data.y, seed=1)
    assert_same(before, state_of(net, data))
    assert -1.0 < rho < 1.0 and rho != 0.0
    again = gradient_correlation(net, data, ADGCL(steps=3) if name == "adgcl" else name, data.y, seed=1)
    assert rho == again


def test_a_loss_that_is_flat_has_none() -> None:
    data, net = graph(), model()
    for surrogate in (lambda model, graph: torch.zeros(()), lambda model, graph: 0 * graph.x.sum()):
        assert math.isnan(gradient_correlation(net, data, surrogate, data.y))


def test_labels_of_the_graph_are_not_looked_at() -> None:
    data, net = graph(), model()
    bare = copy.copy(data)
    del bare.y
    for_graph = gradient_correlation(net, data, "reconstruction", data.y)
    assert gradient_correlation(net, bare, "reconstruction", data.y.view(-1, 1)) == for_graph


def test_stock_models_too() -> None:
    torch.manual_seed(0)
    data = graph()
    for kind in (pyg.GraphSAGE, pyg.GAT):
        net = kind(IN, 8, 2, OUT).double()
        assert abs(gradient_correlation(net, data, "contrastive", data.y, of="both")) < 1.0


def test_what_it_cannot_work_with_is_named() -> None:
    data, net = graph(), model()
    with pytest.raises(GraphMendError, match="unknown of 'edges'; choose one of both, features, structure"):
        gradient_correlation(net, data, "contrastive", data.y, of="edges")
    with pytest.raises(GraphMendError, match=r"one label per node, 12 in all \(got shape \(3,\)"):
        gradient_correlation(net, data, "contrastive", data.y[:3])
    with pytest.raises(GraphMendError, match="marks no node"):
        gradient_correlation(net, data, "contrastive", data.y, torch.zeros(N, dtype=torch.bool))
    pna = pyg.PNA(IN, 8, 2, OUT, aggregators=["max"], scalers=["identity"], deg=torch.tensor([0, 1, 5])).double()
    with pytest.raises(UnsupportedLayerError, match="of='features' still works"):
        gradient_correlation(pna, data, "entropy", data.y, of="both")
    assert abs(gradient_correlation(pna, data, "entropy", data.y)) <= 1.0
