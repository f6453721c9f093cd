"""Masks: booleans, or 0 and 1 of any integer type; everything else is one clear sentence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphmend import GraphMendError
from graphmend.outputs import read_mask
from support.graphs import DEVICES

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
MASK = torch.tensor([True, False, True, True])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", (torch.bool, *INTEGERS))
def test_a_mask_means_the_same_in_every_type(dtype: torch.dtype, device: str) -> None:
    mask = read_mask(MASK.to(device, dtype), 4)
    assert mask.device.type == device and mask.dtype == torch.bool
    assert torch.equal(mask.cpu(), MASK)


@pytest.mark.parametrize("kind", ["bool", "uint8", "uint16", "int32", "int64"])
def test_arrays_are_masks_like_tensors(kind: str) -> None:
    array = MASK.numpy().astype(kind)
    array.flags.writeable = False  # as those of a file may be
    assert torch.equal(read_mask(array, 4), MASK)


def test_a_boolean_mask_is_not_copied() -> None:
    assert read_mask(MASK, 4) is MASK


def test_the_size_may_be_unknown_and_the_mask_empty_where_the_caller_says_so() -> None:
    assert torch.equal(read_mask(MASK.long()), MASK)
    assert not read_mask(torch.zeros(4, dtype=torch.uint8), 4, may_be_empty=True).any()


@pytest.mark.parametrize(
    ("mask", "message"),
    (
        (MASK.float(), "must be boolean, or 0 and 1"),
        (MASK * 1j, "must be boolean, or 0 and 1"),
        (MASK[:3], "one entry per node, 4 in all .*index_to_mask"),
        (MASK.view(4, 1), "one entry per node, 4 in all"),
        (torch.ones(4, 10), r"one entry per node, 4 in all .* choose one of its 10 columns, such as test_mask\[:, 0\]"),
        (torch.tensor(True), "one entry per node, 4 in all"),
        (torch.tensor([0, 2, 1, 1]), r"0 and 1 only \(got test_mask\[1\] = 2\)"),
        (torch.tensor([0, -1, 1, 1]), r"0 and 1 only \(got test_mask\[1\] = -1\)"),
        (torch.zeros(4, dtype=torch.bool), "marks no node"),
        (torch.zeros(4, dtype=torch.uint8), "marks no node"),
        (MASK.to_sparse(), "pass a dense tensor"),
        (MASK.to("meta"), "on the meta device"),
        ([True, False, True, True], "must be a boolean tensor"),
        (MASK.numpy().astype(float), "must be a boolean tensor"),
        (np.array(["a", "b", "c", "d"]), "must be a boolean tensor"),
    ),
)
def test_what_is_no_mask_is_refused(mask: object, message: str) -> None:
    with pytest.raises(GraphMendError, match=message):
        read_mask(mask, 4, "test_mask")


@pytest.mark.parametrize("of", ["column", "edge"])
def test_masks_of_other_things_are_named_after_them(of: str) -> None:
    with pytest.raises(GraphMendError, match=f"one entry per {of}, 5 in all"):
        read_mask(MASK, 5, "chosen", of=of)
    with pytest.raises(GraphMendError, match=f"marks no {of}"):
        read_mask(MASK ^ MASK, 4, "chosen", of=of)
