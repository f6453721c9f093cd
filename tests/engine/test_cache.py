"""Results are kept only while a model is frozen, and only as long as they are right."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmend.engine.cache import cached, caching, sharing_gradients, without_cache


def twice(tensor: Tensor, calls: list[int]) -> Tensor:
    """Twice the tensor; ``calls`` counts how often that was computed."""

    def compute() -> Tensor:
        calls.append(1)
        return tensor * 2

    return cached("twice", (tensor,), compute)


def test_outside_nothing_is_kept() -> None:
    x, calls = torch.ones(2), list[int]()
    assert twice(x, calls) is not twice(x, calls) and len(calls) == 2


def test_once_per_tensor_and_version() -> None:
    x, calls = torch.ones(2), list[int]()
    with caching():
        assert twice(x, calls) is twice(x, calls) and len(calls) == 1
        x.add_(1)
        assert float(twice(x, calls)[0]) == 4 and len(calls) == 2
        twice(x.clone(), calls)
        assert len(calls) == 3
    with caching():  # a scope of its own
        twice(x, calls)
    assert len(calls) == 4


def test_names_tell_results_apart() -> None:
    x = torch.ones(2)
    with caching():
        results = [cached(name, (x,), lambda name=name: name) for name in ("a", ("a", 1), "a", ("a", 2))]
    assert results == ["a", ("a", 1), "a", ("a", 2)]


def test_all_tensors_count() -> None:
    x, y, calls = torch.ones(2), torch.ones(2), list[int]()
    with caching():
        for _ in range(2):
            cached("sum", (x, y), lambda: calls.append(1))
        y.add_(1)
        cached("sum", (x, y), lambda: calls.append(1))
    assert len(calls) == 2


def test_inside_out_of_it() -> None:
    x, calls = torch.ones(2), list[int]()
    with caching():
        first = twice(x, calls)
        with without_cache():
            assert twice(x, calls) is not first and len(calls) == 2
            with sharing_gradients():
                twice(x, calls)
            assert len(calls) == 3
        assert twice(x, calls) is first


def test_what_was_made_of_a_dead_tensor_is_forgotten() -> None:
    calls: list[int] = []
    with caching():
        for _ in range(5):  # each may lie at the place of the last one
            assert float(twice(torch.full((1,), 3.0), calls)[0]) == 6
    assert len(calls) == 5


def test_inference_tensors_have_no_version() -> None:
    calls: list[int] = []
    with torch.inference_mode():
        x = torch.ones(2)
    with caching():
        twice(x, calls), twice(x, calls)
    assert len(calls) == 2


def test_what_carries_a_gradient_is_shared_within_one_loss() -> None:
    x, calls = torch.ones(2, requires_grad=True), list[int]()
    with sharing_gradients():  # nothing is kept outside of caching
        twice(x, calls), twice(x, calls)
    assert len(calls) == 2
    with caching():
        twice(x, calls), twice(x, calls)  # not one loss
        assert len(calls) == 4
        for number in (5, 6):  # the graph of the first loss is gone when the second is computed
            with sharing_gradients():
                first, second = twice(x, calls), twice(x, calls)
                assert first is second and len(calls) == number
            assert torch.equal(torch.autograd.grad((first + second).sum(), x)[0], torch.full((2,), 4.0))
        with sharing_gradients(), torch.no_grad():
            assert twice(x, calls) is not twice(x, calls)
        with sharing_gradients():
            assert twice(x, calls).requires_grad  # not what was made without
            with without_cache():
                twice(x, calls), twice(x, calls)
    assert len(calls) == 11


def test_constants_are_kept_beyond_one_loss() -> None:
    x, calls = torch.ones(2), list[int]()
    with caching():
        for _ in range(3):
            with sharing_gradients():
                twice(x, calls)
    assert len(calls) == 1


def test_a_failure_ends_the_scope() -> None:
    x, calls = torch.ones(2), list[int]()
    try:
        with caching(), sharing_gradients():
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        twice(x, calls), twice(x, calls)
    assert len(calls) == 2
