from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphmend.errors import GraphMendError
from graphmend.outputs import predictions
from graphmend.results.scores import METRICS, score, scores

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [0.0, 1.0, 2.0], [1.0, 0.5, 0.0]])
Y = torch.tensor([0, 1, 1, 2])


def auc(value: Tensor, positive: Tensor) -> float:
    """Share of (positive, negative) pairs in the right order, ties half: the definition, pair by pair."""
    pairs = list(itertools.product(value[positive].tolist(), value[~positive].tolist()))
    return sum(1.0 if p > n else 0.5 if p == n else 0.0 for p, n in pairs) / len(pairs)


def macro_f1(predicted: list[int], y: list[int]) -> float:
    per_class = []
    for label in sorted(set(predicted) | set(y)):
        hit = sum(p == label == t for p, t in zip(predicted, y, strict=True))
        per_class.append(2 * hit / (predicted.count(label) + y.count(label)))
    return sum(per_class) / len(per_class)


def test_by_hand() -> None:
    assert predictions(LOGITS).tolist() == [0, 1, 2, 0]
    assert score("accuracy", LOGITS, Y) == 0.5
    # class 0: P 1/2, R 1 -> 2/3; class 1: P 1, R 1/2 -> 2/3; class 2: 0
    assert score("macro_f1", LOGITS, Y) == pytest.approx(4 / 9)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 5), st.integers(4, 30), st.integers(0, 10_000))
def test_against_definitions(classes: int, nodes: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(-3, 4, (nodes, classes), generator=generator).float()  # with many ties
    y = torch.randint(classes, (nodes,), generator=generator)
    y[:2] = torch.tensor([0, 1])
    values = scores(logits, y)
    predicted = logits.argmax(1)
    assert values["accuracy"] == pytest.approx((predicted == y).double().mean().item())
    assert values["macro_f1"] == pytest.approx(macro_f1(predicted.tolist(), y.tolist()))
    probability = logits.double().softmax(1)
    labels = [1] if classes == 2 else sorted(set(y.tolist()))
    expected = sum(auc(probability[:, label], y == label) for label in labels) / len(labels)
    assert values["roc_auc"] == pytest.approx(expected)


def test_log_probabilities_score_like_logits() -> None:
    assert scores(LOGITS.log_softmax(1), Y) == scores(LOGITS, Y)


@pytest.mark.parametrize("shape", [(5,), (5, 1)])
def test_single_logit(shape: tuple[int, ...]) -> None:
    logits = torch.tensor([0.5, -1.0, 0.0, 2.0, -3.0])
    y = torch.tensor([1, 1, 0, 1, 0])
    assert predictions(logits.view(shape)).tolist() == [1, 0, 0, 1, 0]
    assert score("accuracy", logits.view(shape), y) == 0.8
    assert score("roc_auc", logits.view(shape), y.view(-1, 1)) == pytest.approx(auc(logits, y == 1))
    both = torch.stack([torch.zeros(5), logits], dim=1)
    both[2, 0] = 1e-3  # a tie goes to class 0 in both forms
    assert scores(both, y)["accuracy"] == 0.8


def test_sigmoid_of_large_logits_keeps_their_order() -> None:
    logits = torch.tensor([20.0, 21.0, 22.0, 23.0])  # sigmoid in float32 is exactly 1 for all of them
    assert score("roc_auc", logits, torch.tensor([0, 0, 1, 1])) == 1.0


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_mask(metric: str) -> None:
    mask = torch.tensor([True, True, True, False])
    expected = score(metric, LOGITS[:3], Y[:3])
    for kind in (torch.bool, torch.uint8, torch.int64):
        assert score(metric, LOGITS, Y, mask.to(kind)) == expected
    changed = Y.clone()
    changed[3] = -1  # an unlabelled node outside the mask does not matter
    assert score(metric, LOGITS, changed, mask) == expected
    missing = torch.tensor([0.0, 1.0, 1.0, torch.nan])
    assert score(metric, LOGITS, missing, mask) == expected


def test_undefined_is_an_error_in_score_and_absent_in_scores() -> None:
    same = torch.zeros(4, dtype=torch.long)
    with pytest.raises(GraphMendError, match="only class 0 occurs"):
        score("roc_auc", LOGITS, same)
    assert set(scores(LOGITS, same)) == {"accuracy", "macro_f1"}
    nobody = torch.zeros(4, dtype=torch.bool)
    with pytest.raises(GraphMendError, match="mask is empty"):
        score("accuracy", LOGITS, Y, nobody)
    assert scores(LOGITS, Y, nobody) == {}


@pytest.mark.parametrize(
    ("logits", "y", "mask", "message"),
    [
        (LOGITS, Y[:3], None, "one label per node"),
        (LOGITS, Y, torch.ones(3, dtype=torch.bool), "one entry per node, 4 in all"),
        (LOGITS, torch.tensor([0, 1, 1, 20_000_000]), None, r"0\.\.2 \(got 0\.\.20000000\)"),
        (LOGITS, Y + 1, None, "0..2"),
        (LOGITS, Y - 1, None, "mask unlabelled"),
        (LOGITS * float("nan"), Y, None, "NaN"),
        (LOGITS[None], Y, None, "shape"),
    ],
)
def test_bad_input(logits: Tensor, y: Tensor, mask: Tensor | None, message: str) -> None:
    for function in (lambda: score("accuracy", logits, y, mask), lambda: scores(logits, y, mask)):
        with pytest.raises(GraphMendError, match=message):
            function()


def test_unknown_metric_lists_the_choices() -> None:
    with pytest.raises(GraphMendError, match="accuracy, macro_f1, roc_auc"):
        score("auc", LOGITS, Y)


def test_inputs_with_gradients_are_left_alone() -> None:
    logits = LOGITS.clone().requires_grad_()
    before = logits.detach().clone()
    scores(logits, Y)
    assert torch.equal(logits, before)
    assert logits.requires_grad


@pytest.mark.parametrize("logits", [None, 1.0, [[1.0, 2.0]], "logits", np.ones((3, 2))], ids=repr)
def test_logits_that_are_no_tensor_are_named(logits: Any) -> None:
    for compute in (predictions, lambda scores_: score("accuracy", scores_, torch.zeros(3, dtype=torch.long))):
        with pytest.raises(GraphMendError, match="logits must be a tensor of one row per node"):
            compute(logits)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn], ids=str)
def test_predictions_of_any_type_of_number(kind: torch.dtype) -> None:
    assert predictions(torch.tensor([[0.0, 1.0], [1.0, 0.0]]).to(kind)).tolist() == [1, 0]
