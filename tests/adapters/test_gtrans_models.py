"""GTrans with every kind of model: the fast way gives the results of the plain one, and keeps nothing."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import GTrans, Limits
from graphmend.engine.adjacency import Adjacency
from graphmend.engine.propagation import gcn_norm
from graphmend.lab.backbones import BACKBONES, GCN, build
from graphmend.surrogates import Backbone
from support.adapter_cases import HID, IN, OUT, N, assert_close_results, make_graph, make_model
from support.graphs import DEVICES
from support.sample_models import SEES_ALL_NODES

STOCK: dict[str, Callable[[], nn.Module]] = {
    "PyG GCN": lambda: pyg.GCN(IN, HID, 2, OUT),
    "PyG GraphSAGE": lambda: pyg.GraphSAGE(IN, HID, 2, OUT),
    "PyG GAT": lambda: pyg.GAT(IN, HID, 2, OUT, heads=2),
    "PyG GATv2": lambda: pyg.GAT(IN, HID, 2, OUT, v2=True),
    "PyG GIN": lambda: pyg.GIN(IN, IN - 1, 2, OUT),  # linear before the sum, where that is narrower
}


@pytest.mark.parametrize("name", ["gcn", "sage", "gat", "gpr", "appnp", "airgnn"])
def test_the_embed_of_our_own_backbones_is_the_one_that_is_used(name: str, caplog: pytest.LogCaptureFixture) -> None:
    model, calls = build(name, IN, HID, OUT).double(), []
    own = type(model).embed

    class Counted(type(model)):  # type: ignore[misc]
        def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
            calls.append(1)
            return own(self, x, edge_index, edge_weight)

    model.__class__ = Counted
    with caplog.at_level(logging.WARNING):
        result = GTrans(steps=5)(model, make_graph())
    assert result.reason is None and "embed" not in caplog.text
    assert len(calls) >= 3 * 5


def test_nothing_is_left_behind() -> None:
    """A service that mends many graphs must not wait for the garbage collector to get its memory back."""
    model, data = GCN(5, 8, 3).double().eval(), make_graph()
    GTrans(steps=5)(model, data)
    gc.collect()
    gc.disable()
    try:
        GTrans(steps=5)(model, data)
        kept = [o for o in gc.get_objects() if type(o) is Tensor and o.numel() >= N]
        gc.collect()
        assert len(kept) == len([o for o in gc.get_objects() if type(o) is Tensor and o.numel() >= N])
    finally:
        gc.enable()


def test_a_surrogate_may_take_gradients_of_its_own() -> None:
    def penalised(model: Backbone, data: Data) -> Tensor:
        z = model.embed(data.x, data.edge_index, data.get("edge_weight"))
        (slope,) = torch.autograd.grad(z.square().sum(), data.x, create_graph=False, retain_graph=True)
        return z.square().mean() + 0.0 * slope.sum()

    result = GTrans(penalised, steps=3, edge_steps=0)(make_model(), make_graph())
    assert result.reason is None and result.history[0].gradient_norm > 0


def test_column_major_features_move_like_any_others() -> None:
    data, model = make_graph(), make_model()
    other = data.clone()
    other.x = data.x.t().contiguous().t()
    assert not other.x.is_contiguous()
    ours, theirs = (GTrans(steps=5, lr_feature=0.01)(model, graph) for graph in (data, other))
    torch.testing.assert_close(ours.data.x, theirs.data.x)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("model", [*BACKBONES, *STOCK], ids=str)
def test_every_way_to_compute_gives_the_same_result(model: str, device: str) -> None:
    """Plain; fast; and fast under limits that allow everything, where features may be put back after a step, so that
    no product can be computed together with it."""
    if model == "dual_gcn" and device == "cuda":
        pytest.skip("its random walks follow edge weights, so what a GPU rounds otherwise may end elsewhere")
    torch.manual_seed(5)
    net = (build(model, IN, HID, OUT) if model in BACKBONES else STOCK[model]()).double().to(device).eval()
    data = make_graph().to(device)
    adapter = GTrans(steps=10, feature_steps=3, edge_steps=2, lr_feature=0.05, lr_edge=0.5, budget=4)
    plain = adapter(net, data, mode="eager")
    assert plain.reason is None and not (plain.engine.shared_features or plain.engine.stacked_views)
    for limits in (Limits(), Limits(minimum=-1e9)):
        fast = adapter(net, data, limits=limits)
        assert_close_results(fast, plain, 1e-8)
        assert fast.engine.shared_features, fast.engine.reasons
        assert fast.engine.stacked_views == (model not in SEES_ALL_NODES), fast.engine.reasons
        torch.testing.assert_close(fast.logits, net(fast.data.x, fast.data.edge_index).detach())


def test_the_report_says_why_nothing_is_shared() -> None:
    """A sum over neighbours comes first where the linear map after it would only widen the features."""
    wide, narrow = (GTrans(steps=2)(make_model(make=lambda h=h: pyg.GIN(IN, h, 2, OUT)), make_graph()) for h in (9, 4))
    assert not wide.engine.shared_features and "no linear map" in wide.engine.reasons["shared_features"]
    assert narrow.engine.shared_features and narrow.engine.reasons == {}


@pytest.mark.parametrize("name", ["convs.0", "norms.0"])
def test_a_layer_of_our_own_backbones_can_be_named(name: str) -> None:
    model, data = GCN(5, 8, 3, batch_norm=True).double().eval(), make_graph()
    assert GTrans(steps=3, embedding=name)(model, data).reason is None


def test_other_norms_than_ours_are_not_left_out() -> None:
    model, data = GCN(5, 8, 3, batch_norm=True).double().eval(), make_graph()
    model.norms[0] = nn.LayerNorm(8).double()
    with torch.no_grad():
        hidden = model.norms[0](model.convs[0](data.x, gcn_norm(Adjacency.of(data.edge_index, N), None, torch.float64)))
        torch.testing.assert_close(model.embed(data.x, data.edge_index), hidden.relu())
