"""The losses of attacks against hand formulas."""

from __future__ import annotations

import math

import pytest
import torch

from graphmend.lab.attacks.target import masked_cross_entropy, tanh_margin
from graphmend.outputs import class_scores

LOGITS = torch.tensor([[2.0, 0.5, -1.0], [0.0, 1.0, 3.0], [0.2, 0.1, 0.0]], dtype=torch.float64)


LABELS = torch.tensor([0, 1, 0])


def test_tanh_margin_by_hand() -> None:
    expected = (math.tanh(-1.5) + math.tanh(2.0) + math.tanh(-0.1)) / 3
    assert float(tanh_margin(LOGITS, LABELS)) == pytest.approx(expected, abs=1e-12)
    assert float(tanh_margin(LOGITS.log_softmax(1), LABELS)) == pytest.approx(expected, abs=1e-12)


def test_masked_cross_entropy_by_hand() -> None:
    right = [
        -math.log(math.exp(a) / sum(math.exp(v) for v in row))
        for row, a in (([2.0, 0.5, -1.0], 2.0), ([0.2, 0.1, 0.0], 0.2))
    ]
    assert float(masked_cross_entropy(LOGITS, LABELS)) == pytest.approx(sum(right) / 2, abs=1e-12)
    wrong = torch.tensor([1, 1, 2])
    every = -LOGITS.log_softmax(1).gather(1, wrong[:, None]).mean()
    assert float(masked_cross_entropy(LOGITS, wrong)) == pytest.approx(float(every), abs=1e-12)


def test_single_logits_are_two_classes() -> None:
    z = torch.tensor([[1.0], [-2.0]])
    assert torch.equal(class_scores(z), torch.tensor([[0.0, 1.0], [0.0, -2.0]]))
    assert float(tanh_margin(class_scores(z), torch.tensor([1, 1]))) == pytest.approx(
        (math.tanh(-1) + math.tanh(2)) / 2
    )
