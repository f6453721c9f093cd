"""GTrans: the units of the features do not matter, unless absolute steps are asked for."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import GTrans, Limits
from graphmend.lab.backbones import GAT, GCN, GPR, SAGE
from graphmend.results.adaptation import Adaptation
from graphmend.surrogates import Supervised
from support.adapter_cases import HID, IN, OUT, N, assert_close_results, loss_of_logits, make_graph, make_model
from support.graphs import rng

MODELS: dict[str, Callable[[], nn.Module]] = {
    "GCN": lambda: GCN(IN, HID, OUT),
    "SAGE": lambda: SAGE(IN, HID, OUT, batch_norm=True),
    "GAT": lambda: GAT(IN, HID, OUT, heads=2),
    "GPR": lambda: GPR(IN, HID, OUT, hops=4),
    "PyG's GCN": lambda: pyg.GCN(IN, HID, 2, OUT),
}
UNITS = {
    "random": 10 ** (6 * torch.rand(IN, generator=rng(8), dtype=torch.float64) - 3),
    "very different": torch.tensor([1e3, 1e-3, 0.37, 42.0, 5e-3], dtype=torch.float64),
    "all small": torch.full((IN,), 1e-3, dtype=torch.float64),
}
models = pytest.mark.parametrize("name", MODELS)
modes = pytest.mark.parametrize("mode", ["auto", "eager"])


def in_units(model: nn.Module, data: Data, units: Tensor) -> tuple[nn.Module, Data]:
    """Features times their units, and a model whose first layer expects them so."""
    model, data = copy.deepcopy(model), data.clone()
    data.x = data.x * units
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2 and parameter.size(1) == IN:
                parameter.div_(units)
            elif parameter.dim() == 2 and parameter.size(0) == IN:
                parameter.div_(units.unsqueeze(1))
    return model, data


def both(
    name: str, units: str, adapter: GTrans, mode: str = "auto", limits: Limits | None = None
) -> tuple[Adaptation, Adaptation]:
    """What an adapter finds in both units; the features of the second are back in the units of the first."""
    model, data = make_model(make=MODELS[name]).eval(), make_graph()
    other_model, other = in_units(model, data, UNITS[units])
    with torch.no_grad():
        before = model(data.x, data.edge_index), other_model(other.x, other.edge_index)
    torch.testing.assert_close(*before, rtol=1e-10, atol=1e-10)
    first = adapter(model, data, mode=mode, limits=limits, task="classes")
    second = adapter(other_model, other, mode=mode, limits=limits, task="classes")
    second.data.x = second.data.x / UNITS[units]
    assert not torch.allclose(first.logits, before[0], rtol=1e-3), "there is something to compare"
    return first, second


@models
@modes
@pytest.mark.parametrize("edge_steps", [0, 1, 2])
@pytest.mark.parametrize("units", UNITS)
def test_relative_steps_do_not_depend_on_the_units(name: str, units: str, edge_steps: int, mode: str) -> None:
    adapter = GTrans(steps=12, edge_steps=edge_steps, lr_feature=0.05, lr_edge=0.3, budget=5)
    first, second = both(name, units, adapter, mode)
    assert_close_results(second, first, 1e-8)
    assert torch.equal(second.logits.argmax(1), first.logits.argmax(1))
    assert [s.gradient_norm for s in second.history] == pytest.approx([s.gradient_norm for s in first.history])
    assert [s.flipped for s in second.history] == pytest.approx([s.flipped for s in first.history])
    assert [c.flips for c in second.candidates] == [c.flips for c in first.candidates]


@modes
def test_nor_do_they_with_known_labels_and_frozen_rows(mode: str) -> None:
    adapter = GTrans(Supervised(torch.arange(N) % 3 == 0), steps=8, lr_feature=0.05)
    limits = Limits(frozen_nodes=torch.arange(N) < 4, frozen_columns=torch.arange(IN) == 2)
    first, second = both("GCN", "very different", adapter, mode, limits)
    assert_close_results(second, first, 1e-8)


@modes
@pytest.mark.parametrize("units", UNITS)
def test_absolute_steps_depend_on_the_units(units: str, mode: str) -> None:
    adapter = GTrans(steps=12, edge_steps=0, lr_feature=0.05, feature_scale="absolute")
    first, second = both("GCN", units, adapter, mode)
    with pytest.raises(AssertionError):
        assert_close_results(second, first, 0.01)


def test_a_step_is_lr_feature_standard_deviations_long() -> None:
    model, data = in_units(make_model(), make_graph(), UNITS["very different"])
    result = GTrans(loss_of_logits, steps=1, edge_steps=0, lr_feature=0.03)(model, data)
    moved = (result.data.x - data.x).abs() / data.x.std(0, correction=0)
    torch.testing.assert_close(moved, torch.full_like(moved, 0.03), rtol=1e-3, atol=0)


def test_the_defaults_fit_small_and_large_features() -> None:
    """Row-normalised features are not ruined, and large ones are not left as they were."""
    for unit in (1e-3, 1.0, 1e3):
        data = make_graph()
        data.x = data.x * unit
        result = GTrans()(make_model(), data)
        moved = (result.data.x - data.x).abs().amax(0) / data.x.std(0, correction=0)
        assert result.reason is None and float(moved.max()) < 0.01 and float(moved.min()) > 0.003


@modes
def test_constant_columns_stay_as_they_are(mode: str) -> None:
    data = make_graph()
    data.x[:, 1], data.x[:, 3] = 0.1, 0.0
    result = GTrans(steps=10, lr_feature=0.5)(make_model(), data, mode=mode)
    assert result.reason is None and torch.equal(result.data.x[:, [1, 3]], data.x[:, [1, 3]])
    assert (result.data.x[:, [0, 2, 4]] != data.x[:, [0, 2, 4]]).any(0).all()
    absolute = GTrans(steps=10, lr_feature=0.5, feature_scale="absolute")(make_model(), data, mode=mode)
    assert not torch.equal(absolute.data.x[:, [1, 3]], data.x[:, [1, 3]])


@modes
@pytest.mark.parametrize("nodes", [1, 2])
def test_nodes_that_are_all_alike_stay_as_they_are(nodes: int, mode: str) -> None:
    loops = torch.arange(nodes).repeat(2, 1)
    data = Data(x=make_graph().x[:1].repeat(nodes, 1), edge_index=loops)
    result = GTrans(lr_feature=0.5, embedding="a")(make_model(), data, mode=mode)
    assert result.reason is None and result.logits.isfinite().all()
    assert torch.equal(result.data.x, data.x) and result.patch.num_rows == 0


@modes
def test_limits_are_in_the_features_own_units(mode: str) -> None:
    data = make_graph()
    data.x[:, 0] *= 100.0
    free = GTrans(steps=10, edge_steps=0, lr_feature=0.2)(make_model(), data, mode=mode).data.x
    bounds = Limits(minimum=data.x.amin(0) - 0.05, maximum=data.x.amax(0) + 0.05)
    held = GTrans(steps=10, edge_steps=0, lr_feature=0.2)(make_model(), data, mode=mode, limits=bounds).data.x
    assert (free > bounds.maximum).any() or (free < bounds.minimum).any()
    assert (held <= bounds.maximum).all() and (held >= bounds.minimum).all()
    assert float((held - data.x)[:, 0].abs().max()) > 5.0
