"""Results are kept only while a model is frozen, and only as long as they are right."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmend.engine.cache import forgetting, remembered, remembering, sharing


def counted(tensor: Tensor, calls: list[int]) -> Tensor:
    def compute() -> Tensor:
        calls.append(1)
        return tensor * 2

    return remembered("twice", (tensor,), compute)


def test_once_per_tensor_and_version() -> None:
    x, calls = torch.ones(2), list[int]()
    counted(x, calls), counted(x, calls)
    assert len(calls) == 2  # outside nothing is kept
    with remembering():
        assert counted(x, calls) is counted(x, calls)
        assert len(calls) == 3
        x.add_(1)
        assert float(counted(x, calls)[0]) == 4 and len(calls) == 4
        with forgetting():
            counted(x, calls)
        assert len(calls) == 5
        counted(x.clone(), calls)
        assert len(calls) == 6
        counted(x.requires_grad_(), calls), counted(x, calls)
        assert len(calls) == 8
    with remembering():
        counted(x.detach(), calls)
        assert len(calls) == 9


def test_what_was_made_of_a_dead_tensor_is_forgotten() -> None:
    calls: list[int] = []
    with remembering():
        for _ in range(5):
            assert float(counted(torch.full((1,), 3.0), calls)[0]) == 6
    assert len(calls) == 5


def test_what_wants_gradients_is_shared_within_one_loss() -> None:
    x, calls = torch.ones(2, requires_grad=True), list[int]()
    with sharing():  # outside of remembering
        counted(x, calls), counted(x, calls)
    assert len(calls) == 2
    with remembering():
        for number in (3, 4):  # the graph of the first loss is gone when the second is computed
            with sharing():
                first, second = counted(x, calls), counted(x, calls)
                assert first is second and len(calls) == number
            assert torch.equal(torch.autograd.grad((first + second).sum(), x)[0], torch.full((2,), 4.0))
        with sharing(), torch.no_grad():
            assert counted(x, calls) is not counted(x, calls)
        with sharing():
            assert counted(x, calls).requires_grad  # not what was made without
            with forgetting():
                counted(x, calls), counted(x, calls)
        assert len(calls) == 9
