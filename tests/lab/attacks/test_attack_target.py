"""The gradient of an attack against a dense float64 reference."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from graphmend.lab.attacks.pairs import Block, UndirectedGraph
from graphmend.lab.attacks.target import LOSSES, target_of
from graphmend.lab.backbones import GCN
from support.graphs import DEVICES, dense, dense_norm, rng, undirected


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("at_zero", [True, False])
def test_gradient_equals_the_dense_reference(loss: str, at_zero: bool, device: str) -> None:
    n, edge_index = 12, undirected(12, density=0.3, loops=True)
    x = torch.rand(n, 4, generator=rng(), dtype=torch.float64)
    data = Data(x=x, edge_index=edge_index).to(device)
    torch.manual_seed(0)
    model = GCN(4, 6, 3).double().to(device)
    nodes = (torch.arange(n) % 3 > 0).to(device)
    labels = (torch.arange(n) % 3).to(device)
    graph = UndirectedGraph.of(data)
    block = Block.random(graph, 40, torch.Generator(device=device).manual_seed(1))
    assert 0 < int(block.exists.sum()) < 40
    p = torch.rand(40, generator=rng(2), dtype=torch.float64).to(device) * (0 if at_zero else 1)
    with target_of(model, data, nodes=nodes, labels=labels, known=None, loss=loss, seed=0) as target:
        gradient = target.gradient(block, p)

    i, j = torch.triu_indices(n, n, 1, device=device)[:, block.pairs]
    clean = dense(edge_index, n).to(device)
    variable = p.clone().requires_grad_()
    flip = torch.zeros(n, n, dtype=torch.float64, device=device).index_put((i, j), variable)
    flip = flip + flip.t()
    relaxed = clean * (1 - flip) + (1 - clean) * flip  # A xor p
    a = dense_norm(relaxed)
    first, last = model.convs
    out = (a @ torch.relu(a @ data.x @ first.weight + first.bias)) @ last.weight + last.bias
    (expected,) = torch.autograd.grad(LOSSES[loss](out[nodes], labels[nodes]), variable)
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-13)
    assert bool((expected != 0).any())
