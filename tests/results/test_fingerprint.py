"""The fingerprint against its definition in Python's own integers."""

from __future__ import annotations

import hashlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphmend.results.fingerprint import CHUNK, fingerprint, fingerprint_of
from support.graphs import DEVICES, labelled, rng

MASK = 2**64 - 1


def factor(i: int) -> int:
    """SplitMix64, made odd."""
    z = (i + 1) * 0x9E3779B97F4A7C15 & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return (z ^ z >> 31) | 1


def by_hand(name: str, value: Tensor) -> str:
    raw = value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    raw += b"\0" * (-len(raw) % 4)
    words = [int.from_bytes(raw[k : k + 4], "little", signed=True) for k in range(0, len(raw), 4)]
    sums = [
        sum(word * factor(i) for i, word in enumerate(words[k : k + CHUNK])) & MASK for k in range(0, len(words), CHUNK)
    ]
    digest = hashlib.sha256(f"{name} {value.dtype} {tuple(value.shape)};".encode())
    digest.update(b"".join(part.to_bytes(8, "little") for part in sums))
    return digest.hexdigest()


VALUES = {
    "floats": torch.randn(7, 5, generator=rng()),
    "doubles": torch.randn(3, 4, generator=rng(), dtype=torch.float64),
    "halves": torch.randn(3, 3, generator=rng()).half(),
    "bfloats": torch.randn(5, 1, generator=rng()).bfloat16(),
    "longs": torch.randint(100, (2, 9), generator=rng()),
    "flags": torch.rand(13, generator=rng()) < 0.5,
    "a byte": torch.tensor([7], dtype=torch.uint8),
    "nothing": torch.empty(0, 4),
    "transposed": torch.randint(100, (2, 9), generator=rng()).t(),
    "an odd offset": torch.randn(10, generator=rng())[1:],
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_definition(value: Tensor, device: str) -> None:
    assert fingerprint({"x": value.to(device)}) == by_hand("x", value)


def test_several_chunks_and_a_rest() -> None:
    value = torch.randint(-(2**62), 2**62, (2 * CHUNK + 3,), generator=rng())
    assert fingerprint({"x": value}) == by_hand("x", value)


@given(st.integers(0, 34), st.integers(1, 2**31 - 1))
def test_every_bit_counts(place: int, change: int) -> None:
    value = VALUES["floats"].clone()
    bits = value.view(torch.int32).view(-1)
    bits[place] ^= change
    assert fingerprint({"x": value}) != fingerprint({"x": VALUES["floats"]})


def test_name_type_and_shape_count() -> None:
    x = torch.zeros(4, 2)
    others = [{"y": x}, {"x": x.view(2, 4)}, {"x": x.view(torch.int32)}, {"x": x, "y": x}]
    assert len({fingerprint(tensors) for tensors in [{"x": x}, *others]}) == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_structured_changes_are_seen(dtype: torch.dtype) -> None:
    """Signs, ones that move and rows that swap, as in features of words: only a few bits of a word differ."""
    x = torch.randn(40, 6, generator=rng(), dtype=dtype)
    words = (torch.rand(40, 6, generator=rng()) < 0.1).to(dtype)
    seen = {fingerprint({"x": other}) for other in (x, -x, x.abs(), x.flip(0), x.flip(1), words, 1 - words)}
    assert len(seen) == 7
    moved = set()
    for place in range(240):
        one = torch.zeros(240, dtype=dtype)
        one[place] = 1
        moved.add(fingerprint({"x": one}))
    assert len(moved) == 240
    flipped = set()
    for i in range(0, 60, 2):
        for j in range(i + 1, 60):
            two = x.view(-1).clone()
            two[[i, j]] *= -1
            flipped.add(fingerprint({"x": two}))
    assert len(flipped) == sum(60 - i - 1 for i in range(0, 60, 2))


# ---------------------------------------------------------------- of graphs


@pytest.mark.parametrize("device", DEVICES)
def test_a_graph_is_its_features_edges_and_what_belongs_to_them(device: str) -> None:
    data = labelled()
    data.edge_weight = torch.rand(data.num_edges, generator=rng())
    own = fingerprint_of(data)
    assert own == fingerprint_of(data.clone().to(device))
    for name in ("x", "edge_index", "edge_weight"):
        other = data.clone()
        other[name][-1, ...] = other[name].flip(0)[-1, ...] + 1
        assert fingerprint_of(other) != own, name
    other = data.clone()
    other.y, other.name, other.train_mask = None, "the same graph", ~data.train_mask
    assert fingerprint_of(other) == own


def test_attributes_of_edges_may_be_named() -> None:
    """A mended graph may have as many edges as some other attribute has entries."""
    data = labelled()
    plain = fingerprint_of(data)
    data.edge_weight = torch.ones(data.num_edges)
    assert fingerprint_of(data, []) == plain != fingerprint_of(data) == fingerprint_of(data, ["edge_weight"])
