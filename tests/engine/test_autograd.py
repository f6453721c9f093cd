"""Gradients are computed for those who ask, not for all who could."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphmend.engine.autograd import apply, asked_for


class Product(torch.autograd.Function):
    asked: list[list[bool]] = []  # noqa: RUF012 (what backward saw)

    @staticmethod
    def forward(ctx: Any, name: str, a: Tensor, b: Tensor, c: Tensor | None) -> Tensor:
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, b = ctx.saved_tensors
        Product.asked.append(asked_for(ctx))
        return None, grad * b, grad * a, None


def test_only_what_is_asked_for() -> None:
    a, b = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
    Product.asked.clear()
    loss = apply(Product, "name", 2 * a, 3 * b, None).sum()
    for wanted in (a, b, (a, b)):
        torch.autograd.grad(loss, wanted, retain_graph=True)
    loss.backward()
    a_only, b_only, both = [False, True, False, False], [False, False, True, False], [False, True, True, False]
    assert Product.asked == [a_only, b_only, both, both]


def test_leaves_are_always_asked_for_and_constants_never() -> None:
    a, b = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
    Product.asked.clear()
    torch.autograd.grad(apply(Product, "name", a, 3 * b, None).sum(), b)
    torch.autograd.grad(apply(Product, "name", a.detach(), 3 * b, torch.ones(3)).sum(), b)
    assert Product.asked == [[False, True, True, False], [False, False, True, False]]
