"""Every number among the arguments of a transform is checked when it is made; NumPy's numbers are numbers, too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphmend.transforms as room
from graphmend.errors import GraphMendError
from graphmend.lab.attacks import ATTACKS, EdgeAttack
from graphmend.lab.backbones import GCN
from graphmend.lab.data import SHIFTS
from graphmend.lab.data.corruptions import FeatureNoise
from graphmend.lab.registries import CORRUPTIONS
from graphmend.transforms import VIEWS, DropEdge
from support.fields import type_of
from support.graphs import labelled, rng

pytestmark = pytest.mark.usefixtures("one_thread")

KINDS = {name: value for name, value in vars(room).items() if is_dataclass(value) and value is not EdgeAttack}
KINDS |= {kind.__name__: kind for kind in (*VIEWS.values(), *SHIFTS.values(), *ATTACKS.values(), *CORRUPTIONS.values())}
NUMBERS = ("float", "int", "float | None", "int | None")


def make(kind: Any, **arguments: Any) -> Any:
    """A transform; attacks need a model."""
    torch.manual_seed(0)
    return kind(GCN(5, 8, 3), **arguments) if issubclass(kind, EdgeAttack) else kind(**arguments)


def numbers() -> Iterator[Any]:
    for name, kind in KINDS.items():
        for field in fields(kind):
            if type_of(field) in NUMBERS:
                yield pytest.param(kind, field, id=f"{name} {field.name}")


every_number = pytest.mark.parametrize(("kind", "field"), list(numbers()))


def test_every_transform_is_looked_at() -> None:
    assert {"DropEdge", "Subgraph", "FeatureNoise", "RandomEdges", "Jaccard", "PRBCD", "GRBCD"} <= set(KINDS)
    assert {"LabelShift", "ColumnShift", "MissingColumns", "EdgeSubsample"} <= set(KINDS)
    assert len(list(numbers())) > 30


@every_number
def test_what_is_no_number_is_named(kind: Any, field: Field[Any]) -> None:
    bad: list[Any] = ["0.5", "", True, np.True_, float("nan"), float("inf"), np.float32("nan"), [0], 1j, torch.ones(2)]
    bad += [] if "None" in type_of(field) else [None]
    bad += [0.5, np.float64(0.5), 1.0] if "int" in type_of(field) else []
    for value in bad:
        with pytest.raises(GraphMendError, match=rf"{kind.__name__}'s {field.name} must be a .*number.* \(got "):
            make(kind, **{field.name: value})


@every_number
def test_numbers_of_numpy_are_numbers(kind: Any, field: Field[Any]) -> None:
    value = 1 if field.default in (None, MISSING) else field.default
    for number in (
        (np.float64(value), np.float32(value)) if "float" in type_of(field) else (np.int64(value), np.int32(value))
    ):
        transform = make(kind, **{field.name: number})
        assert type(getattr(transform, field.name)) in (int, float)
        assert getattr(transform, field.name) == number
    assert repr(transform) == repr(make(kind, **{field.name: number.item()}))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_transform_of_numpy_numbers_does_what_the_same_of_plain_numbers_does(kind: Any) -> None:
    small = {"block_size": 50, "epochs": 2, "num_samples": 2, "budget": 2} if issubclass(kind, EdgeAttack) else {}
    plain = {f.name: f.default for f in fields(kind) if type_of(f) in ("float", "int")} | small
    plain = {name: value for name, value in plain.items() if name in {f.name for f in fields(kind)}}
    arrays = {name: np.int64(value) if isinstance(value, int) else np.float64(value) for name, value in plain.items()}
    data, seeded = labelled(), (rng(),) if kind in VIEWS.values() else ()
    again = (rng(),) if seeded else ()
    found, expected = make(kind, **arrays)(data, *seeded), make(kind, **plain)(data, *again)
    assert torch.equal(found.x, expected.x) and torch.equal(found.edge_index, expected.edge_index)


@given(st.floats())
def test_a_probability_is_a_number_from_zero_to_one(p: float) -> None:
    if 0 <= p <= 1:
        assert DropEdge(p).p == p
    else:
        with pytest.raises(GraphMendError, match=r"DropEdge's p must be a number in \[0, 1\]"):
            DropEdge(p)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_of_numpy_have_32_bits(seed: int) -> None:
    with pytest.raises(GraphMendError, match=r"from 0 to 2\*\*32 - 1"):
        FeatureNoise(seed=seed)


def test_shares_are_numbers() -> None:
    shift = KINDS["LabelShift"]
    for bad in ("ab", 0.5, [None, 1.0], [[0.5], [0.5]], [], [float("nan"), 1.0], 10**400, [10**400]):
        with pytest.raises(GraphMendError, match="shares must not be negative and not all 0"):
            shift(bad)
    assert torch.equal(shift(np.array([0.5, 0.25, 0.25]))(labelled(30)).y, shift((2, 1, 1))(labelled(30)).y)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_is_neither_true_nor_false_is_named(kind: Any) -> None:
    for field in fields(kind):
        for bad in (None, "x", 2, np.ones(2), torch.ones(2)) if type_of(field) == "bool" else ():
            with pytest.raises(GraphMendError, match=f"{kind.__name__}'s {field.name} must be True or False"):
                make(kind, **{field.name: bad})
