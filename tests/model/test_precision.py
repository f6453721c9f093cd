"""Half precision, autocast, and models whose outputs are random even in evaluation mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from graphmend import FrozenGNN, GTrans, UnsupportedLayerError, mend
from graphmend.model.edge_weights import filtered, patched
from support.sample_models import HID, IN, OUT, Custom, Ignoring, TwoConvs, basic, make_graph, seeded
from support.untouched import assert_same, generator_states, snapshot

HALVES = [torch.float16, torch.bfloat16]
NAMES = ["GCN", "GraphSAGE", "GAT", "GATv2", "GIN"]


def wide_graph(dtype: torch.dtype = torch.float32) -> Data:
    """Wide enough that sums are rounded and a ReLU switches here and there."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(300, (2, 500), generator=generator)
    x = torch.randn(300, 200, generator=generator)
    return Data(x=x.to(dtype), edge_index=torch.unique(torch.cat([edges, edges.flip(0)], dim=1), dim=1))


def wide_model(name: str) -> nn.Module:
    torch.manual_seed(1)
    model: nn.Module = pyg.GAT(200, 64, 2, 7, v2=True) if name == "GATv2" else getattr(pyg, name)(200, 64, 2, 7)
    return model


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_features_and_edges_are_mended_in_half_precision(name: str, dtype: torch.dtype) -> None:
    for model, data in (
        (seeded(lambda: basic(name, num_layers=2), dtype), make_graph(dtype)),
        (wide_model(name).to(dtype), wide_graph(dtype)),
    ):
        before = snapshot(model)
        result = GTrans(steps=5, budget=3)(model, data)
        assert_same(before, snapshot(model))
        assert result.reason is None and result.data.x.dtype == dtype and result.logits.isfinite().all()
        assert len(result.candidates) > 0
        assert mend(model, data).logits.dtype == dtype


@pytest.mark.parametrize("name", NAMES)
def test_features_and_edges_are_mended_under_autocast(name: str) -> None:
    model, data = wide_model(name), wide_graph()
    with torch.autocast("cpu", torch.bfloat16):
        result = GTrans(steps=5, budget=3)(model, data)
        assert result.reason is None and result.data.x.dtype == torch.float32 and len(result.candidates) > 0
        assert mend(model, data).reason is None
        assert torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("dtype", [*HALVES, None], ids=str)
def test_half_precision_does_not_excuse_a_layer_that_ignores_its_weights(dtype: torch.dtype | None) -> None:
    model, data = seeded(Ignoring, dtype or torch.float32), make_graph(dtype or torch.float32)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype is None), FrozenGNN(model, data) as frozen:
        assert frozen.weighting is filtered
        with pytest.raises(
            UnsupportedLayerError, match=r"Ignoring \(it does not treat an edge of weight 0 as absent\)"
        ):
            frozen.require_edge_weights()


class AlwaysDrops(TwoConvs):
    """Forgets to say whether it is training."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.b(F.dropout(self.a(x, edge_index).relu()), edge_index)


class DropsMessages(TwoConvs):
    """The same for the messages of a layer of its own, so that other edges draw other numbers."""

    class Conv(Custom):
        def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
            return F.dropout(x_j)

    def __init__(self) -> None:
        super().__init__(self.Conv)


@pytest.mark.parametrize("layer", [pyg.GCNConv, pyg.SAGEConv, pyg.GATConv])
def test_edges_are_mended_through_dropout_that_is_always_on(layer: Callable[[int, int], nn.Module]) -> None:
    model, data = seeded(lambda: AlwaysDrops(layer)), make_graph()
    generators = generator_states()
    with FrozenGNN(model, data) as frozen:
        assert frozen.weighting is patched
    first, second = (GTrans(steps=5, budget=3, lr_feature=1e-4)(model, data, seed=3) for _ in range(2))
    assert len(first.candidates) > 0 and torch.equal(first.logits, second.logits)
    assert_same(generators, generator_states())


def test_a_model_whose_edges_drop_at_random_is_refused_edges_for_that_reason() -> None:
    model, data = seeded(DropsMessages), make_graph()
    assert isinstance(model.a, MessagePassing)

    class Hidden(nn.Module):
        """The layer is no convolution of PyG's, so that nothing but the whole model can be blamed."""

        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(IN, HID), nn.Linear(HID, OUT)

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Any:
            h = self.a(x).relu()
            messages = F.dropout(h[edge_index[0]])
            return self.b(h + torch.zeros_like(h).index_add(0, edge_index[1], messages))

    for random in (model, seeded(Hidden)):
        with pytest.raises(UnsupportedLayerError, match="gives different outputs on the same graph, as with dropout"):
            GTrans(feature_steps=0)(random, data)
        result = GTrans(steps=3, edge_steps=0, lr_feature=1e-4)(random, data)
        assert result.patch.num_rows > 0 or "worse by the surrogate loss" in str(result.reason)
