"""Products of the features with constant matrices: computed once, right after every change, forgotten in time."""

from __future__ import annotations

import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmend.engine.linear_maps import LinearMaps, RowGradient
from graphmend.engine.tuning import MAX_KEPT_MAPS
from support.graphs import rng

N, IN = 6, 4
W = torch.randn(IN, 3, generator=rng(1), dtype=torch.float64)
LINEAR = nn.Linear(IN, 3).double().requires_grad_(False)


def features(requires_grad: bool = False) -> Tensor:
    return torch.randn(N, IN, generator=rng(), dtype=torch.float64).requires_grad_(requires_grad)


def whole(gradient: RowGradient) -> Tensor:
    return gradient.rows(0, N, torch.empty(N, IN, dtype=torch.float64))


# ---------------------------------------------------------------- products


def test_a_product_is_computed_once() -> None:
    maps = LinearMaps(features())
    assert not maps.is_used
    first = maps.product(torch.mm, W)
    assert maps.is_used and torch.equal(first, maps.x @ W) and maps.product(torch.mm, W) is first
    weight, bias = LINEAR.weight, LINEAR.bias
    assert torch.equal(maps.product(F.linear, weight, bias), LINEAR(maps.x))
    assert torch.equal(maps.product(F.linear, weight), maps.x @ weight.t())  # without the bias it is another map


def test_within_a_loss_it_is_one_variable() -> None:
    maps = LinearMaps(features(requires_grad=True))
    first = maps.product(torch.mm, W)
    assert first.is_leaf and first.requires_grad and maps.product(torch.mm, W) is first
    with torch.no_grad():
        assert not maps.product(torch.mm, W).requires_grad
    maps.begin_loss()
    second = maps.product(torch.mm, W)
    assert second is not first and torch.equal(second, first)


def test_changed_weights_make_another_product() -> None:
    maps, weight = LinearMaps(features()), W.clone()
    before = maps.product(torch.mm, weight)
    weight.mul_(2)
    torch.testing.assert_close(maps.product(torch.mm, weight), 2 * before)


def test_a_product_that_was_written_to_is_computed_anew() -> None:
    maps = LinearMaps(features())
    expected = maps.product(torch.mm, W).clone()
    maps.product(torch.mm, W).zero_()
    assert torch.equal(maps.product(torch.mm, W), expected)


def test_products_are_told_apart_by_what_the_caller_casts_to() -> None:
    x, weight = features().float(), W.float()
    maps = LinearMaps(x.requires_grad_())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = maps.product(torch.mm, weight)
        gradient = maps.gradient(half.float().sum())
    assert half.dtype == torch.bfloat16 and maps.product(torch.mm, weight).dtype == torch.float32
    rows = gradient.rows(0, N, torch.empty(N, IN))
    torch.testing.assert_close(rows, weight.sum(1).expand(N, -1), atol=0.05, rtol=0.02)


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("number", [0, 1, 3])
def test_the_gradient_is_put_together_from_all_products(number: int, direct: bool) -> None:
    x = features(requires_grad=True)
    maps, weights = LinearMaps(x), [W, LINEAR.weight, 2 * W][:number]

    def loss(x: Tensor, products: list[Tensor]) -> Tensor:
        parts = [(k + 1) * product.tanh().square().sum() for k, product in enumerate(products)]
        return torch.stack([*parts, x.sin().sum() * direct]).sum()

    functions = [torch.mm if weight.size(0) == IN else F.linear for weight in weights]
    ours = loss(x, [maps.product(f, w) for f, w in zip(functions, weights, strict=True)])
    expected = loss(x, [f(x, w) for f, w in zip(functions, weights, strict=True)])
    gradient = maps.gradient(ours)
    torch.testing.assert_close(whole(gradient), torch.autograd.grad(expected, x)[0])
    part = gradient.rows(2, 5, torch.full((3, IN), torch.nan, dtype=torch.float64))
    torch.testing.assert_close(part, whole(gradient)[2:5])
    scale = torch.tensor([0.5, 0.0, 1e3, 1e-3], dtype=torch.float64)
    torch.testing.assert_close(whole(gradient.times(scale)), whole(gradient) * scale)
    torch.testing.assert_close(whole(gradient.times(scale).times(scale)), whole(gradient) * scale * scale)


def test_a_loss_that_does_not_use_the_features_has_no_gradient() -> None:
    other = torch.ones(1, requires_grad=True)
    assert not whole(LinearMaps(features(requires_grad=True)).gradient(other.sum())).any()


def test_a_graph_that_is_retained_can_be_differentiated_again() -> None:
    maps = LinearMaps(features(requires_grad=True))
    loss = maps.product(torch.mm, W).square().sum()
    first = whole(maps.gradient(loss, retain_graph=True))
    assert torch.equal(whole(maps.gradient(loss)), first)


# ---------------------------------------------------------------- after a step


@pytest.mark.parametrize("refreshed", [True, False])
def test_products_follow_the_features(refreshed: bool) -> None:
    maps, parameter = LinearMaps(features(requires_grad=True)), nn.Parameter(W, requires_grad=False)
    maps.gradient(maps.product(torch.mm, parameter).sum() + maps.product(F.linear, LINEAR.weight).sum())
    with torch.no_grad():
        maps.x += features().flip(0)
    if refreshed:
        for start, stop in ((0, 4), (4, N)):
            maps.refresh(start, stop)
    else:
        maps.clear()
    maps.begin_loss()
    assert torch.equal(maps.product(torch.mm, parameter), (maps.x @ W).detach())
    expected = maps.x.square().sum() + (maps.x @ W).exp().sum()
    gradient = maps.gradient(maps.x.square().sum() + maps.product(torch.mm, parameter).exp().sum())
    torch.testing.assert_close(whole(gradient), torch.autograd.grad(expected, maps.x)[0])


def test_products_are_refreshed_in_the_type_of_the_features_whatever_the_caller_casts_to() -> None:
    x, linear = features().float().requires_grad_(), nn.Linear(IN, 3).requires_grad_(False)
    maps = LinearMaps(x)
    maps.gradient(maps.product(F.linear, linear.weight, linear.bias).sum())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        maps.refresh(0, N)
    maps.begin_loss()
    assert torch.equal(maps.product(F.linear, linear.weight, linear.bias), linear(x))


def test_a_product_written_to_before_a_step_is_right_after_it() -> None:
    maps = LinearMaps(features(requires_grad=True))
    maps.gradient(maps.product(F.linear, LINEAR.weight).sum())
    with torch.no_grad():
        maps.product(F.linear, LINEAR.weight).zero_()
    maps.refresh(0, N)
    maps.begin_loss()
    assert torch.equal(maps.product(F.linear, LINEAR.weight), maps.x.detach() @ LINEAR.weight.t())


# ---------------------------------------------------------------- what is forgotten


def test_weights_for_one_call_do_not_pile_up_without_gradients() -> None:
    maps, gone = LinearMaps(features()), []
    for _ in range(4 * MAX_KEPT_MAPS):
        weight = torch.randn(IN, 2, dtype=torch.float64)
        maps.product(torch.mm, weight)
        gone.append(weakref.ref(weight))
        del weight
    assert sum(ref() is not None for ref in gone) <= MAX_KEPT_MAPS + 1


def test_weights_for_one_loss_do_not_pile_up_either() -> None:
    maps, gone = LinearMaps(features(requires_grad=True)), []
    for _ in range(5):
        maps.begin_loss()
        weight = torch.randn(IN, 2, dtype=torch.float64)
        maps.gradient(maps.product(torch.mm, weight).sum() + maps.product(F.linear, LINEAR.weight).sum())
        maps.refresh(0, N)  # no parameter, so it may never come again
        gone.append(weakref.ref(weight))
        del weight
        assert gone[-1]() is None and maps.is_used


def test_products_that_a_loss_does_not_use_are_forgotten_with_its_gradient() -> None:
    maps, weight = LinearMaps(features(requires_grad=True)), nn.Parameter(W.clone(), requires_grad=False)
    maps.product(torch.mm, weight)
    maps.begin_loss()
    maps.gradient(maps.product(F.linear, LINEAR.weight).sum())
    gone = weakref.ref(weight)
    del weight
    assert gone() is None
