"""Labels: one whole number per node that counts, and no memory for a class that cannot be."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from graphmend import GraphMendError
from graphmend.outputs import check_classes, count_classes, read_labels

LABELS = torch.tensor([2, 0, 1, 2])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_labels_mean_the_same_in_every_type_and_as_a_column(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    labels = read_labels(LABELS.to(dtype).view(shape), 4)
    assert torch.equal(labels, LABELS) and labels.dtype == torch.int64


@pytest.mark.parametrize("missing", [torch.nan, -1.0, 0.5, torch.inf])
def test_what_stands_outside_of_the_mask_does_not_matter(missing: float) -> None:
    mask = torch.tensor([True, True, False, True])
    y = torch.where(mask, LABELS.double(), missing)
    assert read_labels(y, 4, mask).tolist() == [2, 0, 2]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (LABELS.tolist(), "must be a tensor of one label per node"),
        (LABELS[:3], r"one label per node, 4 in all \(got shape \(3,\)\)"),
        (LABELS.view(4, 1).expand(4, 2), r"\(got shape \(4, 2\)\); turn one-hot rows into classes"),
        (LABELS.view(2, 2), r"\(got shape \(2, 2\)\)"),
        (LABELS * 1j, "must hold whole numbers"),
        (LABELS + 0.5, "holds 2.5, which is no class"),
        (torch.tensor([0.0, torch.nan, 1.0, 2.0]), "holds nan, which is no class"),
        (torch.tensor([0.0, torch.inf, 1.0, 2.0]), "holds inf, which is no class"),
        (LABELS.to("meta"), "on the meta device"),
        (LABELS.to_sparse(), "pass a dense tensor"),
    ],
)
def test_what_is_no_label_is_refused(y: Any, message: str) -> None:
    with pytest.raises(GraphMendError, match=message):
        read_labels(y, 4, name="data.y")


def test_classes_are_checked_against_their_number() -> None:
    check_classes(LABELS, 3)
    for wrong, message in (
        (LABELS + 1, r"labels must lie in 0\.\.2 \(got 1\.\.3\); mask unlabelled"),
        (LABELS - 1, r"got -1\.\.1"),
    ):
        with pytest.raises(GraphMendError, match=message):
            check_classes(wrong, 3)


def test_classes_are_counted_as_far_as_the_graph_can_show_them() -> None:
    assert count_classes(LABELS, 4) == 3
    assert count_classes(torch.tensor([1]), 1) == 2
    for wrong in (torch.tensor([0, 20_000_000]), torch.tensor([0, -1])):
        with pytest.raises(GraphMendError, match=r"classes in y must lie in 0\.\.3 .* number the classes from 0"):
            count_classes(wrong, 4)
