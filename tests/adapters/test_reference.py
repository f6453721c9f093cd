"""The whole adaptation against a plain PyG implementation: edge lists, autograd, one coalesce per change."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

from graphmend import FrozenGNN, GTrans
from graphmend.engine.linear_maps import LinearMaps
from graphmend.engine.shared_features import SharedFeatures
from graphmend.graph.edge_flips import EdgeFlips
from graphmend.lab.backbones import GAT, GCN, GPR, SAGE
from graphmend.surrogates import Contrastive
from support.graphs import rng, undirected

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.reference import Reference

N, IN = 30, 7
MODELS = {
    "gcn": lambda: GCN(IN, 8, 3),
    "gcn, deep with batch norm": lambda: GCN(IN, 8, 3, num_layers=4, batch_norm=True),
    "sage": lambda: SAGE(IN, 8, 3, batch_norm=True),
    "gpr": lambda: GPR(IN, 8, 3, hops=4),
    "gat": lambda: GAT(IN, 8, 3, heads=2),
}
models = pytest.mark.parametrize("name", MODELS)


def case(name: str, dtype: torch.dtype) -> tuple[torch.nn.Module, Data]:
    torch.manual_seed(0)
    model = MODELS[name]().to(dtype).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.running_mean.uniform_(-0.5, 0.5)
            module.running_var.uniform_(0.5, 1.5)
    x = torch.randn(N, IN, generator=rng(1), dtype=torch.float64).to(dtype)
    return model, Data(x=x, edge_index=coalesce(undirected(N)))


@models
def test_the_same_losses_in_single_precision(name: str) -> None:
    model, data = case(name, torch.float32)
    ours = GTrans(edge_update="sign", lr_feature=0.01, feature_scale="absolute")(model, data, seed=5)
    theirs = Reference(model, data.x, data.edge_index)(seed=5, lr_feature=0.01)
    assert [step.kind for step in ours.history] == theirs.kinds
    assert [step.loss for step in ours.history] == pytest.approx(theirs.losses, abs=1e-4)
    assert ours.candidates[0].loss == pytest.approx(theirs.scores[0], abs=1e-4)  # the others depend on ties of p
    assert len(ours.candidates) == len(theirs.scores)


@models
def test_the_same_gradients_in_double_precision(name: str) -> None:
    model, data = case(name, torch.float64)
    reference = Reference(model, data.x, data.edge_index, keep_gradients=True)(seed=5)
    for kind, which in (("feature", 0), ("edge", reference.kinds.index("edge"))):
        trace = Reference(model, data.x, data.edge_index, keep_gradients=True)(
            seed=5, steps=1, feature_steps=1 if kind == "feature" else 0
        )
        expected = trace.gradients[0]
        assert reference.kinds[which] == kind
        torch.testing.assert_close(gradient(model, data, kind, seed=5), expected, atol=1e-9, rtol=1e-9)
        assert float(expected.abs().max()) > 1e-4


def gradient(model: torch.nn.Module, data: Data, kind: str, seed: int) -> Tensor:
    """Of the first step, as GTrans computes it."""
    generator = torch.Generator().manual_seed(seed)
    flips = EdgeFlips.of(data.edge_index, N, budget=0.05, dtype=torch.float64)
    x = data.x.clone()
    with FrozenGNN(model, data) as frozen:
        (x if kind == "feature" else flips.p).requires_grad_()
        maps = LinearMaps(x)
        graph = Data(x=SharedFeatures.of(maps), edge_index=flips.edge_index, edge_weight=flips.presence())
        loss = Contrastive()(frozen, graph, generator)
        assert maps.is_used
        if kind == "edge":
            return torch.autograd.grad(loss, flips.p)[0]
        return maps.gradient(loss).rows(0, N, torch.empty_like(x))


@models
def test_the_thread_count_changes_nothing_but_rounding(name: str) -> None:
    model, data = case(name, torch.float32)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(GTrans(edge_update="gradient")(model, data, seed=1))
    finally:
        torch.set_num_threads(before)
    one, two = results
    assert [s.loss for s in one.history] == pytest.approx([s.loss for s in two.history], abs=1e-5)
    torch.testing.assert_close(one.data.x, two.data.x, atol=1e-4, rtol=1e-3)
