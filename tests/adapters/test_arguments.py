"""Numbers as arguments: those of NumPy are taken, truth values are not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Any

import numpy as np
import pytest
import torch

from graphmend import FrozenGNN, Gate, GraphMendError, GTrans, Identity, card, mend
from graphmend.adapters import ADAPTERS, Align, Purify, Reweight
from support.adapter_cases import make_graph, make_model
from support.fields import type_of
from support.refusals import assert_refused, wrong

SEEDED: dict[str, Callable[[Any], Any]] = {
    "adapter": lambda seed: Identity()(make_model(), make_graph(), seed=seed),
    "frozen": lambda seed: FrozenGNN(make_model(), make_graph(), seed=seed),
    "card": lambda seed: card(make_model(), make_graph(), seed=seed, task="classes"),
}


def test_numbers_of_numpy_are_kept_as_numbers_of_python() -> None:
    whole = ("steps", "feature_steps", "edge_steps", "num_samples", "block_size")
    settings = {**dict.fromkeys(whole, np.int64(3)), "lr_feature": np.float32(0.5), "lr_edge": np.float64(0.25)}
    adapter = GTrans(**settings, budget=np.int32(2), time_limit=np.float32(60.0))
    assert adapter == GTrans(
        adapter.surrogate,
        **dict.fromkeys(whole, 3),
        lr_feature=0.5,
        lr_edge=0.25,
        budget=2,
        time_limit=60.0,
    )
    for name in (*whole, "budget"):
        assert type(getattr(adapter, name)) is int
    for kept in (adapter.lr_feature, adapter.lr_edge, adapter.time_limit, GTrans(budget=np.float32(0.5)).budget):
        assert type(kept) is float
    assert type(Align(np.float32(0.5)).strength) is float and type(Reweight(np.int64(2)).largest) is float


def test_a_seed_of_numpy_is_the_same_seed() -> None:
    model, data = make_model(), make_graph()
    first, second = (GTrans(steps=3)(model, data, seed=seed) for seed in (5, np.int64(5)))
    assert torch.equal(first.logits, second.logits)


@pytest.mark.parametrize("seed", [True, False, np.True_, -1, 2**63, 2**64, 1.0, None, "1"], ids=repr)
@pytest.mark.parametrize("kind", SEEDED)
def test_what_is_no_seed(kind: str, seed: Any) -> None:
    with pytest.raises(GraphMendError, match=r"seed must be a whole number from 0 to 2\*\*63 - 1 \(got "):
        SEEDED[kind](seed)


@wrong(
    steps=[-1, 2.5, "ten", True],
    feature_steps=[-2],
    edge_steps=[None],
    num_samples=[-1, np.True_],
    block_size=[-1],
    lr_feature=[0.0, math.nan, "fast", True],
    lr_edge=[-1, math.inf, np.float32(math.nan)],
    budget=[1.3, math.nan, -1, "all", True, np.float32(2.0)],
    time_limit=[0, "1 h", True],
    feature_scale=["sd"],
    edge_update=["sgd"],
    space=["all"],
    directed=["both"],
    surrogate=["entropi", 3],
)
def test_wrong_settings_of_gtrans(setting: str, value: Any) -> None:
    assert_refused(GTrans, setting, value)


def test_gtrans_has_to_learn_something() -> None:
    with pytest.raises(GraphMendError, match="nothing to learn; set one of them"):
        GTrans(feature_steps=0, edge_steps=0)


MENDERS: dict[str, tuple[Callable[..., Any], str, list[Any]]] = {
    "align": (Align, "strength", [0, -1.0, 1.5, math.nan, True, "half"]),
    "purify": (Purify, "strength", [0, -1.0, math.nan]),
    "reweight": (Reweight, "largest", [0.5, 0, math.inf, math.nan, "4", True]),
}


@pytest.mark.parametrize("name", MENDERS)
def test_wrong_settings_of_menders(name: str) -> None:
    kind, setting, values = MENDERS[name]
    for value in values:
        assert_refused(kind, setting, value)


@pytest.mark.parametrize("callback", [3, "print", np.ones(2)], ids=repr)
def test_a_callback_that_cannot_be_called_is_named_before_any_work(callback: Any) -> None:
    with pytest.raises(GraphMendError, match="callback must be a function of a step"):
        Identity()(make_model(), make_graph(), callback=callback)


@pytest.mark.parametrize("progress", [None, 2, np.ones(2)], ids=repr)
def test_progress_is_shown_or_not(progress: Any) -> None:
    with pytest.raises(GraphMendError, match="progress must be True or False"):
        Identity()(make_model(), make_graph(), progress=progress)


def test_an_adapter_that_cannot_be_called_is_named() -> None:
    with pytest.raises(GraphMendError, match=r"an adapter is one of graphmend\.adapters.* \(got 3\)"):
        mend(make_model(), make_graph(), 3)  # type: ignore[arg-type]


READABLE = ("int", "float", "bool", "str", "int | None", "float | None", "str | None", "float | int")
FIELDS = [(kind, field) for kind in (Gate, *ADAPTERS.values()) for field in fields(kind) if type_of(field) in READABLE]


@pytest.mark.parametrize(
    ("kind", "field"), FIELDS, ids=lambda part: getattr(part, "__name__", getattr(part, "name", ""))
)
def test_a_setting_of_another_type_is_named_when_an_adapter_is_made(kind: Any, field: Field[Any]) -> None:
    for bad in (1j, [], {}, b"x", np.ones(2), torch.ones(2)):
        with pytest.raises(GraphMendError, match=field.name):
            kind(**{field.name: bad})
