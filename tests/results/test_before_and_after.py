"""Predictions before and after, counted."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphmend.errors import GraphMendError
from graphmend.results.comparison import compare

CLASSES = st.lists(st.tuples(*[st.integers(0, 2)] * 3, st.booleans()), min_size=1, max_size=30)


def scores(classes: Any) -> Tensor:
    return F.one_hot(torch.as_tensor(classes), 3).float()


@given(CLASSES)
def test_counts_are_those_of_a_loop(rows: list[tuple[int, int, int, bool]]) -> None:
    if not any(chosen for *_, chosen in rows):
        rows = [(*rows[0][:3], True), *rows[1:]]
    old, new, y, mask = (torch.tensor(column) for column in zip(*rows, strict=True))
    found = compare(scores(old), scores(new), y, mask)
    chosen = [(a, b, c) for a, b, c, is_chosen in rows if is_chosen]
    assert found.nodes == len(chosen) and found.changed == sum(a != b for a, b, _ in chosen)
    assert found.correct_before == sum(a == c for a, _, c in chosen)
    assert found.correct_after == sum(b == c for _, b, c in chosen)
    assert found.helped == sum(a != c and b == c for a, b, c in chosen)
    assert found.harmed == sum(a == c and b != c for a, b, c in chosen)
    for (a, b), number in found.moves.items():
        assert a != b and number == sum((p, q) == (a, b) for p, q, _ in chosen)
    assert list(found.moves.values()) == sorted(found.moves.values(), reverse=True)
    assert found.accuracy_after == found.correct_after / len(chosen)


def test_it_reads_as_two_sentences_and_survives_json() -> None:
    found = compare(scores([0, 0, 0, 1, 2]), scores([1, 1, 0, 1, 0]), torch.tensor([1, 1, 0, 1, 2]))
    assert str(found) == (
        "3 of 5 predictions changed: 0 -> 1 (2), 2 -> 0 (1)\naccuracy 60.0% before, 80.0% after: 2 helped, 1 harmed"
    )
    summary = json.loads(json.dumps(found.summary()))
    assert summary["moves"][0] == {"before": 0, "after": 1, "nodes": 2} and summary["accuracy_after"] == 0.8
    assert "0 -&gt; 1" in found._repr_html_()
    without = compare(scores([0, 1]), scores([0, 1]))
    assert str(without) == "0 of 2 predictions changed" and without.accuracy_before is None is without.helped


def test_many_moves_are_summed_up() -> None:
    old, new = torch.arange(8), torch.arange(8).roll(1)
    text = str(compare(F.one_hot(old), F.one_hot(new)))
    assert text.endswith("3 other moves") and "\n" not in text


@pytest.mark.parametrize("y", [[1, 0], [[1], [0]], [1.0, 0.0], [True, False], torch.tensor([1, 0], dtype=torch.uint8)])
def test_labels_in_every_usual_form(y: Any) -> None:
    assert compare(scores([0, 0]), scores([1, 0]), y).accuracy_after == 1.0


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 3], r"y\[1\] = 3 is none of the model's classes, 0 to 2; give a mask"),
        ([-1, 0], r"y\[0\] = -1 is none"),
        ([0.5, 0], r"y\[0\] = 0.5 is none"),
        ([float("nan"), 0], r"y\[0\] = nan is none"),
        ([0], r"one class per node, 2 in all \(got shape \(1,\)\)"),
        ([[0, 1], [1, 0]], r"got shape \(2, 2\)"),
        (["a", "b"], "y must be a tensor of one class per node"),
        ({}, "y must be a tensor of one class per node"),
        ([1j, 0], "whole numbers"),
    ],
)
def test_labels_that_are_none_are_named(y: Any, message: str) -> None:
    with pytest.raises(GraphMendError, match=message):
        compare(scores([0, 0]), scores([1, 0]), y)


def test_labels_outside_of_the_mask_may_be_anything() -> None:
    y, mask = torch.tensor([-1, 0]), torch.tensor([False, True])
    assert compare(scores([0, 0]), scores([1, 0]), y, mask).nodes == 1
    with pytest.raises(GraphMendError, match="index_to_mask"):
        compare(scores([0, 0, 1]), scores([1, 0, 1]), None, torch.tensor([1, 2]))
