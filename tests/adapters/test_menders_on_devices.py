"""Cards, menders and their sequences on every device: the same as on the CPU, but for rounding."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmend import GTrans
from graphmend.adapters import Adapter, Align, Impute, Purify, Reweight
from graphmend.cards import SourceCard, card
from graphmend.lab.backbones import GCN
from graphmend.surrogates import Moments
from support.adapter_cases import IN, OUT, make_graph, make_model
from support.graphs import DEVICES

MODELS = {
    "ours": lambda: GCN(IN, 8, OUT, batch_norm=True),
    "stock": lambda: pyg.GraphSAGE(IN, 8, num_layers=2, out_channels=OUT, norm="BatchNorm", dropout=0.5),
}
models = pytest.mark.parametrize("kind", MODELS)
devices = pytest.mark.parametrize("device", DEVICES)


def training_graph() -> Data:
    data = make_graph()
    data.train_mask = torch.arange(data.x.size(0)) % 2 == 0
    data.val_mask = ~data.train_mask
    within = data.y[data.edge_index[0]] == data.y[data.edge_index[1]]
    data.x, data.edge_index = data.x * 0.8 + 0.5, data.edge_index[:, within]
    return data


def on(device: str, kind: str) -> tuple[nn.Module, Data, SourceCard]:
    model, data = make_model(make=MODELS[kind]).to(device), make_graph().to(device)
    return model, data, card(model, training_graph().to(device), task="classes")


@models
@devices
def test_cards(kind: str, device: str) -> None:
    mine, reference = on(device, kind)[2], on("cpu", kind)[2]
    for field in dataclasses.fields(SourceCard):
        one, other = getattr(mine, field.name), getattr(reference, field.name)
        if isinstance(one, Tensor):
            assert one.device.type == device
            torch.testing.assert_close(one.cpu(), other, rtol=1e-6, atol=1e-8, equal_nan=True)
        else:
            same = one == other if one is None or isinstance(one, str) else one == pytest.approx(other, rel=1e-6)
            assert same, field.name


MENDERS: dict[str, Adapter] = {
    "align": Align(),
    "impute": Impute(),
    "purify": Purify(),
    "reweight": Reweight(),
    "all": Impute() >> Align(0.5) >> Purify(0.1) >> Reweight() >> GTrans(steps=6, feature_steps=2, budget=3),
}


@models
@devices
@pytest.mark.parametrize("name", MENDERS)
@pytest.mark.parametrize("has_card", [True, False])
def test_menders(name: str, kind: str, device: str, has_card: bool) -> None:
    if not has_card and name not in ("align", "impute"):
        pytest.skip(f"{name} needs a card")
    if not has_card and kind == "stock" and name == "align" and device != "cpu":
        pytest.skip("other numbers are drawn for dropout")
    model, data, made = on(device, kind)
    result = MENDERS[name](model, data, card=made if has_card else None)
    model, data, made = on("cpu", kind)
    reference = MENDERS[name](model, data, card=made if has_card else None)
    assert result.reason is None and result.data.x.device.type == device
    assert (result.patch.num_removed > 0) is (name in ("purify", "all"))
    if name == "all" and device != "cpu":  # other views are drawn
        assert len(result.history) == 6
        return
    torch.testing.assert_close(result.data.x.cpu(), reference.data.x, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(result.logits.cpu(), reference.logits, rtol=1e-6, atol=1e-8)
    assert torch.equal(result.data.edge_index.cpu(), reference.data.edge_index)
    reverted = result.patch.revert(result.data)
    assert all(torch.equal(reverted[key].cpu(), value) for key, value in data.to_dict().items())


@models
@devices
def test_steps_on_the_moments(kind: str, device: str) -> None:
    """The card may be elsewhere; on a GPU the steps are recorded."""
    model, data, _ = on(device, kind)
    made = on("cpu", kind)[2]
    result = GTrans(Moments(made), steps=30, lr_feature=0.02, budget=2)(model, data)
    assert result.reason is None and result.history[-1].loss < result.history[0].loss
    assert result.engine.recorded is (device == "cuda"), result.engine.reasons
