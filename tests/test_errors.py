"""Plain arguments are read in one way everywhere, and every complaint is one line that can be printed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmend.errors import (
    GraphMendError,
    among,
    at_least,
    check_fields,
    choose,
    listed,
    one_of,
    printable,
    read_fields,
    real_number,
    real_numbers,
    seed_number,
    shown,
    switch,
    text,
    whole_number,
    within,
)

NOTHING: list[Any] = [None, True, np.True_, "1", b"1", 1j, [], {}, ..., int, np.ones(3), torch.ones(2), math.nan]


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@given(st.text())
def test_a_message_is_one_printable_line(message: str) -> None:
    said = str(GraphMendError(message))
    assert said.isprintable() and str(GraphMendError(said)) == said
    assert printable(message, keep="\n").count("\n") == message.count("\n")


def test_values_are_short_in_a_message() -> None:
    assert shown("a\nb") == r"'a\nb'" and shown(np.ones((2, 2))) == "array([[1., 1.], [1., 1.]])"
    assert shown(10**400) == f"1{'0' * 79}..." and len(shown(list(range(10**4)))) < 100
    assert shown(10**5000) == "a int" and shown(Mute()) == "a Mute"


@pytest.mark.parametrize("value", [*NOTHING, 0.5, 1.0, -1, -(10**30)], ids=shown)
def test_what_is_no_whole_number(value: Any) -> None:
    with pytest.raises(GraphMendError, match=r"^steps must be a whole number of at least 0 \(got "):
        whole_number("steps", value)


@pytest.mark.parametrize("value", [*NOTHING, math.inf, -math.inf, 10**400, -(10**400), -0.1], ids=lambda v: shown(v, 9))
def test_what_is_no_finite_number(value: Any) -> None:
    with pytest.raises(GraphMendError, match=r"^lr must be a finite number of at least 0 \(got "):
        real_number("lr", value, 0)


RANGES: dict[str, tuple[dict[str, float], tuple[float, ...], tuple[float, ...]]] = {
    "a finite number": ({}, (-1e300, 0, 1e300), ()),
    "a finite number above 0": ({"above": 0}, (1e-300, 1), (0, -1)),
    "a finite number of at most 2": ({"high": 2}, (-1, 2), (2.1,)),
    "a finite number below 2": ({"below": 2}, (1.9,), (2,)),
    "a number in [0, 1]": ({"low": 0, "high": 1}, (0, 1), (-0.1, 1.1)),
    "a number in (0, 1]": ({"above": 0, "high": 1}, (0.1, 1), (0, 1.1)),
    "a number in [0, 1)": ({"low": 0, "below": 1}, (0, 0.9), (-0.1, 1)),
}


@pytest.mark.parametrize("wanted", RANGES)
def test_a_range_is_named_as_it_is(wanted: str) -> None:
    limits, good, bad = RANGES[wanted]
    assert [real_number("p", value, **limits) for value in good] == list(good)
    for value in (*bad, math.nan):
        with pytest.raises(GraphMendError) as raised:
            real_number("p", value, **limits, hint="look it up")
        assert str(raised.value) == f"p must be {wanted} (got {value!r}); look it up"


@pytest.mark.parametrize("value", [*NOTHING, 1.0, -1, 2**32], ids=shown)
def test_what_is_no_seed_of_32_bits(value: Any) -> None:
    with pytest.raises(GraphMendError, match=r"seed must be a whole number from 0 to 2\*\*32 - 1"):
        seed_number("seed", value, bits=32)
    assert seed_number("seed", np.int64(2**32 - 1), bits=32) == 2**32 - 1


@pytest.mark.parametrize("value", [NOTHING[0], *NOTHING[3:], 0, 1], ids=shown)
def test_what_is_neither_true_nor_false(value: Any) -> None:
    with pytest.raises(GraphMendError, match=r"progress must be True or False"):
        switch("progress", value)
    assert switch("progress", np.False_) is False and switch("progress", True) is True


@pytest.mark.parametrize("value", [None, 1, b"x", ["a"]], ids=shown)
def test_what_is_no_text(value: Any) -> None:
    with pytest.raises(GraphMendError, match="embedding must be a text"):
        text("embedding", value)


@pytest.mark.parametrize("name", ["c", None, {}, [], torch.ones(2), np.array(["a", "b"])], ids=shown)
def test_a_choice_that_there_is_not(name: Any) -> None:
    for look_up in (lambda: choose("kind", name, {"b": 1, "a": 2}), lambda: one_of("kind", name, ("b", "a"))):
        with pytest.raises(GraphMendError, match=r"unknown kind .*; choose one of a, b$"):
            look_up()
    assert choose("kind", "b", {"b": 1}) == 1 and one_of("kind", "a", ("a", "b")) == "a" and listed("ba") == "a, b"


@pytest.mark.parametrize("value", [(), [], None, 3, "12", {}, torch.ones(2)], ids=shown)
def test_what_is_no_list_of_numbers(value: Any) -> None:
    with pytest.raises(GraphMendError, match="values must be numbers in a list, at least one"):
        real_numbers("values", value)
    with pytest.raises(GraphMendError, match=r"values\[1\] must be a number in \[0, 1\] \(got 2\)"):
        real_numbers("values", [1, 2], low=0, high=1)


@dataclass(frozen=True)
class Walk:
    length: Any = 3
    limit: Any = None

    def __post_init__(self) -> None:
        check_fields(self, whole_number, "length")
        check_fields(self, real_number, "limit", above=0, optional=True)


@dataclass(frozen=True)
class Trip:
    length: Annotated[int, at_least(1)] = 3
    share: Annotated[float | None, within(0, 1)] = None
    kind: Annotated[str, among(("a", "b"))] = "a"
    steps: int = 2
    limit: float | int = 0.5
    name: str | None = None
    is_random: bool = False
    free: Any = None

    def __post_init__(self) -> None:
        read_fields(self)


def test_annotations_say_how_fields_are_read() -> None:
    trip = Trip(np.int64(2), np.float32(0.5), is_random=np.True_, free="anything")  # type: ignore[arg-type]
    assert (type(trip.length), type(trip.share), trip.is_random, trip.free) == (int, float, True, "anything")
    assert Trip() == Trip(3, None, "a", 2, 0.5)
    wrong: dict[str, Any] = {"length": 0, "share": 1.5, "kind": "c", "steps": -1, "name": 3, "is_random": 1}
    for name, value in wrong.items():
        with pytest.raises(GraphMendError, match=rf"{name} .*{value}"):
            Trip(**{name: value})


def test_fields_of_a_frozen_dataclass_are_read_and_kept() -> None:
    walk = Walk(np.int32(4), np.float32(0.5))
    assert (type(walk.length), walk.length, type(walk.limit), walk.limit) == (int, 4, float, 0.5)
    assert Walk().limit is None
    with pytest.raises(GraphMendError, match=r"^Walk's length must be a whole number of at least 0 \(got None\)$"):
        Walk(None)
    with pytest.raises(GraphMendError, match=r"^Walk's limit must be a finite number above 0 \(got 0\)$"):
        Walk(3, 0)
