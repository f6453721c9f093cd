"""What trainers cannot work with is named, with the value and the remedy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from graphmend.errors import GraphMendError
from graphmend.lab.backbones import GCN
from graphmend.lab.data import Splits
from graphmend.lab.training import DANN, EERM, ERM, SRGNN, TRAINERS, UDAGCN, trainer_of
from graphmend.lab.training.sr_gnn import MOST_ROWS, instance_weights
from support.graphs import labelled
from support.refusals import assert_refused, wrong


def splits(task: str = "multiclass", classes: int = 3, columns: int = 5) -> Splits:
    parts = [labelled(6, seed) for seed in range(3)]
    for part in parts:
        part.y = part.y.clamp(max=classes - 1)
    parts[2].x = torch.ones(6, columns)
    return Splits(*([part] for part in parts), task=task)


class NoEmbedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.linear(x)
        return out


@pytest.mark.parametrize("name", TRAINERS)
@wrong(lr=[0.0, math.nan, 1e300], weight_decay=[-1.0, 1e300], epochs=[0], optimizer=["sgd"], heads=[2])
def test_wrong_settings_of_every_trainer(name: str, setting: str, value: Any) -> None:
    with pytest.raises(GraphMendError, match=setting):
        trainer_of(name, **{setting: value})


@pytest.mark.parametrize("name", TRAINERS)
def test_settings_of_another_type_are_named(name: str) -> None:
    readable = {field.name: field.type for field in fields(TRAINERS[name]) if field.type in ("int", "float", "bool")}
    for setting in readable:
        for bad in ("x", None, 1j, torch.ones(2), [], np.ones(3)):
            with pytest.raises(GraphMendError, match=rf"'s {setting} must be "):
                trainer_of(name, **{setting: bad})


@wrong(views=[1], flips=[0], editor_steps=[0], editor_lr=[0.0], beta=[-1.0], beta_growth=[math.inf], candidates=[2])
def test_wrong_settings_of_eerm(setting: str, value: Any) -> None:
    assert_refused(EERM, setting, value)


@wrong(entropy=[-0.1], reversal=[math.inf], dropout=[1.0], hidden_channels=[0])
def test_wrong_settings_of_uda_gcn(setting: str, value: Any) -> None:
    assert_refused(UDAGCN, setting, value)


CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "unknown": (lambda: trainer_of("sgd"), "'sgd'; choose one of dann, eerm, erm, sr_gnn, uda_gcn"),
    "drop_edge": (lambda: ERM(drop_edge=1.0), "drop_edge"),
    "weight": (lambda: SRGNN(weight=-1.0), "weight must be finite"),
    "reversal": (lambda: DANN(reversal=math.nan), "reversal"),
    "candidates": (lambda: EERM(candidates=9, released=True), "leave candidates at None"),
    "flips": (lambda: EERM(flips=7)(GCN(5, 8, 3), splits()), "flips=7 is more than the 6 candidates"),
    "single logit": (lambda: ERM()(GCN(5, 8, 1), splits(classes=2)), "single one"),
    "three logits": (lambda: ERM()(GCN(5, 8, 3), splits("binary", 2)), "one or two logits"),
    "sr_gnn without embed": (lambda: SRGNN()(NoEmbedding(), splits()), "NoEmbedding has no embed"),
    "dann without embed": (lambda: DANN()(NoEmbedding(), splits()), "NoEmbedding has no embed"),
    "uda_gcn of a GCN": (lambda: UDAGCN()(GCN(5, 8, 3), splits()), r"DualGCN \(got GCN\)"),
    "too many rows": (lambda: instance_weights(torch.zeros(MOST_ROWS + 1, 1), torch.zeros(1, 1)), "20,001 .* 20,000"),
    "no rows": (lambda: instance_weights(torch.zeros(0, 1), torch.zeros(1, 1)), "no node to train on"),
    "nan": (lambda: instance_weights(torch.zeros(2, 1), torch.tensor([[math.nan]])), "NaN or infinity"),
    "double": (lambda: ERM()(GCN(5, 8, 3), doubled()), "float32 but x is torch.float64: convert"),
}


def doubled() -> Splits:
    out = splits()
    for part in (*out.train, *out.val, *out.test):
        part.x = part.x.double()
    return out


@pytest.mark.parametrize(("call", "said"), CASES.values(), ids=CASES)
def test_what_it_cannot_work_with_is_named(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(GraphMendError, match=said):
        call()
