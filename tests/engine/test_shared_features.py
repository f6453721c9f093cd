"""Features whose linear maps are shared: always the same numbers and gradients as ordinary ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmend.engine.shared_features import Rows, materialised, permuted
from graphs import rng

N, IN = 6, 4
W = torch.randn(IN, 3, generator=rng(1), dtype=torch.float64)
B = torch.randn(3, generator=rng(2), dtype=torch.float64)
ORDER = torch.randperm(N, generator=rng(3))
LINEAR = nn.Linear(IN, 3).double().requires_grad_(False)


class Square(torch.autograd.Function):
    """Goes past everything a tensor subclass can see."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * grad


@torch.jit.script
def compiled(x: Tensor, w: Tensor) -> Tensor:
    return torch.relu(x) @ w


USES: dict[str, Callable[[Tensor], Tensor]] = {
    "matmul": lambda x: x @ W,
    "mm": lambda x: torch.mm(x, W),
    "linear": lambda x: F.linear(x, W.t().contiguous(), B),
    "module": LINEAR,
    "dropout, then a module": lambda x: LINEAR(F.dropout(x, 0.5, training=False)),
    "two maps": lambda x: torch.cat([LINEAR(x), (x @ W).relu()], dim=1),
    "elementwise": lambda x: (2 * x).tanh(),
    "rows": lambda x: x[[1, 1, 2]],
    "map and itself": lambda x: (x @ W).sum(1) * x.sum(1),
    "custom function": Square.apply,
    "compiled": lambda x: compiled(x, W),
    "transposed": lambda x: x.t() @ x,
    "concatenated": lambda x: torch.cat([x, x]),
    "batched": lambda x: x @ W.expand(2, IN, 3),
}


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_values_and_gradients(use: Callable[[Tensor], Tensor], shuffled: bool) -> None:
    x = torch.randn(N, IN, generator=rng(), dtype=torch.float64).requires_grad_()
    weight = torch.rand(use(x).shape, generator=rng(4), dtype=torch.float64)
    expected = (use(x[ORDER] if shuffled else x) * weight).sum()
    rows = Rows.of(x)
    found = (use(permuted(rows, ORDER) if shuffled else rows) * weight).sum()
    torch.testing.assert_close(found, expected)
    gradient = rows.gradient(found)
    torch.testing.assert_close(gradient.rows(0, N), torch.autograd.grad(expected, x)[0])
    torch.testing.assert_close(gradient.rows(2, 5), gradient.rows(0, N)[2:5])
    torch.testing.assert_close(gradient.norm(), torch.linalg.vector_norm(gradient.rows(0, N)))


def test_a_map_is_computed_once_and_shared_with_other_orders() -> None:
    rows = Rows.of(torch.randn(N, IN, dtype=torch.float64))
    assert (rows @ W) is (rows @ W) and LINEAR(rows) is LINEAR(rows)
    assert torch.equal(permuted(rows, ORDER) @ W, (rows @ W)[ORDER])


def test_trained_weights_are_not_looked_up() -> None:
    rows, weight = Rows.of(torch.randn(N, IN)), torch.randn(IN, 2, requires_grad=True)
    assert (rows @ weight).requires_grad
    with torch.no_grad():
        assert (rows @ weight) is (rows @ weight)


def test_it_looks_like_the_features() -> None:
    x = torch.randn(N, IN)
    rows = Rows.of(x)
    assert isinstance(rows, Tensor) and rows.shape == x.shape and rows.dtype == x.dtype and rows.size(0) == len(rows)
    assert torch.equal(materialised(rows), x) and torch.equal(materialised(permuted(rows, ORDER)), x[ORDER])
    assert materialised(x) is x


def test_what_cannot_be_shared_is_computed_as_ever() -> None:
    x = torch.randn(N, IN, requires_grad=True)
    rows, vector = Rows.of(x), torch.randn(IN)
    assert rows.size(dim=0) == N and torch.equal(F.linear(rows, vector), F.linear(x, vector))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (rows @ W.float()).dtype == torch.bfloat16
        gradient = rows.gradient((rows @ W.float()).float().sum())
    torch.testing.assert_close(gradient.rows(0, N), W.float().sum(1).expand(N, -1), atol=0.05, rtol=0.02)


def test_changed_and_fresh_weights() -> None:
    rows, weight = Rows.of(torch.randn(N, IN)), torch.randn(IN, 2)
    before = rows @ weight
    weight.mul_(2)
    torch.testing.assert_close(rows @ weight, 2 * before)
    for _ in range(100):
        rows @ torch.randn(IN, 2)
    assert len(rows._known) <= 17


def test_maps_are_renewed_with_the_features_and_handed_on() -> None:
    x = torch.randn(N, IN, generator=rng(), dtype=torch.float64).requires_grad_()
    before, weight = Rows.of(x), nn.Parameter(W, requires_grad=False)
    before.gradient((LINEAR(before) * (before @ weight) * (before @ B.new_ones(IN, 3))).sum())
    with torch.no_grad():
        x += torch.randn(N, IN, generator=rng(5), dtype=torch.float64)
    for start, stop in ((0, 4), (4, N)):
        before.renew(start, stop)
    after = Rows.of(x, before)
    assert len(after._known) == 2  # what is no parameter may never come again
    found, expected = ((LINEAR(rows) * (rows @ weight).exp()).sum() for rows in (after, x))
    torch.testing.assert_close(found, expected)
    assert len(after._known) == 2
    torch.testing.assert_close(after.gradient(found).rows(0, N), torch.autograd.grad(expected, x)[0])


@pytest.mark.parametrize("handed_on", [False, True])
def test_what_has_no_gradient_stays_a_constant_of_its_own(handed_on: bool) -> None:
    x = torch.randn(N, IN, dtype=torch.float64).requires_grad_()
    rows = Rows.of(x)
    if handed_on:
        rows.gradient(LINEAR(rows).sum())
        rows = Rows.of(x, rows)
    for constant_first in (False, True):
        mapped = None if constant_first else LINEAR(rows)
        with torch.no_grad():
            constant = LINEAR(rows)
            constant /= 2
        mapped = LINEAR(rows) if mapped is None else mapped
        gradient = rows.gradient((constant * mapped.square()).sum())
        y = LINEAR(x)
        expected = torch.autograd.grad((y.detach() / 2 * y.square()).sum(), x)[0]
        torch.testing.assert_close(gradient.rows(0, N), expected)


def test_a_map_that_was_written_to_is_computed_anew() -> None:
    rows = Rows.of(torch.randn(N, IN, dtype=torch.float64))
    expected = LINEAR(rows).clone()
    LINEAR(rows).zero_()
    assert torch.equal(LINEAR(rows), expected)
    LINEAR(rows).zero_()
    assert torch.equal(LINEAR(Rows.of(rows._x, rows)), expected)


def test_weights_for_one_call_do_not_pile_up() -> None:
    x = torch.randn(N, IN, dtype=torch.float64).requires_grad_()
    rows, weight = Rows.of(x), nn.Parameter(W.clone(), requires_grad=False)
    for _ in range(20):
        loss = torch.stack([(rows @ weight.mul_(0.9)).sum() for _ in range(3)]).sum()
        rows.gradient(loss)
        rows.renew(0, N)
        rows = Rows.of(x, rows)
    assert len(rows._known) == 3


def test_renewed_in_single_precision_whatever_the_caller_casts_to() -> None:
    x, linear = torch.randn(N, IN).requires_grad_(), nn.Linear(IN, 3).requires_grad_(False)
    rows = Rows.of(x)
    rows.gradient(linear(rows).sum())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rows.renew(0, N)
    assert torch.equal(linear(Rows.of(x, rows)), linear(x))


def test_a_loss_that_does_not_use_them_has_no_gradient() -> None:
    x = torch.randn(N, IN, requires_grad=True)
    other = torch.ones(1, requires_grad=True)
    gradient = Rows.of(x).gradient(other.sum())
    assert not gradient.rows(0, N).any() and float(gradient.norm()) == 0
