"""Gradients are computed for those who ask, not for all who could; permutations have a gradient of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from graphmend.engine.autograd import apply, inverse_permutation, needed_gradients, permuted
from support.graphs import rng
from support.sparse_patterns import devices


class Product(torch.autograd.Function):
    needed: list[list[bool]] = []  # noqa: RUF012 (what backward saw)

    @staticmethod
    def forward(ctx: Any, name: str, a: Tensor, b: Tensor, c: Tensor | None) -> Tensor:
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, b = ctx.saved_tensors
        Product.needed.append(needed_gradients(ctx))
        return None, grad * b, grad * a, None


def test_only_what_is_asked_for() -> None:
    a, b = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
    Product.needed.clear()
    loss = apply(Product, "name", 2 * a, 3 * b, None).sum()
    for wanted in (a, b, (a, b)):
        torch.autograd.grad(loss, wanted, retain_graph=True)
    loss.backward()
    a_only, b_only, both = [False, True, False, False], [False, False, True, False], [False, True, True, False]
    assert Product.needed == [a_only, b_only, both, both]


def test_leaves_are_always_asked_for_and_constants_never() -> None:
    a, b = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
    Product.needed.clear()
    torch.autograd.grad(apply(Product, "name", a, 3 * b, None).sum(), b)
    torch.autograd.grad(apply(Product, "name", a.detach(), 3 * b, torch.ones(3)).sum(), b)
    assert Product.needed == [[False, True, True, False], [False, False, True, False]]


def test_without_a_gradient_autograd_is_left_out() -> None:
    a, b = torch.rand(3, requires_grad=True), torch.rand(3)
    assert apply(Product, "name", a, b, None).grad_fn is not None
    with torch.no_grad():
        assert torch.equal(apply(Product, "name", a, b, None), a * b)
    out = apply(Product, "name", a.detach(), b, None)
    assert torch.equal(out, a.detach() * b) and not out.requires_grad


class InsideCasts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        return a @ a  # autocast would make it half precision

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@devices
@pytest.mark.parametrize("requires_grad", [True, False])
def test_nothing_inside_is_cast_automatically(requires_grad: bool, device: str) -> None:
    a = torch.rand(3, 3, device=device).requires_grad_(requires_grad)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.bfloat16 and apply(InsideCasts, a).dtype == torch.float32


# ---------------------------------------------------------------- permutations


@devices
@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("inverse_is_known", [True, False])
def test_a_permutation_and_its_gradient(inverse_is_known: bool, index: torch.dtype, device: str) -> None:
    order = torch.randperm(6, generator=rng()).to(device, index)
    inverse = inverse_permutation(order)
    assert inverse.dtype == index and torch.equal(order[inverse.long()].cpu(), torch.arange(6, dtype=index))
    for shape in ((6,), (6, 2)):
        x = torch.randn(shape, generator=rng(1), dtype=torch.float64).to(device).requires_grad_()
        out = permuted(x, order, inverse if inverse_is_known else None)
        assert torch.equal(out, x[order.long()])
        seen = torch.randn(shape, generator=rng(2), dtype=torch.float64).to(device)
        assert torch.equal(torch.autograd.grad(out, x, seen)[0], seen[inverse.long()])
        with torch.no_grad():
            assert torch.equal(permuted(x, order), out)


def test_its_gradient_equals_finite_differences() -> None:
    x, order = torch.randn(6, 2, dtype=torch.float64, requires_grad=True), torch.randperm(6, generator=rng())
    assert torch.autograd.gradcheck(lambda x: permuted(x, order).pow(2), x)
