"""Masks: booleans, or 0 and 1 of any integer type; everything else is one clear sentence."""

from __future__ import annotations

import pytest
import torch

from graphmend import GraphMendError
from graphmend.graph.masks import read_mask

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
MASK = torch.tensor([True, False, True, True])


@pytest.mark.parametrize("dtype", (torch.bool, *INTEGERS))
def test_a_mask_means_the_same_in_every_type(dtype: torch.dtype) -> None:
    assert torch.equal(read_mask(MASK.to(dtype), 4), MASK)


@pytest.mark.parametrize(
    ("mask", "message"),
    (
        (MASK.float(), "must be boolean, or 0 and 1"),
        (MASK[:3], "one entry per node, 4 in all"),
        (MASK.view(4, 1), "one entry per node, 4 in all"),
        (torch.tensor([0, 2, 1, 1]), r"0 and 1 only \(got test_mask\[1\] = 2\)"),
        (torch.tensor([0, -1, 1, 1]), r"0 and 1 only \(got test_mask\[1\] = -1\)"),
        (torch.zeros(4, dtype=torch.bool), "marks no node"),
        (torch.zeros(4, dtype=torch.uint8), "marks no node"),
        ([True, False, True, True], "must be a boolean tensor"),
    ),
)
def test_what_is_no_mask_is_refused(mask: object, message: str) -> None:
    with pytest.raises(GraphMendError, match=message):
        read_mask(mask, 4, "test_mask")
